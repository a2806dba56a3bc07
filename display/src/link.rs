//! The cell process' end of the link: one connection to its supervisor, opened when it is first needed.

use crate::frame::{self, Answer, Frame};
use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError, TryLockError};

/// Environment variable with the path of the supervisor's socket.
pub const LINK_VARIABLE: &str = "FERROTUNE_LINK";

/// A connection, and the process that opened it: one that this process forks must not speak on it.
type Connection = Mutex<Option<(u32, UnixStream)>>;

/// The connection is the one at [`CURRENT`]. There are several since a process that is a copy of another one may find
/// the lock of the present one held for ever, by a thread that did not come along.
static CONNECTIONS: [Connection; 16] = [const { Mutex::new(None) }; 16];
static CURRENT: AtomicUsize = AtomicUsize::new(0);

fn current() -> &'static Connection {
    &CONNECTIONS[CURRENT.load(Ordering::Relaxed) % CONNECTIONS.len()]
}

/// Sends a frame and waits until it has been passed on, so that outputs keep their order.
///
/// # Errors
/// [`io::ErrorKind::NotConnected`] where no kernel listens (a plain program, a trial); else those of the socket.
pub fn send(frame: &Frame) -> io::Result<Answer> {
    // The kernel shows what was printed before this frame first, if it can see it.
    io::stdout().flush()?;
    let mut connection = current().lock().unwrap_or_else(PoisonError::into_inner);
    let own = std::process::id();
    if connection.as_ref().is_none_or(|(pid, _)| *pid != own) {
        *connection = Some((own, connect()?));
    }
    let (_, stream) = connection.as_mut().ok_or(io::ErrorKind::NotConnected)?;
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
    for _ in 0..CONNECTIONS.len() {
        match current().try_lock() {
            Ok(mut connection) => return *connection = None,
            Err(TryLockError::Poisoned(poisoned)) => return *poisoned.into_inner() = None,
            Err(TryLockError::WouldBlock) => CURRENT.fetch_add(1, Ordering::Relaxed),
        };
    }
}

fn connect() -> io::Result<UnixStream> {
    let path = std::env::var_os(LINK_VARIABLE).ok_or(io::ErrorKind::NotConnected)?;
    UnixStream::connect(path)
}
