//! The connection file and the five sockets that it names, over tcp and ipc. This module knows no messages; it also answers
//! the heartbeat, by an echo of every frame.

use std::fs;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use jupyter_protocol::Transport;
use tokio::sync::oneshot;
use zeromq::{PubSocket, RouterSocket, Socket, SocketRecv, SocketSend, ZmqError};

pub(crate) use jupyter_protocol::ConnectionInfo;

/// The reason why the kernel cannot listen at the addresses of its connection file.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectionError {
    #[error("connection file {} cannot be read: {source}", path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("connection file {} is not one: {source}; let the Jupyter client write it", path.display())]
    Malformed { path: PathBuf, source: serde_json::Error },
    #[error("signature scheme `{scheme}` of the connection file is not known; use `hmac-sha256`")]
    SignatureScheme { scheme: String },
    #[error("{channel} socket cannot listen on {url}: {source}; is another kernel using this connection file?")]
    Bind { channel: &'static str, url: String, source: ZmqError },
    #[error("ipc socket {} is in use; another kernel holds this connection file", path.display())]
    InUse { path: PathBuf },
    #[error("ipc socket {} is left over and cannot be removed: {source}", path.display())]
    Stale { path: PathBuf, source: io::Error },
    #[error("heartbeat thread cannot be started: {source}")]
    Heartbeat { source: io::Error },
}

/// The listening sockets. The heartbeat has a thread of its own, which ends with the process.
pub(crate) struct Sockets {
    pub(crate) shell: RouterSocket,
    pub(crate) control: RouterSocket,
    pub(crate) stdin: RouterSocket,
    pub(crate) iopub: PubSocket,
}

/// Reads a connection file.
///
/// Fails if it cannot be read, is not a connection file, or demands signatures other than HMAC-SHA256.
pub(crate) fn read(path: &Path) -> Result<ConnectionInfo, ConnectionError> {
    let text = fs::read(path).map_err(|source| ConnectionError::Unreadable { path: path.to_owned(), source })?;
    let connection: ConnectionInfo =
        serde_json::from_slice(&text).map_err(|source| ConnectionError::Malformed { path: path.to_owned(), source })?;
    if !connection.key.is_empty() && connection.signature_scheme != "hmac-sha256" {
        return Err(ConnectionError::SignatureScheme { scheme: connection.signature_scheme });
    }
    Ok(connection)
}

/// Listens on all five sockets, and starts to answer heartbeats.
pub(crate) async fn bind(connection: &ConnectionInfo) -> Result<Sockets, ConnectionError> {
    let sockets = Sockets {
        shell: listen("shell", endpoint(connection, connection.shell_port)?).await?,
        control: listen("control", endpoint(connection, connection.control_port)?).await?,
        stdin: listen("stdin", endpoint(connection, connection.stdin_port)?).await?,
        iopub: listen("iopub", endpoint(connection, connection.iopub_port)?).await?,
    };
    start_heartbeat(endpoint(connection, connection.hb_port)?).await?;
    Ok(sockets)
}

async fn listen<S: Socket>(channel: &'static str, url: String) -> Result<S, ConnectionError> {
    let mut socket = S::new();
    match socket.bind(&url).await {
        Ok(_) => Ok(socket),
        Err(source) => Err(ConnectionError::Bind { channel, url, source }),
    }
}

/// The address of one socket. Removes the socket file of a killed kernel.
fn endpoint(connection: &ConnectionInfo, port: u16) -> Result<String, ConnectionError> {
    let ip = connection.ip.as_str();
    match connection.transport {
        Transport::TCP if ip == "*" => Ok(format!("tcp://0.0.0.0:{port}")),
        Transport::TCP if ip.contains(':') && !ip.starts_with('[') => Ok(format!("tcp://[{ip}]:{port}")),
        Transport::TCP => Ok(format!("tcp://{ip}:{port}")),
        Transport::IPC => {
            let path = PathBuf::from(format!("{ip}-{port}"));
            remove_stale(&path)?;
            Ok(format!("ipc://{}", path.display()))
        }
    }
}

fn remove_stale(path: &Path) -> Result<(), ConnectionError> {
    match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.file_type().is_socket() => {
            if UnixStream::connect(path).is_ok() {
                return Err(ConnectionError::InUse { path: path.to_owned() });
            }
            fs::remove_file(path).map_err(|source| ConnectionError::Stale { path: path.to_owned(), source })
        }
        // A file that is no socket belongs to another program. To listen there fails with an error.
        _ => Ok(()),
    }
}

