//! Waits for workers, and takes in what they send, print and hold. Judges none of it.

use super::control::Control;
use super::{ProcessError, SharedMemory, Signals, Worker};
use ferrotune_machine::process_tree::{Held, held_by};
use ferrotune_space::wire::{Reply, Request};
use rustix::event::{PollFd, PollFlags, Timespec};
use std::io;
use std::time::Duration;

/// Waits until something happens to one of the workers or `limit` is over. Returns how many requests to stop the search
/// have arrived. What the workers request is then read with [`Worker::next_request`].
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
    fds.extend(workers.iter().map(|worker| PollFd::new(&worker.pidfd, PollFlags::IN)));
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
    // Before any reply is sent: a trial that waits for a reply still has the files open that it has made.
    shared_memory.look(workers.iter_mut().map(|worker| (worker.system_pid(), &mut worker.shared_files)));
    for (worker, exited) in workers.iter_mut().zip(exited) {
        worker.exited = exited;
        // Before its requests are read: what comes after the status is none of the trial's.
        worker.returned = worker.returned.take().or_else(|| worker.control.as_mut().and_then(Control::status));
        worker.output.drain();
        worker.requests.exchange();
    }
    if signalled { signals.take().map_err(ProcessError::system("read a signal")) } else { Ok(0) }
}

impl Worker {
    /// How long it has been running.
    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Whether it had exited when [`wait`] returned. No requests come after those that have arrived by then.
    pub fn has_exited(&self) -> bool {
        self.exited
    }

    /// What the worker and everything that it started hold.
    pub fn held(&self) -> Held {
        held_by(self.system_pid())
    }

    /// The next whole request that has arrived; `Err` says why a line is not a request.
    pub fn next_request(&mut self) -> Option<Result<Request, String>> {
        self.requests.next()
    }

    /// Answers the last request. Never blocks: a worker that does not read cannot hold up its supervisor.
    pub fn reply(&mut self, reply: &Reply) -> Result<(), ProcessError> {
        self.requests.reply(reply).map_err(ProcessError::system("write a reply"))
    }
}
