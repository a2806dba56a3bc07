//! The connection with one other worker: sends and receives as much as it can without waiting.

use super::super::StrategyError;
use super::frame::{Farewell, HEAD_BYTES, Head, LONGEST, end_of_frame};
use rustix::net::sockopt;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

/// TCP keepalive: hosts are probed this often, and are lost after so many probes without an answer.
const PROBED_EVERY: Duration = Duration::from_secs(5);
const PROBES: u32 = 4;
/// How long a worker that fails waits for another to receive its farewell.
const FAREWELL_TIME: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub(super) struct PeerConnection {
    pub(super) worker: usize,
    /// The addresses of all workers.
    workers: Arc<[String]>,
    pub(super) stream: TcpStream,
    /// The head that the frames of this phase must have.
    head: Option<Head>,
    outgoing: Vec<u8>,
    sent: usize,
    expected: usize,
    incoming: Vec<u8>,
    /// The frame that is being received, with its head.
    frame: Vec<u8>,
    /// Whether a frame of this phase has been received.
    has_begun: bool,
}

impl PeerConnection {
    /// Sets up a connection.
    pub(super) fn new(worker: usize, workers: Arc<[String]>, stream: TcpStream) -> io::Result<PeerConnection> {
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        sockopt::set_socket_keepalive(&stream, true)?;
        sockopt::set_tcp_keepidle(&stream, PROBED_EVERY)?;
        sockopt::set_tcp_keepintvl(&stream, PROBED_EVERY)?;
        // No TCP_USER_TIMEOUT: it would also end a worker that computes, and does not read for a while.
        sockopt::set_tcp_keepcnt(&stream, PROBES)?;
        let (outgoing, incoming, frame) = Default::default();
        Ok(PeerConnection {
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

    /// Starts to send `values` and to receive `expected` bytes.
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

    /// The bytes that have been received.
    pub(super) fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.incoming)
    }

    /// Sends and receives as much as possible without waiting.
    pub(super) fn go_on(&mut self) -> Result<(), StrategyError> {
        let sent = self.send();
        while self.awaits() && self.receive()? {}
        match sent {
            Ok(()) => Ok(()),
            // The other worker's farewell says more than the broken connection.
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

    /// Receives a part of a frame, and returns whether there may be more.
    fn receive(&mut self) -> Result<bool, StrategyError> {
        let wanted = match self.frame.first_chunk() {
            None => HEAD_BYTES,
            Some(head) => HEAD_BYTES + Head::read(head).1,
        };
        if wanted > HEAD_BYTES + LONGEST {
            return Err(self.gone("what it sends cannot be read".to_owned()));
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

    /// Takes the frame, once it is complete.
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
                Err(error) => self.gone(format!("its farewell cannot be read: {error}")),
            });
        }
        self.incoming.extend_from_slice(content);
        self.has_begun = true;
        self.frame.clear();
        Ok(())
    }

    /// Checks that values belong to this step, and have the expected type and number.
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

    /// Sends the farewell, after the frame that is being sent.
    pub(super) fn part(&mut self, farewell: &Farewell) {
        self.outgoing.truncate(end_of_frame(self.sent, self.outgoing.len()));
        self.outgoing.extend_from_slice(&farewell.frame());
        let limited =
            self.stream.set_nonblocking(false).and_then(|()| self.stream.set_write_timeout(Some(FAREWELL_TIME)));
        // A worker that does not receive it sees the connection close.
        if let Err(error) = limited.and_then(|()| self.stream.write_all(&self.outgoing[self.sent..]))
            && !matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset)
        {
            eprintln!("ferrotune: worker {} could not be told why this one ends: {error}", self.worker);
        }
    }
}

fn gone(worker: usize, workers: &[String], reason: String) -> StrategyError {
    // Another worker may name one that does not exist.
    let address = workers.get(worker).cloned().unwrap_or_default();
    StrategyError::Gone { worker, address, reason }
}
