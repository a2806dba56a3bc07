//! The trial's requests to its supervisor: over the socket that is the worker's standard input, or in the same process.

use crate::error::TrialError;
use ferrotune_space::wire::{Assignment, Reply, Request};
use std::fmt::Debug;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;

/// Sends a trial's requests to its supervisor.
pub trait SupervisorClient: Debug {
    /// Returns the reply to one request. Fails if the supervisor is gone.
    fn exchange(&mut self, request: &Request) -> io::Result<Reply>;
}

impl dyn SupervisorClient {
    /// Introduces the trial, and returns its assignment.
    pub(crate) fn hello(&mut self) -> Result<Assignment, TrialError> {
        match self.ask(&Request::Hello)? {
            Reply::Assignment(assignment) => Ok(assignment),
            reply => Err(unexpected(&reply)),
        }
    }

    /// Sends a request and waits for the reply; a refusal is an error.
    pub(crate) fn ask(&mut self, request: &Request) -> Result<Reply, TrialError> {
        match self.exchange(request).map_err(|source| TrialError::Connection { source })? {
            Reply::Refused { reason } => Err(TrialError::Refused { reason }),
            reply => Ok(reply),
        }
    }

    /// Sends a request whose only reply is `Done`.
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
            // Fails if standard input is not a socket.
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

impl SupervisorClient for Connection {
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

/// The error for a reply of a kind that does not answer the request.
pub(crate) fn unexpected(reply: &Reply) -> TrialError {
    TrialError::Answer { answer: format!("{reply:?}") }
}
