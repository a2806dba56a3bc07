//! The supervisor's end of a worker's socket: requests arrive on it, one JSON line each, and replies go out. Never blocks.

use ferrotune_space::wire::{Reply, Request};
use rustix::event::{PollFd, PollFlags};
use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;

/// The longest line that can be a request.
const LONGEST_REQUEST_BYTES: usize = 64 << 20;

/// The socket, with bytes to be parsed as requests and bytes to be written.
#[derive(Debug)]
pub(super) struct RequestSocket {
    /// The stream; `None` once the worker has closed its end.
    stream: Option<UnixStream>,
    /// The next request, once it has been looked at.
    next: Option<Result<Request, String>>,
    inbox: Vec<u8>,
    outbox: Vec<u8>,
}

impl RequestSocket {
    pub(super) fn new(stream: UnixStream) -> io::Result<RequestSocket> {
        stream.set_nonblocking(true)?;
        Ok(RequestSocket { stream: Some(stream), next: None, inbox: Vec::new(), outbox: Vec::new() })
    }

    /// The descriptor to poll.
    pub(super) fn poll_fd(&self) -> Option<PollFd<'_>> {
        let flags = if self.outbox.is_empty() { PollFlags::IN } else { PollFlags::IN | PollFlags::OUT };
        self.stream.as_ref().map(|stream| PollFd::new(stream, flags))
    }

    /// The next complete request that has arrived; `Err` says why a line is not a request.
    pub(super) fn next(&mut self) -> Option<Result<Request, String>> {
        self.next.take().or_else(|| self.parse())
    }

    /// Looks at the request that [`next`](Self::next) returns.
    pub(super) fn peek(&mut self) -> Option<&Result<Request, String>> {
        self.next = self.next();
        self.next.as_ref()
    }

    fn parse(&mut self) -> Option<Result<Request, String>> {
        if let Some(end) = self.inbox.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.inbox.drain(..=end).collect();
            return Some(serde_json::from_slice(&line).map_err(|error| format!("not a request: {error}")));
        }
        if self.inbox.len() > LONGEST_REQUEST_BYTES {
            self.inbox = Vec::new();
            self.stream = None;
            return Some(Err(format!("a request of more than {LONGEST_REQUEST_BYTES} bytes")));
        }
        None
    }

    /// Sends as much of a reply as the socket accepts now, and keeps the rest.
    pub(super) fn reply(&mut self, reply: &Reply) -> serde_json::Result<()> {
        serde_json::to_writer(&mut self.outbox, reply)?;
        self.outbox.push(b'\n');
        self.flush();
        Ok(())
    }

    /// Reads as many bytes as the socket has.
    pub(super) fn receive(&mut self) {
        let mut chunk = [0; 1 << 14];
        while let Some(stream) = self.stream.as_mut() {
            match stream.read(&mut chunk) {
                Ok(length) if length > 0 => self.inbox.extend_from_slice(&chunk[..length]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The worker has closed its end, or died with unread replies. Its exit status says which.
                Ok(_) | Err(_) => self.stream = None,
            }
            if self.inbox.len() > LONGEST_REQUEST_BYTES {
                return;
            }
        }
    }

    /// Writes as many bytes as the socket accepts.
    pub(super) fn flush(&mut self) {
        while let Some(stream) = self.stream.as_mut()
            && !self.outbox.is_empty()
        {
            match stream.write(&self.outbox) {
                Ok(length) => drop(self.outbox.drain(..length)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // Nobody reads from a broken socket any more, but it may still contain requests from before the break.
                Err(_) => self.outbox.clear(),
            }
        }
    }
}
