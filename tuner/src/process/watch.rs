//! Waits for workers, and reads their requests, their output and the resources that they hold. Decides nothing.

use super::control::Control;
use super::{ProcessError, SharedMemory, Signals, Worker};
use ferrotune_machine::process_tree::{Held, held_by};
use ferrotune_space::wire::{Reply, Request};
use rustix::event::{PollFd, PollFlags, Timespec};
use std::io;
use std::time::Duration;

/// Waits until an event of one of the workers, or until `limit` is over. Returns the number of requests to stop the search
/// that have arrived. [`Worker::next_request`] then returns the workers' requests.
pub fn wait<'a>(
    workers: impl IntoIterator<Item = &'a mut Worker>,
    signals: &Signals,
    shared_memory: &mut SharedMemory,
    limit: Duration,
) -> Result<usize, ProcessError> {
    let timeout = Timespec::try_from(limit).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput));
    let timeout = timeout.map_err(ProcessError::system("wait that long"))?;
    let mut workers: Vec<&mut Worker> = workers.into_iter().collect();
    let mut fds = vec![PollFd::new(signals, PollFlags::IN)];
    fds.extend(workers.iter().map(|worker| PollFd::new(&worker.process, PollFlags::IN)));
    for worker in &workers {
        fds.extend(worker.output.reader().map(|reader| PollFd::from_borrowed_fd(reader, PollFlags::IN)));
        fds.extend(worker.requests.poll_fd());
        fds.extend(worker.control.as_ref().and_then(Control::poll_fd));
    }
    fds.extend(shared_memory.events().map(|events| PollFd::from_borrowed_fd(events, PollFlags::IN)));
    match rustix::event::poll(&mut fds, Some(&timeout)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(errno) => return Err(ProcessError::system("wait for the workers")(errno)),
    }
    let signalled = !fds[0].revents().is_empty();
    let exited: Vec<bool> = fds[1..=workers.len()].iter().map(|fd| !fd.revents().is_empty()).collect();
    drop(fds);
    for (worker, exited) in workers.iter_mut().zip(exited) {
        worker.exited = exited;
        // This happens before the worker's requests are read: a request after the status does not belong to the trial.
        worker.returned = worker.returned.take().or_else(|| worker.control.as_mut().and_then(Control::status));
        worker.output.drain();
        worker.requests.receive();
    }
    // This happens before any reply is sent: a trial that waits for a reply still has its new files open.
    let is_last = |worker: &mut &mut Worker| matches!(worker.requests.peek(), Some(Ok(request)) if request.is_last());
    if workers.iter_mut().any(is_last) {
        shared_memory.look_now();
    }
    shared_memory.look(workers.iter_mut().map(|worker| (worker.system_pid(), &mut worker.shared_files)));
    for worker in &mut workers {
        worker.requests.flush();
    }
    if signalled { signals.take().map_err(ProcessError::system("read a signal")) } else { Ok(0) }
}

impl Worker {
    /// The time for which the worker has been running.
    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Whether the worker had exited when [`wait`] returned. All its requests have arrived by then.
    pub fn has_exited(&self) -> bool {
        self.exited
    }

    /// The resources that the worker and all processes that it started hold.
    pub fn held(&self) -> Held {
        held_by(self.system_pid())
    }

    /// The next complete request that has arrived; `Err` says why a line is not a request.
    pub fn next_request(&mut self) -> Option<Result<Request, String>> {
        self.requests.next()
    }

    /// Answers the last request. Never blocks: a worker that does not read cannot delay its supervisor.
    pub fn reply(&mut self, reply: &Reply) -> Result<(), ProcessError> {
        self.requests.reply(reply).map_err(ProcessError::system("write a reply"))
    }
}
