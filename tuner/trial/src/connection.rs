//! What a trial asks and tells: over a socket that was the worker's standard input, or in the same process.

use crate::error::TrialError;
use ferrotune_tuner::wire::{Assignment, Reply, Request};
use std::fmt::Debug;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;

/// Where a trial's requests are answered.
pub trait Desk: Debug {
    /// Answers one request. Fails where there is nobody to answer any more.
    fn exchange(&mut self, request: &Request) -> io::Result<Reply>;
}

impl dyn Desk {
    /// Introduces the trial, and hears what it is to run.
    pub(crate) fn hello(&mut self) -> Result<Assignment, TrialError> {
        match self.ask(&Request::Hello)? {
            Reply::Assignment(assignment) => Ok(assignment),
            reply => Err(unexpected(&reply)),
        }
    }

    /// Asks and waits for the answer; a refusal is an error.
    pub(crate) fn ask(&mut self, request: &Request) -> Result<Reply, TrialError> {
        match self.exchange(request).map_err(|source| TrialError::Connection { source })? {
            Reply::Refused { reason } => Err(TrialError::Refused { reason }),
            reply => Ok(reply),
        }
    }

    /// Tells something that has no answer but "recorded".
    pub(crate) fn tell(&mut self, request: &Request) -> Result<(), TrialError> {
        match self.ask(request)? {
            Reply::Done => Ok(()),
            reply => Err(unexpected(&reply)),
        }
    }
}

/// A connection to the supervisor's process.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: BufReader<UnixStream>,
}

impl Connection {
    /// Takes the socket from standard input, which then reads as empty: an objective that reads its input, or a
    /// program that it starts, must not take the supervisor's replies.
    pub(crate) fn from_stdin() -> Result<Connection, TrialError> {
        let take = || {
            let stream = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
            // Fails where standard input is no socket.
            stream.peer_addr()?;
            rustix::stdio::dup2_stdin(File::open("/dev/null")?)?;
            Ok(Connection::over(stream))
        };
        take().map_err(|source| TrialError::Connection { source })
    }

    pub(crate) fn over(stream: UnixStream) -> Connection {
        Connection { stream: BufReader::new(stream) }
    }
}

impl Desk for Connection {
    fn exchange(&mut self, request: &Request) -> io::Result<Reply> {
        let mut line = serde_json::to_vec(request)?;
        line.push(b'\n');
        self.stream.get_mut().write_all(&line)?;
        let mut reply = String::new();
        if self.stream.read_line(&mut reply)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(serde_json::from_str(&reply)?)
    }
}

/// The error for a reply to another question.
pub(crate) fn unexpected(reply: &Reply) -> TrialError {
    TrialError::Answer { answer: format!("{reply:?}") }
}
