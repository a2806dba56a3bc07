//! The process of the cells, as its supervisor sees it.

use super::streams::{retry, set_nonblocking};
use super::{KERNEL_VARIABLE, Places, SNAPSHOTS_VARIABLE, SUPERVISOR_VARIABLE};
use crate::runtime::OWN_PROGRAM;
use anyhow::{Context, Result};
use ferrotune_link::connection::LINK_VARIABLE;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, WaitStatus, waitpid};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// A process that holds the variables, or could.
pub(super) struct CellProcess {
    pub(super) pid: Pid,
    pub(super) fd: OwnedFd,
    /// How it ended, once that is known.
    ended: Option<WaitStatus>,
}

/// The streams of the process: the same ones for all that follow each other, and for their sleeping copies.
pub(super) struct Streams {
    pub(super) control: UnixStream,
    pub(super) stdout: OwnedFd,
    pub(super) stderr: OwnedFd,
    /// The other ends, for the next process.
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
        }
        control.set_nonblocking(true)?;
        let theirs = Ends { control: theirs.into(), stdout: their_stdout, stderr: their_stderr };
        Ok(Self { control, stdout, stderr, theirs })
    }

    /// Orders that a process has left unread are not for the next one.
    pub(super) fn forget_orders(&self) -> Result<()> {
        let mut ready = [PollFd::new(&self.theirs.control, PollFlags::IN)];
        let mut buffer = [0; 4096];
        while poll(&mut ready, Some(&Timespec::default()))? > 0 {
            rustix::io::read(&self.theirs.control, &mut buffer)?;
        }
        Ok(())
    }
}

impl CellProcess {
    /// Starts one without variables.
    pub(super) fn start(places: &Places, streams: &Streams) -> Result<Self> {
        let mut command = Command::new(OWN_PROGRAM);
        command
            .arg("cell-process")
            .arg(&places.prelude)
            .env(LINK_VARIABLE, &places.link)
            .env(SNAPSHOTS_VARIABLE, &places.snapshots)
            .env_remove(KERNEL_VARIABLE)
            .env("RUST_BACKTRACE", "0")
            .env(SUPERVISOR_VARIABLE, std::process::id().to_string())
            // What the cell has started ends with it.
            .process_group(0)
            // candle's own pools would not survive a fork; its matrix products use rayon's, which does.
            .env("CANDLE_NUM_THREADS", "1")
            .stdin(streams.theirs.control.try_clone()?)
            .stdout(streams.theirs.stdout.try_clone()?)
            .stderr(streams.theirs.stderr.try_clone()?);
        crate::environment::restore_path(&mut command);
        let child = command.spawn().context("cannot start the cell process")?;
        Self::of(Pid::from_child(&child))
    }

    pub(super) fn of(pid: Pid) -> Result<Self> {
        Ok(Self { pid, fd: rustix::process::pidfd_open(pid, PidfdFlags::empty())?, ended: None })
    }

    pub(super) fn number(&self) -> u32 {
        self.pid.as_raw_nonzero().get().unsigned_abs()
    }

    pub(super) fn signal(&self, signal: Signal) -> Result<()> {
        match rustix::process::pidfd_send_signal(&self.fd, signal) {
            Ok(()) | Err(Errno::SRCH) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Ends the process and what it has started in its group.
    pub(super) fn kill(&self) -> Result<()> {
        if self.ended.is_some() {
            return Ok(()); // its number may be another process' by now
        }
        match rustix::process::kill_process_group(self.pid, Signal::KILL) {
            Ok(()) | Err(Errno::SRCH | Errno::PERM) => self.signal(Signal::KILL),
            Err(error) => Err(error.into()),
        }
    }

    /// Waits for its end.
    pub(super) fn reap(&mut self) -> Result<WaitStatus> {
        if let Some(status) = self.ended {
            return Ok(status);
        }
        let ended = retry(|| waitpid(Some(self.pid), WaitOptions::empty()))?;
        self.ended = ended.map(|(_, status)| status);
        self.ended.context("the system knows nothing of the cell process")
    }

    /// Takes note of the ends of all processes that have become children of the supervisor.
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
