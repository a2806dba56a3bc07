//! The supervisor's side of a resident worker: it gives the worker the next trial, cleans up after each trial, and asks the
//! worker to exit.

use super::control::Control;
use super::leftovers::make_temporary;
use super::output::Output;
use super::requests::RequestSocket;
use super::shared_memory::Inodes;
use super::{ProcessError, SharedMemory, Worker, strays};
use ferrotune_machine::process_tree::{below, number};
use rustix::process::Signal;
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Instant;

/// The result of a trial in a resident worker.
#[derive(Debug)]
pub struct Settled {
    /// The trial's exit status.
    pub status: i32,
    /// A line for each thing that the trial has left behind.
    pub left: Vec<String>,
    /// Whether the folder of temporary files is empty, as the next trial needs it.
    pub is_clean: bool,
}

impl Worker {
    /// Gives a resident worker its next trial, whose output goes to `output.log` in `folder`.
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

    /// Whether the worker keeps running after the end of its trial. All requests of that trial have arrived by then.
    pub fn has_returned(&self) -> bool {
        self.returned.is_some()
    }

    /// Keeps the worker's present processes when a trial ends, because they serve its device.
    pub fn keep_processes(&mut self) {
        self.kept = below(self.system_pid()).into_iter().map(number).collect();
    }

    /// Cleans up after a trial that has ended in a resident worker: kills the processes that the trial has started, empties
    /// the folder of temporary files, and saves the output.
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
        // Processes that were killed after earlier trials stay as zombies until the worker reaps them or exits.
        self.killed.retain(|killed| started.iter().any(|pid| number(*pid) == *killed));
        started.retain(|pid| self.killed.insert(number(*pid)));
        strays::kill_all(&started);
        // A killed process holds its memory until it is gone.
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

    /// Asks a resident worker to exit, after its running trial if there is one.
    pub fn ask_to_leave(&mut self) {
        if let Some(control) = &mut self.control {
            control.close();
        }
        if let Err(error) = self.process.signal(Signal::TERM) {
            tracing::warn!(pid = self.pid(), %error, "the worker cannot be asked to leave");
        }
    }
}