/// Starts the heartbeat on its own thread and runtime, because clients declare a kernel dead that misses heartbeats.
async fn start_heartbeat(url: String) -> Result<(), ConnectionError> {
    let (bound, is_bound) = oneshot::channel();
    std::thread::Builder::new()
        .name("heartbeat".into())
        .spawn(move || {
            let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
                Ok(runtime) => runtime,
                Err(source) => return report(bound, Err(ConnectionError::Heartbeat { source })),
            };
            runtime.block_on(async {
                // A ROUTER echoes the envelope, too, so it serves REQ clients. A REP socket would stop at the first
                // malformed request.
                match listen::<RouterSocket>("heartbeat", url).await {
                    Ok(socket) => {
                        report(bound, Ok(()));
                        echo(socket).await;
                    }
                    Err(error) => report(bound, Err(error)),
                }
            });
        })
        .map_err(|source| ConnectionError::Heartbeat { source })?;
    let ended = |_| ConnectionError::Heartbeat { source: io::Error::other("it ended before it listened") };
    is_bound.await.map_err(ended)?
}

fn report(bound: oneshot::Sender<Result<(), ConnectionError>>, result: Result<(), ConnectionError>) {
    if bound.send(result).is_err() {
        tracing::debug!("the kernel ended while its heartbeat started");
    }
}

async fn echo(mut socket: RouterSocket) {
    loop {
        match socket.recv().await {
            Ok(message) => {
                if let Err(error) = socket.send(message).await {
                    tracing::debug!(%error, "cannot answer a heartbeat: its client has gone");
                }
            }
            Err(error) => {
                tracing::warn!(%error, "heartbeat socket gave an error");
                tokio::task::yield_now().await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    fn connection(text: &str) -> Result<ConnectionInfo, ConnectionError> {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), text).unwrap();
        read(file.path())
    }

    const TCP: &str = r#"{"ip":"127.0.0.1","transport":"tcp","shell_port":1,"iopub_port":2,"stdin_port":3,
        "control_port":4,"hb_port":5,"key":"k","signature_scheme":"hmac-sha256","kernel_name":"ferrotune","new":1}"#;

    #[test]
    fn connection_file_is_read_with_fields_that_are_not_known() {
        let connection = connection(TCP).unwrap();
        assert_eq!((connection.shell_port, connection.hb_port), (1, 5));
        assert_eq!(endpoint(&connection, 7).unwrap(), "tcp://127.0.0.1:7");
    }

    #[test]
    fn connection_file_that_cannot_be_used_says_why() {
        let error = read(Path::new("/nowhere/kernel.json")).unwrap_err().to_string();
        assert!(error.starts_with("connection file /nowhere/kernel.json cannot be read"), "{error}");
        assert!(matches!(connection("{}"), Err(ConnectionError::Malformed { .. })));
        assert!(matches!(connection(""), Err(ConnectionError::Malformed { .. })));
        let error = connection(&TCP.replace("hmac-sha256", "hmac-md5")).unwrap_err().to_string();
        assert!(error.contains("`hmac-md5`"), "{error}");
    }

    #[test]
    fn wildcard_and_ipv6_addresses_become_endpoints() {
        let any = connection(&TCP.replace("127.0.0.1", "*")).unwrap();
        assert_eq!(endpoint(&any, 7).unwrap(), "tcp://0.0.0.0:7");
        let v6 = connection(&TCP.replace("127.0.0.1", "::1")).unwrap();
        assert_eq!(endpoint(&v6, 7).unwrap(), "tcp://[::1]:7");
    }

    #[test]
    fn only_an_ipc_socket_that_no_one_holds_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kernel-ipc");
        let ipc = TCP.replace("\"tcp\"", "\"ipc\"").replace("127.0.0.1", path.to_str().unwrap());
        let ipc = connection(&ipc).unwrap();

        let held = folder.path().join("kernel-ipc-1");
        let listener = UnixListener::bind(&held).unwrap();
        assert!(matches!(endpoint(&ipc, 1), Err(ConnectionError::InUse { .. })));
        drop(listener);
        assert!(held.exists());
        assert_eq!(endpoint(&ipc, 1).unwrap(), format!("ipc://{}", held.display()));
        assert!(!held.exists());

        let file = folder.path().join("kernel-ipc-2");
        fs::write(&file, "a user's file").unwrap();
        endpoint(&ipc, 2).unwrap();
        assert!(file.exists());
    }
}
