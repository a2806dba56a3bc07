//! The cell process' end of the link: one connection to its supervisor, opened when it is first needed.

use crate::frame::{self, Answer, Frame};
use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, PoisonError};

/// Environment variable with the path of the supervisor's socket.
pub const LINK_VARIABLE: &str = "FERROTUNE_LINK";

static CONNECTION: Mutex<Option<UnixStream>> = Mutex::new(None);

/// Sends a frame and waits until it has been passed on, so that outputs keep their order.
///
/// # Errors
/// [`io::ErrorKind::NotConnected`] where no kernel listens (a plain program, a trial); else those of the socket.
pub fn send(frame: &Frame) -> io::Result<Answer> {
    // The kernel shows what was printed before this frame first, if it can see it.
    io::stdout().flush()?;
    let mut connection = CONNECTION.lock().unwrap_or_else(PoisonError::into_inner);
    if connection.is_none() {
        *connection = Some(connect()?);
    }
    let stream = connection.as_mut().ok_or(io::ErrorKind::NotConnected)?;
    let answer = frame::write(stream, frame).and_then(|()| frame::read(stream));
    match answer {
        Ok(Some(answer)) => Ok(answer),
        Ok(None) => {
            *connection = None;
            Err(io::ErrorKind::UnexpectedEof.into())
        }
        Err(error) => {
            *connection = None;
            Err(error)
        }
    }
}

/// Gives up the connection; the next frame opens another. For a process that has taken the place of one that died,
/// perhaps in the middle of a frame.
pub fn forget() {
    *CONNECTION.lock().unwrap_or_else(PoisonError::into_inner) = None;
}

fn connect() -> io::Result<UnixStream> {
    let path = std::env::var_os(LINK_VARIABLE).ok_or(io::ErrorKind::NotConnected)?;
    UnixStream::connect(path)
}
