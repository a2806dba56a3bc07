//! The connections over which a cell sends outputs and questions to the kernel: one for each of the cell's processes.

use super::accept;
use super::streams::read_available;
use anyhow::Result;
use ferrotune_link::{Answer, KernelFrame, wire};
use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};

/// All connections of the cell process.
pub(super) struct Connections {
    pub(super) listener: UnixListener,
    open: Vec<Connection>,
    next_number: usize,
    /// The connections whose frames the kernel has yet to answer, by the numbers of their questions.
    waiting: BTreeMap<u64, (usize, AnswerFrom)>,
    next_question: u64,
}

/// The party that answers a frame.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum AnswerFrom {
    /// The user, or a search. The answer may take long, and an interrupt ends the wait.
    User,
    /// The kernel answers at once.
    Kernel,
}

/// One connection, with the bytes that have arrived of the next frame.
struct Connection {
    number: usize,
    stream: UnixStream,
    bytes: Vec<u8>,
}

impl Connections {
    pub(super) fn new(listener: UnixListener) -> Self {
        // A late answer to a question of an earlier supervisor must not fit a question of this one.
        let next_question = u64::from(std::process::id()) << 32;
        Self { listener, open: Vec::new(), next_number: 0, waiting: BTreeMap::new(), next_question }
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

    /// Reads from a connection, and returns how many bytes have arrived, and a frame if one is whole.
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

    /// Registers that the frame of this connection needs an answer. Returns the number of the question.
    pub(super) fn await_answer(&mut self, number: usize, from: AnswerFrom) -> u64 {
        self.next_question += 1;
        self.waiting.insert(self.next_question, (number, from));
        self.next_question
    }

    /// Gives this answer to the connections that wait for the user.
    pub(super) fn end_wait_for_user(&mut self, answer: &Answer) -> Result<()> {
        let questions = self.waiting.iter().filter(|(_, (_, from))| *from == AnswerFrom::User);
        let questions: Vec<u64> = questions.map(|(question, _)| *question).collect();
        questions.into_iter().try_for_each(|question| self.answer_question(question, answer))
    }

    /// Gives the kernel's answer to the connection that waits for it. An answer that comes after the wait has ended is dropped.
    pub(super) fn answer_question(&mut self, question: u64, answer: &Answer) -> Result<()> {
        match self.waiting.remove(&question) {
            Some((number, _)) => self.answer(number, answer),
            None => {
                tracing::debug!(question, "nobody waits for this answer any more");
                Ok(())
            }
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

    /// Drops all connections, because the process has ended.
    pub(super) fn clear(&mut self) {
        self.open.clear();
        self.waiting.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{ErrorKind, Read};

    #[test]
    fn late_answer_does_not_reach_the_next_question() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let mut connections = Connections::new(UnixListener::bind(&path).unwrap());
        let mut cell = UnixStream::connect(&path).unwrap();
        connections.accept().unwrap();
        let number = connections.next_number;
        let input = connections.await_answer(number, AnswerFrom::User);
        let refused = Answer::Refused { reason: "interrupted".to_owned() };
        connections.end_wait_for_user(&refused).unwrap();
        assert_eq!(wire::read(&mut cell).unwrap(), Some(refused.clone()));
        let comm = connections.await_answer(number, AnswerFrom::Kernel);
        connections.answer_question(input, &Answer::Line { text: None }).unwrap();
        connections.end_wait_for_user(&refused).unwrap();
        cell.set_nonblocking(true).unwrap();
        assert_eq!(cell.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
        cell.set_nonblocking(false).unwrap();
        connections.answer_question(comm, &Answer::Done).unwrap();
        assert_eq!(wire::read(&mut cell).unwrap(), Some(Answer::Done));
    }
}
