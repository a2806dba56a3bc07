//! The common beginning of all connections between workers: an address to listen at, a call, and messages of one JSON value.

use super::{Cluster, StrategyError};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs as _};
use std::time::Duration;

/// The time that a host has to accept a connection, and its peer to send a message.
pub(super) const CALL_TIME: Duration = Duration::from_secs(2);
/// The time between attempts to connect.
pub(super) const PAUSE: Duration = Duration::from_millis(50);
/// The longest message, in bytes.
const LONGEST_MESSAGE: u32 = 1 << 20;

/// Listens at this worker's own address.
pub(super) fn listen(cluster: &Cluster) -> Result<TcpListener, StrategyError> {
    let address = &cluster.workers()[cluster.index()];
    let listener = TcpListener::bind(address).map_err(|error| cannot_listen(cluster, &error))?;
    if is_hidden(address, &listener) {
        let reason =
            "this host's name leads to its loopback address, which others cannot reach; give its network address";
        return Err(cannot_listen(cluster, &io::Error::other(reason)));
    }
    Ok(listener)
}

pub(super) fn cannot_listen(cluster: &Cluster, error: &io::Error) -> StrategyError {
    let worker = cluster.index();
    StrategyError::Listen { worker, address: cluster.address(worker), reason: error.to_string() }
}

/// Whether a worker that is identified by its host name listens only on the loopback network: on many systems their own name
/// resolves to 127.0.1.1.
fn is_hidden(address: &str, listener: &TcpListener) -> bool {
    let is_intended = address.parse::<SocketAddr>().is_ok() || address.starts_with("localhost:");
    !is_intended && listener.local_addr().is_ok_and(|at| at.ip().is_loopback())
}

/// The difference between a worker that should be `worker` and what this worker expects: in its version, in its list of workers, or
/// in its index.
pub(super) fn difference(
    is_same_version: bool,
    own: &[String],
    (other, index): (&[String], usize),
    worker: usize,
) -> Option<String> {
    if !is_same_version {
        Some("it runs another version of ferrotune".to_owned())
    } else if other != own {
        Some(format!("it knows the workers {other:?}"))
    } else if index != worker {
        Some(format!("it is worker {index}"))
    } else {
        None
    }
}

/// Connects to the first host of an address that answers.
pub(super) fn connect(address: &str) -> io::Result<TcpStream> {
    let mut refused = io::Error::new(ErrorKind::NotFound, "its name is unknown");
    for host in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&host, CALL_TIME) {
            Ok(stream) => return Ok(stream),
            Err(error) => refused = error,
        }
    }
    Err(refused)
}

pub(super) fn send(stream: &mut TcpStream, message: &impl Serialize) -> io::Result<()> {
    let text = serde_json::to_vec(message)?;
    stream.set_write_timeout(Some(CALL_TIME))?;
    stream.write_all(&(text.len() as u32).to_le_bytes())?;
    stream.write_all(&text)
}

pub(super) fn receive<T: DeserializeOwned>(stream: &mut TcpStream, limit: Duration) -> io::Result<T> {
    stream.set_read_timeout(Some(limit))?;
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length);
    if length > LONGEST_MESSAGE {
        return Err(io::Error::new(ErrorKind::InvalidData, "it is not a worker"));
    }
    let mut text = vec![0; length as usize];
    stream.read_exact(&mut text)?;
    serde_json::from_slice(&text).map_err(Into::into)
}
