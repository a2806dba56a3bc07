//! Handles on processes. A process id may later belong to another process; a handle never does.

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// A handle on a process. Its descriptor becomes readable when the process ends.
#[derive(Debug)]
pub struct Handle(OwnedFd);

impl Handle {
    /// A handle on the process that has this id now; none if it has ended, and was reaped.
    ///
    /// # Errors
    /// If the system refuses it.
    pub fn open(pid: Pid) -> io::Result<Option<Self>> {
        match rustix::process::pidfd_open(pid, PidfdFlags::empty()) {
            Ok(fd) => Ok(Some(Self(fd))),
            Err(Errno::SRCH) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    /// A handle on a process of this one, which nobody has reaped.
    ///
    /// # Errors
    /// If the system refuses it, or there is no such process.
    pub fn of_child(pid: Pid) -> io::Result<Self> {
        Self::open(pid)?.ok_or_else(|| Errno::SRCH.into())
    }

    /// A second handle on the same process.
    ///
    /// # Errors
    /// If this process has too many open files.
    pub fn try_clone(&self) -> io::Result<Self> {
        self.0.try_clone().map(Self)
    }

    /// Sends a signal. Returns whether the process was still there.
    ///
    /// # Errors
    /// If the system refuses it.
    pub fn signal(&self, signal: Signal) -> io::Result<bool> {
        match rustix::process::pidfd_send_signal(&self.0, signal) {
            Ok(()) => Ok(true),
            Err(Errno::SRCH) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Whether the process is a child of this one that nobody has reaped, so that its id is its own.
    pub fn is_unreaped_child(&self) -> bool {
        let looks = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        !matches!(rustix::process::waitid(WaitId::PidFd(self.0.as_fd()), looks), Err(Errno::CHILD | Errno::SRCH))
    }

    /// Waits until the process has ended, for `limit` at most. Reaps nothing.
    ///
    /// # Errors
    /// If the system refuses to wait.
    pub fn wait(&self, limit: Duration) -> io::Result<()> {
        let deadline = Instant::now() + limit;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let timeout = Timespec::try_from(left).map_err(|_| io::ErrorKind::InvalidInput)?;
            match rustix::event::poll(&mut [PollFd::new(&self.0, PollFlags::IN)], Some(&timeout)) {
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

impl AsFd for Handle {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_handle_reaches_its_process_alone() -> io::Result<()> {
        let mut child = Command::new("sleep").arg("60").spawn()?;
        let pid = Pid::from_child(&child);
        let handle = Handle::of_child(pid)?;
        let second = handle.try_clone()?;
        handle.wait(Duration::from_millis(1))?;
        assert!(handle.is_unreaped_child() && second.signal(Signal::KILL)?);
        handle.wait(Duration::from_secs(60))?;
        assert!(handle.is_unreaped_child());
        child.wait()?;
        assert!(!handle.is_unreaped_child() && !handle.signal(Signal::KILL)?);
        assert!(Handle::open(pid)?.is_none() && Handle::of_child(pid).is_err());
        Ok(())
    }
}
