//! A second handle on a worker's process, to watch and end the worker while the supervisor waits for something else.

use super::{ProcessError, Worker, strays};
use ferrotune_machine::handle::Handle;
use ferrotune_machine::process_tree::{Held, below, held_by, number};
use rustix::process::{Pid, Signal};

/// A handle on a worker's process. The handle does nothing after the worker is reaped, because the process id may then belong to
/// another process.
#[derive(Debug)]
pub struct Reach {
    pid: Pid,
    process: Handle,
}

impl Worker {
    /// Returns a second handle on the worker's process, for use beside the worker.
    pub fn reach(&self) -> Result<Reach, ProcessError> {
        let process = self.process.try_clone().map_err(ProcessError::system("watch the worker"))?;
        Ok(Reach { pid: self.system_pid(), process })
    }

    /// Records the processes that the worker had when it was killed.
    pub fn was_killed_with(&mut self, processes: &[u32]) {
        self.below.extend(processes);
    }
}

impl Reach {
    /// The resources that the worker and all processes that it has started hold.
    pub fn held(&self) -> Held {
        if self.is_there() { held_by(self.pid) } else { Held::default() }
    }

    /// Asks a resident worker to exit.
    pub fn ask_to_leave(&self) {
        self.send(Signal::TERM);
    }

    /// Kills the worker and all processes that it has started; returns those processes.
    pub fn kill(&self) -> Vec<u32> {
        if !self.is_there() {
            return Vec::new();
        }
        let below = below(self.pid);
        // The worker is killed first. Otherwise it might see another process end, and take that for a result.
        self.send(Signal::KILL);
        if let Err(error) = rustix::process::kill_process_group(self.pid, Signal::KILL) {
            tracing::debug!(pid = number(self.pid), %error, "the worker's group had ended before it was killed");
        }
        strays::kill_all(&below);
        below.into_iter().map(number).collect()
    }

    fn is_there(&self) -> bool {
        self.process.is_unreaped_child()
    }

    fn send(&self, signal: Signal) {
        if let Err(error) = self.process.signal(signal) {
            tracing::warn!(pid = number(self.pid), %error, "a worker cannot be signalled");
        }
    }
}
