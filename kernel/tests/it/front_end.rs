//! A front end that shares no code with the kernel that it tests.

use std::net::TcpListener;
use std::process::{Child, Command};
use std::time::Duration;

use hmac::{Hmac, KeyInit, Mac};
use serde_json::{Value, json};
use sha2::Sha256;
use tempfile::TempDir;
use tokio::time::timeout;
use zeromq::prelude::*;
use zeromq::{DealerSocket, ZmqMessage};

const KEY: &str = "the key";
const PATIENCE: Duration = Duration::from_secs(60);

/// The command `ferrotune kernel`.
pub(crate) fn program() -> Command {
    let mut program = Command::new(env!("CARGO_BIN_EXE_ferrotune"));
    program.arg("kernel");
    program
}

/// The transport of the sockets in a connection file.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transport {
    Tcp,
    Ipc,
}

/// A started kernel and its shell socket. The kernel is killed when this value is dropped.
pub(crate) struct FrontEnd {
    kernel: Child,
    shell: DealerSocket,
    sent: u32,
    folder: TempDir,
}

impl FrontEnd {
    pub(crate) async fn start(transport: Transport) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (name, ip, ports) = match transport {
            Transport::Tcp => ("tcp", "127.0.0.1".to_owned(), free_ports()),
            Transport::Ipc => ("ipc", folder.path().join("s").to_str().unwrap().to_owned(), [1, 2, 3, 4, 5]),
        };
        let [shell_port, iopub_port, stdin_port, control_port, hb_port] = ports;
        let connection = json!({
            "transport": name, "ip": ip, "key": KEY, "signature_scheme": "hmac-sha256", "shell_port": shell_port,
            "iopub_port": iopub_port, "stdin_port": stdin_port, "control_port": control_port, "hb_port": hb_port,
        });
        let file = folder.path().join("connection.json");
        std::fs::write(&file, connection.to_string()).unwrap();
        // Separates the tests from the user's history and prelude.
        let mut program = program();
        program.env("XDG_DATA_HOME", folder.path()).env("XDG_CACHE_HOME", folder.path().join("cache"));
        // A test that runs in a notebook would inherit the variable of that notebook's front end.
        program.env_remove("JPY_PARENT_PID");
        let kernel = program.arg("--connection-file").arg(file).spawn().unwrap();
        let separator = if transport == Transport::Tcp { ':' } else { '-' };
        let url = format!("{name}://{ip}{separator}{shell_port}");
        let mut front_end = Self { kernel, shell: DealerSocket::new(), sent: 0, folder };
        let deadline = tokio::time::Instant::now() + PATIENCE;
        while let Err(error) = front_end.shell.connect(&url).await {
            assert!(tokio::time::Instant::now() < deadline, "kernel does not listen on {url}: {error}");
            assert!(front_end.kernel.try_wait().unwrap().is_none(), "kernel ended before it listened");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        front_end
    }

    /// Sends a request and returns the content of the next message, which must be its reply.
    pub(crate) async fn ask(&mut self, msg_type: &str, content: Value) -> Value {
        let header = self.send_signed_by(KEY, msg_type, content).await;
        let message = timeout(PATIENCE, self.shell.recv()).await.expect("reply").unwrap();
        let [delimiter, signature, parts @ ..] = &message.into_vec()[..] else { panic!("reply is too short") };
        assert_eq!(&delimiter[..], b"<IDS|MSG>");
        assert_eq!(&signature[..], sign(KEY, parts).as_bytes());
        let [reply_header, parent, _, content] = parts else { panic!("reply has {} parts", parts.len()) };
        let reply_header: Value = serde_json::from_slice(reply_header).unwrap();
        assert_eq!(reply_header["msg_type"], msg_type.replace("_request", "_reply"));
        assert_eq!(serde_json::from_slice::<Value>(parent).unwrap(), header);
        serde_json::from_slice(content).unwrap()
    }

    /// Sends a request that this kernel should not trust unless `key` is its own; returns the header.
    pub(crate) async fn send_signed_by(&mut self, key: &str, msg_type: &str, content: Value) -> Value {
        self.sent += 1;
        let header = json!({
            "msg_id": self.sent.to_string(), "session": "it", "username": "it", "date": "2026-01-01T00:00:00Z",
            "msg_type": msg_type, "version": "5.3", "kept": {"as": [1.5, null]},
        });
        let parts = [header.to_string(), "{}".into(), "{}".into(), content.to_string()];
        let signature = sign(key, &parts);
        let frames = [b"<IDS|MSG>", signature.as_bytes()].into_iter().chain(parts.iter().map(|part| part.as_bytes()));
        self.send_frames(&frames.collect::<Vec<_>>()).await;
        header
    }

    pub(crate) async fn send_frames(&mut self, frames: &[&[u8]]) {
        let mut message = ZmqMessage::from(frames[0].to_vec());
        frames[1..].iter().for_each(|frame| message.push_back(frame.to_vec().into()));
        self.shell.send(message).await.unwrap();
    }

    /// Waits for the end of the kernel, and returns its exit code.
    pub(crate) async fn exit_code(&mut self) -> Option<i32> {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.kernel.try_wait().unwrap() {
                return status.code();
            }
            assert!(tokio::time::Instant::now() < deadline, "kernel of {} does not end", self.folder.path().display());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

impl Drop for FrontEnd {
    fn drop(&mut self) {
        // Most tests have already ended the kernel.
        drop(self.kernel.kill());
        drop(self.kernel.wait());
    }
}

fn sign<P: AsRef<[u8]>>(key: &str, parts: &[P]) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(key.as_bytes()).unwrap();
    parts.iter().for_each(|part| mac.update(part.as_ref()));
    mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Ports that were free a moment ago. Jupyter chooses the ports of its kernels in the same way.
fn free_ports() -> [u16; 5] {
    let listeners = [(); 5].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    listeners.map(|listener| listener.local_addr().unwrap().port())
}
