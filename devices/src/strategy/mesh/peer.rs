//! The connection with one other worker, which sends and receives as much as it can without waiting.

use super::super::StrategyError;
use super::frame::{Farewell, HEAD_BYTES, Head, LONGEST, bytes_of_frames};
use rustix::net::sockopt;
use std::io::{self, ErrorKind, IoSlice, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

/// The interval of TCP keepalive probes; a host is lost after `PROBES` probes without an answer.
const PROBED_EVERY: Duration = Duration::from_secs(5);
const PROBES: u32 = 4;
/// The time that a worker which fails waits for another worker to receive its farewell.
const FAREWELL_TIME: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub(super) struct PeerConnection {
    pub(super) worker: usize,
    /// The addresses of all workers.
    workers: Arc<[String]>,
    pub(super) stream: TcpStream,
    /// The head of the frames of this phase.
    head: Option<Head>,
    /// The number of bytes of frames in this phase, and the number of them that are sent.
    outgoing: usize,
    sent: usize,
    /// The number of bytes of values that are expected, and the number of them that have been received.
    expected: usize,
    received: usize,
    /// The received bytes of the head of the current frame.
    lead: [u8; HEAD_BYTES],
    led: usize,
    /// The number of bytes of the current frame's content that have not been received.
    left: usize,
    /// The content of a farewell.
    last_words: Vec<u8>,
    /// Whether a frame of this phase has been received.
    has_begun: bool,
    /// The rest of the frame that was being sent when the phase ended with an error.
    rest: Vec<u8>,
}

/// The number of frames that are sent at a time.
const SENT_TOGETHER: usize = 16;

impl PeerConnection {
    /// Sets up a connection.
    pub(super) fn new(worker: usize, workers: Arc<[String]>, stream: TcpStream) -> io::Result<PeerConnection> {
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        sockopt::set_socket_keepalive(&stream, true)?;
        sockopt::set_tcp_keepidle(&stream, PROBED_EVERY)?;
        sockopt::set_tcp_keepintvl(&stream, PROBED_EVERY)?;
        // No TCP_USER_TIMEOUT: it would also end the connection with a worker that computes, and does not read for a while.
        sockopt::set_tcp_keepcnt(&stream, PROBES)?;
        let (last_words, rest) = Default::default();
        Ok(PeerConnection {
            worker,
            workers,
            stream,
            head: None,
            outgoing: 0,
            sent: 0,
            expected: 0,
            received: 0,
            lead: [0; HEAD_BYTES],
            led: 0,
            left: 0,
            last_words,
            has_begun: false,
            rest,
        })
    }

    /// Starts to send `outgoing` bytes of values and to receive `expected` bytes of values.
    pub(super) fn begin(&mut self, head: Head, outgoing: usize, expected: usize) {
        self.head = Some(head);
        (self.outgoing, self.sent) = (bytes_of_frames(outgoing), 0);
        (self.expected, self.received, self.has_begun) = (expected, 0, false);
    }

    pub(super) fn sends(&self) -> bool {
        self.sent < self.outgoing
    }

    pub(super) fn awaits(&self) -> bool {
        !self.has_begun || self.received < self.expected
    }

    pub(super) fn is_done(&self) -> bool {
        !self.sends() && !self.awaits()
    }

    /// Sends and receives as much as possible without waiting.
    pub(super) fn go_on(&mut self, outgoing: &[u8], incoming: &mut [u8]) -> Result<(), StrategyError> {
        let sent = self.send(outgoing);
        while self.awaits() && self.receive(incoming)? {}
        match sent {
            Ok(()) => Ok(()),
            // The other worker's farewell tells more than the error of the broken connection.
            Err(error) => {
                while self.receive(incoming)? {}
                Err(self.gone(error.to_string()))
            }
        }
    }

    fn send(&mut self, values: &[u8]) -> io::Result<()> {
        let Some(head) = self.head else { return Ok(()) };
        while self.sends() {
            let (first, at) = (self.sent / (HEAD_BYTES + LONGEST), self.sent % (HEAD_BYTES + LONGEST));
            let last = self.outgoing.div_ceil(HEAD_BYTES + LONGEST).min(first + SENT_TOGETHER);
            let frames: Vec<_> = (first..last).map(|index| head.frame(values, index)).collect();
            let mut slices: Vec<IoSlice<'_>> =
                frames.iter().flat_map(|(head, content)| [IoSlice::new(head), IoSlice::new(content)]).collect();
            let mut slices = slices.as_mut_slice();
            IoSlice::advance_slices(&mut slices, at);
            match self.stream.write_vectored(slices) {
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Receives a part of a frame, and returns whether there may be more.
    fn receive(&mut self, values: &mut [u8]) -> Result<bool, StrategyError> {
        let into = if self.led < HEAD_BYTES {
            &mut self.lead[self.led..]
        } else if Head::read(&self.lead).0.is_farewell() {
            let have = self.last_words.len() - self.left;
            &mut self.last_words[have..]
        } else {
            // `received` counts whole frames.
            let frame = Head::read(&self.lead).1;
            &mut values[self.received + frame - self.left..][..self.left]
        };
        match self.stream.read(into) {
            Ok(0) => Err(self.gone("its process has ended".to_owned())),
            Ok(count) => self.took(count).map(|()| true),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(true),
            Err(error) => Err(self.gone(error.to_string())),
        }
    }

    /// Counts received bytes of a frame, and handles the head or the content that they complete.
    fn took(&mut self, count: usize) -> Result<(), StrategyError> {
        let (head, length) = if self.led < HEAD_BYTES {
            self.led += count;
            if self.led < HEAD_BYTES {
                return Ok(());
            }
            let (head, length) = Head::read(&self.lead);
            self.begin_content(head, length)?;
            (head, length)
        } else {
            self.left -= count;
            Head::read(&self.lead)
        };
        if self.left > 0 {
            return Ok(());
        }
        if head.is_farewell() {
            return Err(match serde_json::from_slice::<Farewell>(&self.last_words) {
                Ok(Farewell { culprit, reason }) => gone(culprit, &self.workers, reason),
                Err(error) => self.gone(format!("its farewell cannot be read: {error}")),
            });
        }
        self.received += length;
        (self.has_begun, self.led) = (true, 0);
        Ok(())
    }

    fn begin_content(&mut self, head: Head, length: usize) -> Result<(), StrategyError> {
        let unreadable = || self.gone("what it sends cannot be read".to_owned());
        if length > LONGEST {
            return Err(unreadable());
        }
        if head.is_farewell() {
            self.last_words = vec![0; length];
        } else {
            self.check(head)?;
            if length > self.expected - self.received {
                return Err(unreadable());
            }
        }
        self.left = length;
        Ok(())
    }

    /// Checks that the frame's values belong to this step, and have the expected type and number.
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

    /// Keeps the rest of the frame that is being sent, so that the farewell can follow it.
    pub(super) fn keep_rest(&mut self, values: &[u8]) {
        let (frame, at) = (self.sent / (HEAD_BYTES + LONGEST), self.sent % (HEAD_BYTES + LONGEST));
        if let Some(head) = self.head.filter(|_| self.sends() && at > 0) {
            let (head, content) = head.frame(values, frame);
            self.rest = [&head, content].concat().split_off(at);
        }
    }

    /// Sends the farewell, after the frame that is being sent.
    pub(super) fn part(&mut self, farewell: &Farewell) {
        let last = [&self.rest[..], &farewell.frame()].concat();
        let limited =
            self.stream.set_nonblocking(false).and_then(|()| self.stream.set_write_timeout(Some(FAREWELL_TIME)));
        // A worker that does not receive the farewell still finds the connection closed.
        if let Err(error) = limited.and_then(|()| self.stream.write_all(&last))
            && !matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset)
        {
            eprintln!("ferrotune: worker {} could not be told why this one ends: {error}", self.worker);
        }
    }
}

fn gone(worker: usize, workers: &[String], reason: String) -> StrategyError {
    // Another worker may report a number that does not exist.
    let address = workers.get(worker).cloned().unwrap_or_default();
    StrategyError::Gone { worker, address, reason }
}
