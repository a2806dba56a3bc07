//! Runs cargo and rustc so that the user sees their progress, and can stop them and all their child processes at once.
//!
//! A stand-in is a process that evcxr waits for, so it needs its own connection to the kernel.

use crate::environment;
use anyhow::{Context, Result};
use ferrotune_display::Bundle;
use ferrotune_link::{KernelFrame, SupervisorOrder, wire};
use ferrotune_machine::handle::Handle;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, Signal};
use serde_json::Value;
use std::io::{self, Read};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

/// The shortest wait that is shown: two notebooks often want cargo's lock at the same time, each for a moment.
const SHORT_WAIT: Duration = Duration::from_secs(1);

/// The error that the user has stopped the cell, or that the kernel has ended.
#[derive(Debug, thiserror::Error)]
#[error("the cell was stopped while it was being compiled")]
pub(super) struct Stopped;

/// Does the work of a stand-in with a connection to the kernel. The kernel has received all frames before evcxr sees the end of the
/// stand-in.
///
/// # Errors
/// The errors of the work, and those of a connection to a kernel that does not answer.
pub(super) fn with_kernel<T>(work: impl FnOnce(&mut Kernel) -> Result<T>) -> Result<T> {
    let mut kernel = Kernel::connect()?;
    let result = work(&mut kernel);
    if result.as_ref().is_err_and(|error| error.is::<Stopped>()) {
        kernel.send(&KernelFrame::Cancelled)?;
    }
    kernel.close()?;
    result
}

/// A stand-in's connection to the kernel.
pub(super) struct Kernel {
    stream: UnixStream,
    orders: Vec<u8>,
    shown: Option<String>,
    pending_wait: Option<Wait>,
}

/// A wait for a lock that is not shown yet.
struct Wait {
    due: Instant,
    text: String,
}

impl Kernel {
    fn connect() -> Result<Self> {
        let path = environment::kernel_socket().context("no kernel has started this process")?;
        let mut stream = UnixStream::connect(path).context("cannot reach the kernel")?;
        let serves_cell = std::env::var_os(evcxr::BESIDE_CELLS).is_none();
        let frame = if serves_cell { KernelFrame::Compiler } else { KernelFrame::Aside };
        wire::write(&mut stream, &frame).context("cannot reach the kernel")?;
        Ok(Self { stream, orders: Vec::new(), shown: None, pending_wait: None })
    }

    /// Shows a line under the cell, in place of the line that was shown before.
    pub(super) fn show(&mut self, text: String) -> Result<()> {
        let display_id = Some(format!("ferrotune-compiler-{}", std::process::id()));
        self.pending_wait = None;
        let update = self.shown.replace(text.clone()).is_some();
        let Bundle { data, metadata } = Bundle::text(text);
        self.send(&KernelFrame::Display { data, metadata, display_id, update })
    }

    /// Prints text under the cell, on standard error.
    pub(super) fn print_error(&mut self, text: &str) -> Result<()> {
        self.send(&KernelFrame::Stream { stream: ferrotune_link::Stream::Stderr, text: text.to_owned() })
    }

    /// Sends rustc's warnings to the kernel.
    pub(super) fn warn(&mut self, diagnostics: Vec<Value>) -> Result<()> {
        self.send(&KernelFrame::Warnings { diagnostics })
    }

    /// Shows a line about a wait, unless [`Kernel::end_wait`] is called, another line is shown or the program ends within
    /// [`SHORT_WAIT`].
    pub(super) fn show_wait(&mut self, text: String) {
        self.pending_wait = Some(Wait { due: Instant::now() + SHORT_WAIT, text });
    }

    /// Drops the pending wait, because the wait is over.
    pub(super) fn end_wait(&mut self) {
        self.pending_wait = None;
    }

    /// The line that is shown under the cell, if any.
    pub(super) fn shown(&self) -> Option<&str> {
        self.shown.as_deref()
    }

    /// The time until the pending wait has to be shown.
    fn time_to_wait(&self) -> Option<Duration> {
        self.pending_wait.as_ref().map(|wait| wait.due.saturating_duration_since(Instant::now()))
    }

    fn show_due_wait(&mut self) -> Result<()> {
        match self.pending_wait.take_if(|wait| wait.due <= Instant::now()) {
            Some(Wait { text, .. }) => self.show(text),
            None => Ok(()),
        }
    }

