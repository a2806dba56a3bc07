//! The supervisor's side of a worker that stays: gives it the next trial, takes stock when one is over, and asks it to leave.

use super::control::Control;
use super::leftovers::make_temporary;
use super::output::Output;
use super::requests::RequestSocket;
use super::shared_memory::Inodes;
use super::{ProcessError, SharedMemory, Worker, strays};
use ferrotune_machine::process_tree::{below, number};
use rustix::io::Errno;
use rustix::process::Signal;
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Instant;

/// What a trial has come to in a worker that stays.
#[derive(Debug)]
pub struct Settled {
    /// The trial's exit status.
    pub status: i32,
    /// A line for each thing that it has left behind.
    pub left: Vec<String>,
    /// Whether the folder of temporary files is empty, as the next trial must find it.
    pub is_clean: bool,
}

impl Worker {
    /// Gives a worker that stays its next trial, whose output goes to `output.log` in `folder`.
    pub fn assign(&mut self, folder: &Path) -> Result<(), ProcessError> {
        let (requests, workers_end) = UnixStream::pair().map_err(ProcessError::system("open the worker's socket"))?;
        self.requests = RequestSocket::new(requests).map_err(ProcessError::system("set up the worker's socket"))?;
        let (output, writer) = Output::open(folder.join("output.log"))?;
        self.output = output;
        make_temporary(&self.temporary)
            .map_err(|source| ProcessError::Write { path: self.temporary.clone(), source })?;
        (self.shared_files, self.started) = (Inodes::new(), Instant::now());
        let control = self.control.as_ref().ok_or_else(|| io::Error::from(io::ErrorKind::Unsupported));
        let given = control.and_then(|control| control.hand_over(workers_end.as_fd(), writer.as_fd()));
        given.map_err(ProcessError::system("give the worker a trial"))
    }

    /// Whether the worker runs on after its trial, which is over. No requests of the trial come after those that have arrived.
    pub fn has_returned(&self) -> bool {
        self.returned.is_some()
    }

    /// The processes that the worker has now serve its device, and stay when a trial ends.
    pub fn keep_processes(&mut self) {
        self.kept = below(self.system_pid()).into_iter().map(number).collect();
    }

    /// Takes stock of a trial that is over in a worker that stays: kills the processes that the trial has started, empties the
    /// folder of temporary files, and saves the output.
    pub fn settle(&mut self, shared_memory: &mut SharedMemory) -> Result<Settled, ProcessError> {
        let status = self.returned.take().unwrap_or_default();
        let mut started = below(self.system_pid());
        let kept: Vec<u32> = started
            .iter()
            .filter(|pid| self.kept.contains(&number(**pid)))
            .flat_map(|pid| below(*pid))
            .map(number)
            .collect();
        started.retain(|pid| !self.kept.contains(&number(*pid)) && !kept.contains(&number(*pid)));
        // Those that were killed after earlier trials stay as entries until the worker reaps them or leaves.
        self.killed.retain(|killed| started.iter().any(|pid| number(*pid) == *killed));
        started.retain(|pid| self.killed.insert(number(*pid)));
        strays::kill_all(&started);
        // What they held is theirs until they are gone.
        strays::wait_for_all(&started).map_err(ProcessError::system("wait for processes of a trial"))?;
        let mut left = Vec::new();
        if !started.is_empty() {
            left.push(strays::described(started.len()));
        }
        let emptied = make_temporary(&self.temporary);
        let is_clean = emptied.is_ok();
        if let Err(error) = emptied {
            left.push(format!("temporary files in {}, which cannot be removed: {error}", self.temporary.display()));
        }
        left.extend(shared_memory.remove(&self.shared_files));
        self.output.drain();
        if let Err(error) = self.output.save() {
            tracing::warn!(%error, "the output of a trial is lost");
        }
        Ok(Settled { status, left, is_clean })
    }

    /// Whether [`Worker::ask_to_leave`] was called.
    pub fn was_asked_to_leave(&self) -> bool {
        self.control.as_ref().is_some_and(Control::is_closed)
    }

    /// Asks a worker that stays to leave, after the trial that it runs, if it runs one.
    pub fn ask_to_leave(&mut self) {
        if let Some(control) = &mut self.control {
            control.close();
        }
        match rustix::process::pidfd_send_signal(&self.pidfd, Signal::TERM) {
            Ok(()) | Err(Errno::SRCH) => {}
            Err(errno) => tracing::warn!(pid = self.pid(), %errno, "the worker cannot be asked to leave"),
        }
    }
}
