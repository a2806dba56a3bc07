//! The connection of a cell process to its supervisor. It is opened when the cell sends its first frame.

use crate::wire;
use crate::{Answer, KernelFrame};
use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError, TryLockError};

/// Environment variable with the path of the supervisor's socket.
pub const LINK_VARIABLE: &str = "FERROTUNE_LINK";

/// A connection, with the id of the process that opened it. A fork of that process must not use the connection.
type Connection = Mutex<Option<(u32, UnixStream)>>;

/// The connections of this process; the one in use has the index [`CURRENT`]. There are several because, in a restored snapshot, a
/// thread that was not copied may still hold the lock of the connection in use.
static CONNECTIONS: [Connection; 16] = [const { Mutex::new(None) }; 16];
static CURRENT: AtomicUsize = AtomicUsize::new(0);

fn current() -> &'static Connection {
    &CONNECTIONS[CURRENT.load(Ordering::Relaxed) % CONNECTIONS.len()]
}

/// Sends a frame and waits for its answer, so that outputs keep their order.
///
/// # Errors
/// [`io::ErrorKind::NotConnected`] where no kernel listens (a plain program, a trial); else an error of the socket.
pub fn send(frame: &KernelFrame) -> io::Result<Answer> {
    // The supervisor can only pass on output that has left this process' buffer.
    io::stdout().flush()?;
    let mut connection = current().lock().unwrap_or_else(PoisonError::into_inner);
    let own = std::process::id();
    if connection.as_ref().is_none_or(|(pid, _)| *pid != own) {
        *connection = Some((own, connect()?));
    }
    let (_, stream) = connection.as_mut().ok_or(io::ErrorKind::NotConnected)?;
    let answer = wire::write(stream, frame).and_then(|()| wire::read(stream));
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

/// Closes the connection, and returns whether there was one; the next frame opens another connection. A restored snapshot calls this,
/// since the process that it was copied from may have died in the middle of a frame.
pub fn forget() -> bool {
    let mut was_open = false;
    for _ in 0..CONNECTIONS.len() {
        match current().try_lock() {
            Ok(mut connection) => return connection.take().is_some() || was_open,
            Err(TryLockError::Poisoned(poisoned)) => return poisoned.into_inner().take().is_some() || was_open,
            Err(TryLockError::WouldBlock) => {
                was_open = true;
                CURRENT.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
    was_open
}

fn connect() -> io::Result<UnixStream> {
    let path = std::env::var_os(LINK_VARIABLE).ok_or(io::ErrorKind::NotConnected)?;
    UnixStream::connect(path)
}
