//! The connection with one other worker: what goes out and what comes in, as far as it can go without waiting.

use super::super::StrategyError;
use super::frame::{Farewell, HEAD_BYTES, Head, LONGEST, end_of_frame};
use rustix::net::sockopt;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

/// Hosts are asked this often whether they are there, and are lost after so many questions without an answer.
const ASKED_EVERY: Duration = Duration::from_secs(5);
const QUESTIONS: u32 = 4;
/// What a worker that fails waits for others to take its last words.
const FAREWELL_TIME: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub(super) struct Link {
    pub(super) worker: usize,
    /// The addresses of all.
    workers: Arc<[String]>,
    pub(super) stream: TcpStream,
    /// What the frames of this phase must begin with.
    head: Option<Head>,
    outgoing: Vec<u8>,
    sent: usize,
    expected: usize,
    incoming: Vec<u8>,
    /// The frame that is coming in, its head included.
    frame: Vec<u8>,
    /// Whether a frame of this phase has come.
    has_begun: bool,
}

impl Link {
    /// Takes charge of a connection.
    pub(super) fn new(worker: usize, workers: Arc<[String]>, stream: TcpStream) -> io::Result<Link> {
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        sockopt::set_socket_keepalive(&stream, true)?;
        sockopt::set_tcp_keepidle(&stream, ASKED_EVERY)?;
        sockopt::set_tcp_keepintvl(&stream, ASKED_EVERY)?;
        // No TCP_USER_TIMEOUT: it would also end a worker that computes and so takes nothing for a while.
        sockopt::set_tcp_keepcnt(&stream, QUESTIONS)?;
        let (outgoing, incoming, frame) = Default::default();
        Ok(Link {
            worker,
            workers,
            stream,
            head: None,
            outgoing,
            sent: 0,
            expected: 0,
            incoming,
            frame,
            has_begun: false,
        })
    }

    /// Begins to send `values`, and to expect so many bytes.
    pub(super) fn begin(&mut self, head: Head, values: &[u8], expected: usize) {
        self.head = Some(head);
        (self.outgoing, self.sent) = (head.frames(values), 0);
        (self.expected, self.has_begun) = (expected, false);
        self.incoming = Vec::with_capacity(expected);
    }

    pub(super) fn sends(&self) -> bool {
        self.sent < self.outgoing.len()
    }

    pub(super) fn awaits(&self) -> bool {
        !self.has_begun || self.incoming.len() < self.expected
    }

    pub(super) fn is_done(&self) -> bool {
        !self.sends() && !self.awaits()
    }

    /// The bytes that have come.
    pub(super) fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.incoming)
    }

    /// Sends and receives what can be, without waiting.
    pub(super) fn go_on(&mut self) -> Result<(), StrategyError> {
        let sent = self.send();
        while self.awaits() && self.receive()? {}
        match sent {
            Ok(()) => Ok(()),
            // Whatever it said last tells more than the connection's end.
            Err(error) => {
                while self.receive()? {}
                Err(self.gone(error.to_string()))
            }
        }
    }

    fn send(&mut self) -> io::Result<()> {
        while self.sends() {
            match self.stream.write(&self.outgoing[self.sent..]) {
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Takes in some of a frame; whether there may be more.
    fn receive(&mut self) -> Result<bool, StrategyError> {
        let wanted = match self.frame.first_chunk() {
            None => HEAD_BYTES,
            Some(head) => HEAD_BYTES + Head::read(head).1,
        };
        if wanted > HEAD_BYTES + LONGEST {
            return Err(self.gone("what it sends is not understood".to_owned()));
        }
        let have = self.frame.len();
        self.frame.resize(wanted, 0);
        let read = self.stream.read(&mut self.frame[have..]);
        self.frame.truncate(have + read.as_ref().map_or(0, |count| *count));
        match read {
            Ok(0) if wanted > have => Err(self.gone("its process has ended".to_owned())),
            Ok(_) => self.take_frame().map(|()| true),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(true),
            Err(error) => Err(self.gone(error.to_string())),
        }
    }

    /// Looks at the frame, once it is whole.
    fn take_frame(&mut self) -> Result<(), StrategyError> {
        let Some((head, length)) = self.frame.first_chunk().map(Head::read) else { return Ok(()) };
        if !head.is_farewell() {
            self.check(head)?;
        }
        if self.frame.len() < HEAD_BYTES + length {
            return Ok(());
        }
        let content = &self.frame[HEAD_BYTES..];
        if head.is_farewell() {
            return Err(match serde_json::from_slice::<Farewell>(content) {
                Ok(Farewell { culprit, reason }) => gone(culprit, &self.workers, reason),
                Err(error) => self.gone(format!("its last words are not understood: {error}")),
            });
        }
        self.incoming.extend_from_slice(content);
        self.has_begun = true;
        self.frame.clear();
        Ok(())
    }

    /// Whether values are those that are awaited.
    fn check(&self, head: Head) -> Result<(), StrategyError> {
        let Some(expected) = self.head else { return Ok(()) };
        if !head.is_of(expected) {
            return Err(self.gone("it is at another step; all replicas must take the same steps".to_owned()));
        }
        if !head.has_type_of(expected) {
            return Err(StrategyError::Types);
        }
        if head.total() != expected.total() {
            return Err(StrategyError::Lengths { first: expected.total(), other: head.total() });
        }
        Ok(())
    }

    fn gone(&self, reason: String) -> StrategyError {
        gone(self.worker, &self.workers, reason)
    }

    /// Says the last words, behind the frame that is under way.
    pub(super) fn part(&mut self, farewell: &Farewell) {
        self.outgoing.truncate(end_of_frame(self.sent, self.outgoing.len()));
        self.outgoing.extend_from_slice(&farewell.frame());
        let limited =
            self.stream.set_nonblocking(false).and_then(|()| self.stream.set_write_timeout(Some(FAREWELL_TIME)));
        // Who does not hear them sees the connection close.
        if let Err(error) = limited.and_then(|()| self.stream.write_all(&self.outgoing[self.sent..]))
            && !matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset)
        {
            eprintln!("ferrotune: worker {} could not be told of the end: {error}", self.worker);
        }
    }
}

fn gone(worker: usize, workers: &[String], reason: String) -> StrategyError {
    // Others may name a worker that does not exist.
    let address = workers.get(worker).cloned().unwrap_or_default();
    StrategyError::Gone { worker, address, reason }
}
