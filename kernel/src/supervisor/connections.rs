//! The connections over which a cell shows things and asks the kernel: one for each process that it consists of.

use super::accept;
use super::streams::read_available;
use anyhow::Result;
use ferrotune_link::{Answer, KernelFrame, wire};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};

/// All connections of the cell process.
pub(super) struct Connections {
    pub(super) listener: UnixListener,
    open: Vec<Connection>,
    next_number: usize,
    waiting: Option<Waiting>,
}

/// The connection whose frame the kernel has yet to answer.
#[derive(Clone, Copy)]
enum Waiting {
    /// The answer may take long: an interrupt ends the wait.
    ForUser(usize),
    /// The kernel answers at once. Its answer would reach the connection's next frame if this one was answered otherwise.
    ForKernel(usize),
}

/// One connection, with what has arrived of the next frame.
struct Connection {
    number: usize,
    stream: UnixStream,
    bytes: Vec<u8>,
}

impl Connections {
    pub(super) fn new(listener: UnixListener) -> Self {
        Self { listener, open: Vec::new(), next_number: 0, waiting: None }
    }

    pub(super) fn fds(&self) -> impl Iterator<Item = (usize, BorrowedFd<'_>)> {
        self.open.iter().map(|connection| (connection.number, connection.stream.as_fd()))
    }

    pub(super) fn accept(&mut self) -> Result<()> {
        if let Some(stream) = accept(&self.listener)? {
            self.next_number += 1;
            self.open.push(Connection { number: self.next_number, stream, bytes: Vec::new() });
        }
        Ok(())
    }

    /// Reads from a connection: how many bytes have come, and a frame if one is whole.
    pub(super) fn read(&mut self, number: usize) -> Result<(usize, Option<KernelFrame>)> {
        let Some(position) = self.open.iter().position(|connection| connection.number == number) else {
            return Ok((0, None));
        };
        let connection = &mut self.open[position];
        let before = connection.bytes.len();
        let open = read_available(&connection.stream, &mut connection.bytes)?;
        let count = connection.bytes.len() - before;
        match wire::take(&mut connection.bytes) {
            Ok(Some(frame)) => return Ok((count, Some(frame))),
            Ok(None) if open => {}
            Ok(None) | Err(_) => drop(self.open.remove(position)),
        }
        Ok((count, None))
    }

    /// The kernel answers the frame of this connection when the user or a search has.
    pub(super) fn await_user(&mut self, number: usize) {
        self.waiting = Some(Waiting::ForUser(number));
    }

    /// The kernel answers the frame of this connection at once.
    pub(super) fn await_kernel(&mut self, number: usize) {
        self.waiting = Some(Waiting::ForKernel(number));
    }

    /// Gives this answer to the connection that waits for the user, if there is one.
    pub(super) fn end_wait_for_user(&mut self, answer: &Answer) -> Result<()> {
        match self.waiting {
            Some(Waiting::ForUser(_)) => self.answer_waiting(answer),
            Some(Waiting::ForKernel(_)) | None => Ok(()),
        }
    }

    /// Gives the kernel's answer to the connection that waits for it, if there is one.
    pub(super) fn answer_waiting(&mut self, answer: &Answer) -> Result<()> {
        match self.waiting.take() {
            Some(Waiting::ForUser(number) | Waiting::ForKernel(number)) => self.answer(number, answer),
            None => Ok(()),
        }
    }

    pub(super) fn answer(&mut self, number: usize, answer: &Answer) -> Result<()> {
        let Some(connection) = self.open.iter_mut().find(|connection| connection.number == number) else {
            return Ok(());
        };
        connection.stream.set_nonblocking(false)?;
        if let Err(error) = wire::write(&mut connection.stream, answer) {
            tracing::debug!("the cell does not wait for its answer: {error}");
        }
        connection.stream.set_nonblocking(true)?;
        Ok(())
    }

    /// The process has ended, and its connections with it.
    pub(super) fn clear(&mut self) {
        self.open.clear();
        self.waiting = None;
    }
}
