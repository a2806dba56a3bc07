//! Ends a worker with every process that the worker has started, and returns how the worker ended.

use super::cgroup::Cgroup;
use super::{ProcessError, SharedMemory, Worker, leftovers, strays};
use ferrotune_machine::process_tree::{below, number};
use rustix::process::Signal;
use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;

/// The way in which a worker's process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// The worker exited with this status.
    Code(i32),
    /// This signal ended the worker.
    Signal(i32),
    /// An allocation of this many bytes failed, and the worker aborted; 0 if the system killed it at its cgroup's limit.
    Starved(u64),
}

impl Worker {
    /// Kills the worker and all processes that it started; [`wait`](super::wait) then reports the exit.
    pub fn kill(&mut self) {
        // The worker is killed first. Otherwise it might see another process end, and take that for a result.
        let below = below(self.system_pid());
        self.below.extend(below.iter().copied().map(number));
        // The group is absent only if the worker has exited, which the next wait reports.
        if let Err(error) = rustix::process::kill_process_group(self.system_pid(), Signal::KILL) {
            tracing::debug!(pid = self.pid(), %error, "the worker's group had ended before it was killed");
        }
        strays::kill_all(&below);
        if let Some(cgroup) = &self.cgroup {
            cgroup.kill();
        }
    }

    /// Reaps a worker that has exited or been killed, removes every process that the worker left, and saves its output.
    /// `living` are the process ids of the other workers. Returns the exit, and a line for each thing that the worker left
    /// behind.
    pub fn end(
        mut self,
        living: &[u32],
        shared_memory: &mut SharedMemory,
    ) -> Result<(Exit, Vec<String>), ProcessError> {
        let status = self.reap().map_err(ProcessError::system("reap the worker"))?;
        let strays = strays::remove(living).map_err(ProcessError::system("reap what the worker left"))?;
        // A worker that is being killed may still reap a process that was killed with it, so the killed processes are
        // counted here, too.
        self.below.extend(strays);
        let mut left = Vec::new();
        if !self.below.is_empty() {
            left.push(strays::described(self.below.len()));
        }
        if let Err(error) = leftovers::remove_temporary(&self.temporary) {
            left.push(format!("temporary files in {}, which cannot be removed: {error}", self.temporary.display()));
        }
        left.extend(shared_memory.remove(&self.shared_files));
        if living.is_empty() {
            left.extend(shared_memory.report_new());
        }
        self.output.drain();
        // A lost output must not lose the trial's result.
        if let Err(error) = self.output.save() {
            tracing::warn!(%error, "the output of a worker is lost");
        }
        let exit = self.exit(status);
        if let Some(Err(error)) = self.cgroup.as_ref().map(Cgroup::remove) {
            left.push(format!("a cgroup, which cannot be removed: {error}"));
        }
        Ok((exit, left))
    }

    fn exit(&self, status: ExitStatus) -> Exit {
        match (status.code(), status.signal()) {
            (Some(code), _) => Exit::Code(code),
            (None, Some(libc::SIGABRT)) => {
                self.output.refused_bytes().map_or(Exit::Signal(libc::SIGABRT), Exit::Starved)
            }
            (None, Some(libc::SIGKILL)) if self.cgroup.as_ref().is_some_and(Cgroup::was_over) => Exit::Starved(0),
            (None, signal) => Exit::Signal(signal.unwrap_or_default()),
        }
    }

    fn reap(&mut self) -> io::Result<ExitStatus> {
        // The group is killed before its leader is reaped: until then the group's id cannot be reused.
        self.kill();
        let status = self.child.wait()?;
        self.reaped = true;
        Ok(status)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if !self.reaped
            && let Err(error) = self.reap()
        {
            tracing::warn!(pid = self.child.id(), %error, "a worker could not be reaped");
        }
    }
}
