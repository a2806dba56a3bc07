//! The supervisor's side of the cell process: starts, signals, kills and reaps it, and holds its streams.

use super::arrivals::Arrivals;
use super::streams::{read_available, retry, set_nonblocking};
use super::{KERNEL_VARIABLE, Places, SNAPSHOTS_VARIABLE, SUPERVISOR_VARIABLE};
use anyhow::{Context, Result};
use ferrotune_link::connection::LINK_VARIABLE;
use ferrotune_link::{CellOrder, CellReport, wire};
use ferrotune_machine::handle::Handle;
use ferrotune_machine::own;
use ferrotune_machine::process_tree;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, waitpid};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// The capacity of a pipe for output: what a cell can print before the supervisor reads. Linux allows no more without privileges.
const PIPE_BYTES: usize = 1 << 20;

/// The cell process: the process that holds the variables.
pub(super) struct CellProcess {
    pub(super) pid: Pid,
    handle: Handle,
    /// How the process ended, once that is known.
    ended: Option<WaitStatus>,
    /// Whether the supervisor has handled the end of the process.
    is_reaped: bool,
}

/// The streams of the cell process. Later cell processes and all snapshots have the same streams.
pub(super) struct Streams {
    /// The socket for [`CellOrder`]s to the process and [`CellReport`]s from it.
    pub(super) control: UnixStream,
    report_bytes: Vec<u8>,
    pub(super) stdout: OwnedFd,
    pub(super) stderr: OwnedFd,
    pub(super) arrivals: Arrivals,
    /// The other ends of the streams, for the next process.
    theirs: Ends,
}

struct Ends {
    control: OwnedFd,
    stdout: OwnedFd,
    stderr: OwnedFd,
}

impl Streams {
    pub(super) fn new() -> Result<Self> {
        let (control, theirs) = UnixStream::pair()?;
        let (stdout, their_stdout) = pipe_with(PipeFlags::CLOEXEC)?;
        let (stderr, their_stderr) = pipe_with(PipeFlags::CLOEXEC)?;
        for fd in [&stdout, &stderr] {
            set_nonblocking(fd)?;
            // If the system has no room for a larger pipe, a cell that prints much waits more often.
            if let Err(error) = fcntl_setpipe_size(fd, PIPE_BYTES) {
                tracing::debug!("the pipe for the output of cells stays small: {error}");
            }
        }
        control.set_nonblocking(true)?;
        let arrivals = Arrivals::of(&stdout, &stderr)?;
        let theirs = Ends { control: theirs.into(), stdout: their_stdout, stderr: their_stderr };
        Ok(Self { control, report_bytes: Vec::new(), stdout, stderr, arrivals, theirs })
    }

    /// Sends the process an order. If the process is gone, the order is lost, and `poll` finds the end of the process.
    pub(super) fn order(&mut self, order: &CellOrder) {
        if let Err(error) = wire::write(&mut self.control, order) {
            tracing::debug!("the cell process takes no orders: {error}");
        }
    }

    pub(super) fn read_reports(&mut self) -> Result<()> {
        read_available(&self.control, &mut self.report_bytes).map(drop)
    }

    /// Takes the next of the reports that have been read; none if there is no whole report.
    pub(super) fn take_report(&mut self) -> Result<Option<CellReport>> {
        Ok(wire::take(&mut self.report_bytes)?)
    }

    /// Drops a dead process's unread orders and reports, because the next process has the same socket.
    pub(super) fn forget(&mut self) -> Result<()> {
        self.read_reports()?;
        self.report_bytes.clear();
        let mut ready = [PollFd::new(&self.theirs.control, PollFlags::IN)];
        let mut buffer = [0; 4096];
        while poll(&mut ready, Some(&Timespec::default()))? > 0 {
            rustix::io::read(&self.theirs.control, &mut buffer)?;
        }
        Ok(())
    }
}

impl CellProcess {
    /// Starts a process without variables.
    pub(super) fn start(places: &Places, streams: &Streams) -> Result<Self> {
        let mut command = Command::new(own::PROGRAM);
        command
            .arg("cell-process")
            .args(&places.libraries)
            .env(LINK_VARIABLE, &places.link)
            .env(SNAPSHOTS_VARIABLE, &places.snapshots)
            .env_remove(KERNEL_VARIABLE)
            .env("RUST_BACKTRACE", "0")
            .env(SUPERVISOR_VARIABLE, std::process::id().to_string())
            // Processes that a cell has started are killed with it.
            .process_group(0)
            // candle's own pool, which quantized products use, does not survive a fork. All else uses rayon's, which is started anew.
            .env("CANDLE_NUM_THREADS", "1")
            .stdin(streams.theirs.control.try_clone()?)
            .stdout(streams.theirs.stdout.try_clone()?)
            .stderr(streams.theirs.stderr.try_clone()?);
        crate::environment::restore_path(&mut command);
        ferrotune_machine::child::quiet_drivers(&mut command);
        ferrotune_machine::child::large_pages(&mut command);
        let child = command.spawn().context("cannot start the cell process")?;
        Self::of(Pid::from_child(&child))
    }

    pub(super) fn of(pid: Pid) -> Result<Self> {
        Ok(Self { pid, handle: Handle::of_child(pid)?, ended: None, is_reaped: false })
    }

    pub(super) fn number(&self) -> u32 {
        process_tree::number(self.pid)
    }

    pub(super) fn signal(&self, signal: Signal) -> Result<()> {
        self.handle.signal(signal)?;
        Ok(())
    }

    /// Kills the process and all other processes of its group.
    pub(super) fn kill(&self) -> Result<()> {
        if self.ended.is_some() {
            return Ok(()); // another process may have its number by now
        }
        match rustix::process::kill_process_group(self.pid, Signal::KILL) {
            Ok(()) | Err(Errno::SRCH | Errno::PERM) => self.signal(Signal::KILL),
            Err(error) => Err(error.into()),
        }
    }

    /// A descriptor that becomes readable when the process ends; none once the end has been handled.
    pub(super) fn end_fd(&self) -> Option<BorrowedFd<'_>> {
        (!self.is_reaped).then(|| self.handle.as_fd())
    }

    pub(super) fn is_reaped(&self) -> bool {
        self.is_reaped
    }

    /// Waits for the end of the process.
    pub(super) fn reap(&mut self) -> Result<WaitStatus> {
        self.is_reaped = true;
        if let Some(status) = self.ended {
            return Ok(status);
        }
        let ended = retry(|| waitpid(Some(self.pid), WaitOptions::empty()))?;
        self.ended = ended.map(|(_, status)| status);
        self.ended.context("the system has no status of the cell process")
    }

    /// Reaps all processes that have become children of the supervisor and have ended.
    pub(super) fn reap_strays(&mut self) -> Result<()> {
        loop {
            match retry(|| rustix::process::wait(WaitOptions::NOHANG)) {
                Ok(Some((pid, status))) if pid == self.pid => self.ended = Some(status),
                Ok(Some(_)) => {}
                Ok(None) | Err(Errno::CHILD) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }
}
