//! A client over real ZeroMQ sockets, and an engine that plays a script.

use std::sync::mpsc as work;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use zeromq::prelude::*;
use zeromq::util::PeerIdentity;
use zeromq::{DealerSocket, SocketOptions, SubSocket, ZmqMessage};

use crate::execution::{Cell, Output, Stream, Work};
use crate::server::cell_history::CellHistory;
use crate::server::connection::ConnectionInfo;
use crate::server::wire::{Codec, Parent};
use crate::server::{EngineHandle, serve_with};

pub(super) const PATIENCE: Duration = Duration::from_secs(20);

pub(super) type Outputs = UnboundedSender<Output>;

/// An engine whose thread runs `script` for each cell.
pub(super) fn engine(script: impl Fn(&Cell, Outputs) + Send + 'static) -> EngineHandle {
    let (work, queue) = work::channel();
    std::thread::spawn(move || {
        for work in queue {
            let Work::Execute { cell, outputs } = work;
            script(&cell, outputs);
        }
    });
    EngineHandle { work, ask: Box::new(drop), interrupt: Box::new(|_| false), end: Box::new(|| ()) }
}

pub(super) struct Message {
    pub(super) msg_type: String,
    pub(super) parent: Value,
    pub(super) content: Value,
}

pub(super) struct Client {
    codec: Codec,
    shell: DealerSocket,
    control: DealerSocket,
    stdin: DealerSocket,
    iopub: SubSocket,
    pub(super) server: JoinHandle<anyhow::Result<()>>,
    _folder: TempDir,
}

impl Client {
    pub(super) async fn start(start_engine: impl FnOnce() -> EngineHandle + Send + 'static) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let ip = folder.path().join("s").to_str().unwrap().to_owned();
        let connection: ConnectionInfo = serde_json::from_value(json!({
            "ip": ip, "transport": "ipc", "key": "secret", "signature_scheme": "hmac-sha256",
            "shell_port": 1, "control_port": 2, "stdin_port": 3, "iopub_port": 4, "hb_port": 5,
        }))
        .unwrap();
        let history = CellHistory::open(None).unwrap();
        let server = tokio::spawn(serve_with(connection, history, start_engine));
        let identity = || {
            let mut options = SocketOptions::default();
            options.peer_identity(PeerIdentity::try_from(b"client".as_slice()).unwrap());
            options
        };
        let mut client = Self {
            codec: Codec::new("secret"),
            shell: DealerSocket::with_options(identity()),
            control: DealerSocket::with_options(identity()),
            stdin: DealerSocket::with_options(identity()),
            iopub: SubSocket::new(),
            server,
            _folder: folder,
        };
        let url = |port: u32| format!("ipc://{ip}-{port}");
        client.shell.connect(&url(1)).await.unwrap();
        client.control.connect(&url(2)).await.unwrap();
        client.stdin.connect(&url(3)).await.unwrap();
        client.iopub.subscribe("").await.unwrap();
        client.iopub.connect(&url(4)).await.unwrap();
        client.wait_for_subscription().await;
        client
    }

    /// PUB does not announce subscriptions, so this sends requests until one of their statuses arrives.
    async fn wait_for_subscription(&mut self) {
        let heard = loop {
            self.send("kernel_info_request", json!({})).await;
            self.reply().await;
            if let Ok(message) = timeout(Duration::from_millis(50), self.iopub.recv()).await {
                break read(&self.codec, &message.unwrap());
            }
        };
        let mut last = heard;
        let asked = self.send("kernel_info_request", json!({})).await;
        self.reply().await;
        while last.parent != asked || last.content["execution_state"] != "idle" {
            last = self.published().await;
        }
    }

    pub(super) async fn send(&mut self, msg_type: &str, content: Value) -> Value {
        self.send_with_metadata(msg_type, json!({}), content).await
    }

    pub(super) async fn send_with_metadata(&mut self, msg_type: &str, metadata: Value, content: Value) -> Value {
        let message = self.codec.encode(&[], msg_type, &Parent::none(), &metadata, &content);
        let header = serde_json::from_slice(message.get(2).unwrap()).unwrap();
        self.shell.send(message).await.unwrap();
        header
    }

    pub(super) async fn execute(&mut self, code: &str) -> Value {
        self.send("execute_request", json!({"code": code, "allow_stdin": true})).await
    }

    pub(super) async fn reply(&mut self) -> Message {
        read(&self.codec, &timeout(PATIENCE, self.shell.recv()).await.unwrap().unwrap())
    }

    pub(super) async fn published(&mut self) -> Message {
        read(&self.codec, &timeout(PATIENCE, self.iopub.recv()).await.unwrap().unwrap())
    }

    /// The next message on the stdin socket.
    pub(super) async fn question(&mut self) -> Message {
        read(&self.codec, &timeout(PATIENCE, self.stdin.recv()).await.unwrap().unwrap())
    }

    pub(super) async fn answer_question(&mut self, line: &str) {
        let content = json!({"value": line});
        let answer = self.codec.encode(&[], "input_reply", &Parent::none(), &json!({}), &content);
        self.stdin.send(answer).await.unwrap();
    }

    /// Sends a request on the control socket and returns its reply.
    pub(super) async fn control(&mut self, msg_type: &str, content: Value) -> Message {
        let request = self.codec.encode(&[], msg_type, &Parent::none(), &json!({}), &content);
        self.control.send(request).await.unwrap();
        read(&self.codec, &timeout(PATIENCE, self.control.recv()).await.unwrap().unwrap())
    }

    /// Everything that is published from `busy` to `idle` of one request. Any other message fails the test.
    pub(super) async fn conversation(&mut self, parent: &Value) -> Vec<(String, Value)> {
        let mut messages = Vec::new();
        loop {
            let Message { msg_type, parent: other, content } = self.published().await;
            assert_eq!(&other, parent, "{msg_type} of another request: {content}");
            messages.push((msg_type, content));
            if messages.last().unwrap().1["execution_state"] == "idle" {
                let busy = messages.remove(0);
                assert_eq!(busy, ("status".into(), json!({"execution_state": "busy"})));
                messages.pop();
                return messages;
            }
        }
    }
}

pub(super) fn read(codec: &Codec, message: &ZmqMessage) -> Message {
    let frames: Vec<_> = message.iter().cloned().collect();
    let request = codec.decode(&frames).unwrap();
    let delimiter = frames.iter().position(|frame| &frame[..] == b"<IDS|MSG>").unwrap();
    Message {
        msg_type: request.msg_type,
        parent: serde_json::from_slice(&frames[delimiter + 3]).unwrap(),
        content: Value::Object(request.content.unwrap()),
    }
}

pub(super) fn text(stream: Stream, text: &str) -> Output {
    Output::Stream(stream, text.into())
}

pub(super) fn display(number: u32, id: Option<&str>, update: bool) -> Output {
    let data = json!({"text/plain": number.to_string()}).as_object().cloned().unwrap();
    Output::Display { data, metadata: serde_json::Map::new(), display_id: id.map(str::to_owned), update }
}

pub(super) fn result(value: &str) -> Output {
    let data = json!({"text/plain": value}).as_object().cloned().unwrap();
    Output::Result { data, metadata: serde_json::Map::new() }
}

pub(super) fn play(outputs: &Outputs, script: impl IntoIterator<Item = Output>) {
    for output in script {
        // A test may end, and its server with it, before its script does.
        drop(outputs.send(output));
    }
}