    /// Waits until the kernel has received all frames.
    fn close(mut self) -> Result<()> {
        self.stream.shutdown(Shutdown::Write)?;
        io::copy(&mut self.stream, &mut io::sink())?;
        Ok(())
    }

    fn send(&mut self, frame: &KernelFrame) -> Result<()> {
        wire::write(&mut self.stream, frame).context("the kernel is gone")
    }

    /// Whether the kernel orders a stop, or has ended.
    fn orders_stop(&mut self) -> Result<bool> {
        if read(&mut self.stream, &mut self.orders)? == 0 {
            return Ok(true);
        }
        let mut stops = false;
        while let Some(order) = wire::take::<SupervisorOrder>(&mut self.orders)? {
            stops |= order == SupervisorOrder::Interrupt;
        }
        Ok(stops)
    }
}

/// How a program ended, and its standard output if that is a pipe.
pub(super) struct Ended {
    pub(super) status: ExitStatus,
    pub(super) stdout: Vec<u8>,
}

/// Runs a program to its end.
///
/// # Errors
/// [`Stopped`], after the program and its process group are gone, or an error of the system.
pub(super) fn run(
    command: &mut Command,
    kernel: &mut Kernel,
    mut take_error: impl FnMut(&[u8], &mut Kernel) -> Result<()>,
) -> Result<Ended> {
    let mut child =
        command.process_group(0).spawn().with_context(|| format!("cannot run {}", command.get_program().display()))?;
    let result = follow(&mut child, kernel, &mut take_error);
    kernel.end_wait();
    if result.is_err() {
        match rustix::process::kill_process_group(Pid::from_child(&child), Signal::KILL) {
            Ok(()) | Err(Errno::SRCH) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let status = child.wait()?;
    Ok(Ended { status, stdout: result? })
}

/// Reads what a program writes until the program ends, and returns its output. It does not wait for processes that the program
/// leaves behind.
fn follow(
    child: &mut Child,
    kernel: &mut Kernel,
    take_error: &mut impl FnMut(&[u8], &mut Kernel) -> Result<()>,
) -> Result<Vec<u8>> {
    let process = Handle::of_child(Pid::from_child(child))?;
    let mut stdout = child.stdout.take();
    let mut stderr = child.stderr.take();
    let mut output = Vec::new();
    loop {
        let ready = ready(&process, kernel, [stdout.as_ref().map(AsFd::as_fd), stderr.as_ref().map(AsFd::as_fd)])?;
        if ready.kernel && kernel.orders_stop()? {
            return Err(Stopped.into());
        }
        if let Some(pipe) = stdout.as_mut().filter(|_| ready.pipes[0])
            && read(pipe, &mut output)? == 0
        {
            stdout = None;
        }
        if let Some(pipe) = stderr.as_mut().filter(|_| ready.pipes[1]) {
            let mut bytes = Vec::new();
            if read(pipe, &mut bytes)? == 0 {
                stderr = None;
            }
            take_error(&bytes, kernel)?;
        }
        if ready.process && ready.pipes == [false; 2] {
            return Ok(output);
        }
        kernel.show_due_wait()?;
    }
}

struct Ready {
    process: bool,
    kernel: bool,
    pipes: [bool; 2],
}

fn ready(process: &Handle, kernel: &Kernel, pipes: [Option<std::os::fd::BorrowedFd<'_>>; 2]) -> Result<Ready> {
    let sources = [Some(process.as_fd()), Some(kernel.stream.as_fd()), pipes[0], pipes[1]];
    let mut fds: Vec<_> = sources.iter().flatten().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
    let timeout = kernel.time_to_wait().map(Timespec::try_from).transpose()?;
    loop {
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) => break,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let mut found = fds.iter().map(|fd| !fd.revents().is_empty());
    let [process, kernel, stdout, stderr] = sources.map(|source| source.is_some() && found.next().unwrap_or_default());
    Ok(Ready { process, kernel, pipes: [stdout, stderr] })
}

/// Reads the bytes that `poll` has found, and returns their number; 0 at the end of the stream.
fn read(source: &mut impl Read, bytes: &mut Vec<u8>) -> Result<usize> {
    let mut buffer = [0; 16384];
    let count = source.read(&mut buffer)?;
    bytes.extend_from_slice(&buffer[..count]);
    Ok(count)
}
