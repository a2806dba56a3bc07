//! A worker as far as it must be watched and ended while nobody listens to it.

use super::{ProcessError, Worker, strays};
use ferrotune_machine::process_tree::{Held, below, held_by, number};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, pidfd_send_signal, waitid};
use std::os::fd::{AsFd as _, OwnedFd};

/// A worker's process. It does nothing once the worker is reaped, when its number may be another process'.
#[derive(Debug)]
pub struct Reach {
    pid: Pid,
    pidfd: OwnedFd,
}

impl Worker {
    /// The worker's process, to be watched beside the worker.
    pub fn reach(&self) -> Result<Reach, ProcessError> {
        let pidfd = self.pidfd.try_clone().map_err(ProcessError::system("watch the worker"))?;
        Ok(Reach { pid: self.system_pid(), pidfd })
    }

    /// The worker was killed when it had these processes.
    pub fn was_killed_with(&mut self, processes: &[u32]) {
        self.below.extend(processes);
    }
}

impl Reach {
    /// What the worker and everything that it has started hold.
    pub fn held(&self) -> Held {
        if self.is_there() { held_by(self.pid) } else { Held::default() }
    }

    /// Asks a worker that stays to leave.
    pub fn ask_to_leave(&self) {
        self.send(Signal::TERM);
    }

    /// Kills the worker and all that it has started; gives these processes.
    pub fn kill(&self) -> Vec<u32> {
        if !self.is_there() {
            return Vec::new();
        }
        let below = below(self.pid);
        // The worker is killed first: it must not see another process end and take that for a result.
        self.send(Signal::KILL);
        if let Err(error) = rustix::process::kill_process_group(self.pid, Signal::KILL) {
            tracing::debug!(pid = number(self.pid), %error, "the worker's group had ended before it was killed");
        }
        strays::kill_all(&below);
        below.into_iter().map(number).collect()
    }

    fn is_there(&self) -> bool {
        // Only a process that was reaped is no child any more, and its number may be another's.
        let looks = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        !matches!(waitid(WaitId::PidFd(self.pidfd.as_fd()), looks), Err(Errno::CHILD | Errno::SRCH))
    }

    fn send(&self, signal: Signal) {
        match pidfd_send_signal(&self.pidfd, signal) {
            Ok(()) | Err(Errno::SRCH) => {}
            Err(errno) => tracing::warn!(pid = number(self.pid), %errno, "a worker cannot be signalled"),
        }
    }
}
