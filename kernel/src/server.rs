//! The Jupyter side of the kernel: takes requests and sends replies and outputs. Nothing is compiled or run here; cells
//! go to the engine's thread as [`Work`].
//!
//! Every request on shell and control is answered between its own `busy` and `idle` status. Cells run one after the
//! other; all other requests are answered while a cell runs.

use std::path::Path;
use std::sync::{Arc, mpsc as work};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;
use zeromq::{PubSocket, RouterRecvHalf, RouterSendHalf, SocketRecv, SocketSend, ZmqMessage};

use crate::execution::Work;
use crate::failure::ErrorName;
use cell_history::CellHistory;
use connection::ConnectionInfo;
use wire::{Codec, Parent, Request};

mod cell_history;
mod code;
mod connection;
mod execute;
mod lifecycle;
mod requests;
mod screen;
mod stdin;
mod wire;

/// PUB and ROUTER sockets send from a queue, which the end of the process would discard.
const DRAIN: Duration = Duration::from_millis(100);
/// Jupyter kills a kernel 5 s after its shutdown request.
const ENGINE_SHUTDOWN: Duration = Duration::from_secs(2);

/// The thread that runs cells.
pub(crate) struct Engine {
    pub(crate) work: work::Sender<Work>,
    /// Stops the running cell or search. Called on another thread.
    pub(crate) interrupt: Box<dyn Fn() + Send + Sync>,
}

/// Serves the connection of a file until a shutdown request, SIGTERM, or the end of the front end's process.
///
/// The sockets listen, and requests such as `kernel_info_request` are answered, before `start_engine` is called on a
/// thread of its own. Fails if the sockets cannot be bound, or if a task that serves them panics.
pub(crate) async fn serve(
    connection_file: &Path,
    start_engine: impl FnOnce() -> Engine + Send + 'static,
) -> anyhow::Result<()> {
    let connection = connection::read(connection_file)?;
    serve_with(connection, CellHistory::of_user()?, start_engine).await
}

async fn serve_with(
    connection: ConnectionInfo,
    history: CellHistory,
    start_engine: impl FnOnce() -> Engine + Send + 'static,
) -> anyhow::Result<()> {
    let sockets = connection::bind(&connection).await?;
    let codec = Arc::new(Codec::new(&connection.key));
    let mut tasks = JoinSet::new();

    let (to_iopub, published) = mpsc::unbounded_channel();
    tasks.spawn(send_published(sockets.iopub, published));
    let iopub = Iopub { codec: codec.clone(), sender: to_iopub };
    let (stdin, stdin_tasks) = stdin::channel(codec.clone());
    tasks.spawn(stdin_tasks.run(sockets.stdin));
    let (engine_ready, engine) = watch::channel(None);
    let (executions, queue) = mpsc::unbounded_channel();
    let (stop, mut stopped) = mpsc::unbounded_channel();
    let interrupts = Notify::new();
    let kernel = Arc::new(Kernel { codec, iopub, stdin, history, connection, engine, interrupts, executions, stop });

    kernel.iopub.publish(&Parent::none(), "status", json!({"execution_state": "starting"}));
    tasks.spawn(execute::in_order(kernel.clone(), queue));
    for socket in [sockets.shell, sockets.control] {
        let (replies, requests) = socket.split();
        tasks.spawn(receive(kernel.clone(), replies, requests));
    }
    tasks.spawn(lifecycle::watch(kernel.clone()));
    std::thread::Builder::new().name("engine-start".into()).spawn(move || {
        engine_ready.send_replace(Some(Arc::new(start_engine())));
    })?;

    let ended = tokio::select! {
        _ = stopped.recv() => None,
        ended = tasks.join_next() => ended,
    };
    kernel.stop_engine().await;
    tokio::time::sleep(DRAIN).await;
    match ended {
        Some(result) => Err(anyhow::anyhow!("a task that serves a socket has ended: {result:?}")),
        None => Ok(()),
    }
}

/// Shared by all tasks, which change its state through channels only.
struct Kernel {
    codec: Arc<Codec>,
    iopub: Iopub,
    stdin: stdin::Stdin,
    history: CellHistory,
    connection: ConnectionInfo,
    engine: watch::Receiver<Option<Arc<Engine>>>,
    /// Wakes a cell that still waits for the engine.
    interrupts: Notify,
    executions: mpsc::UnboundedSender<Received>,
    stop: mpsc::UnboundedSender<()>,
}

impl Kernel {
    /// Waits until the engine has started; none if its start failed.
    async fn engine(&self) -> Option<Arc<Engine>> {
        let mut engine = self.engine.clone();
        engine.wait_for(Option::is_some).await.ok()?.clone()
    }

    fn interrupt(self: &Arc<Self>) {
        self.interrupts.notify_waiters();
        let engine = self.engine.borrow().clone();
        let kernel = self.clone();
        tokio::task::spawn_blocking(move || {
            if let Some(engine) = engine {
                (engine.interrupt)();
            }
            // After the interrupt, so that a cell that waits for input fails as interrupted.
            kernel.stdin.cancel();
        });
    }

    fn stop(&self) {
        if self.stop.send(()).is_err() {
            tracing::debug!("the kernel is stopping already");
        }
    }

    async fn stop_engine(&self) {
        let Some(engine) = self.engine.borrow().clone() else {
            return;
        };
        let interrupted = tokio::task::spawn_blocking(move || (engine.interrupt)());
        match tokio::time::timeout(ENGINE_SHUTDOWN, interrupted).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::error!(%error, "engine failed to stop"),
            Err(_) => tracing::error!("engine did not stop within {ENGINE_SHUTDOWN:?}; the kernel ends without it"),
        }
    }

    /// Publishes `busy`; `idle` follows when the exchange is dropped.
    fn begin(&self, received: Received) -> Exchange {
        let Received { request, socket } = received;
        let exchange = Exchange { codec: self.codec.clone(), iopub: self.iopub.clone(), request, socket };
        exchange.publish("status", json!({"execution_state": "busy"}));
        exchange
    }
}

/// Sends messages to the task of the IOPub socket.
#[derive(Clone)]
struct Iopub {
    codec: Arc<Codec>,
    sender: mpsc::UnboundedSender<ZmqMessage>,
}

impl Iopub {
    fn publish(&self, parent: &Parent, msg_type: &str, content: Value) {
        let topic = [msg_type.as_bytes().to_vec()];
        let message = self.codec.encode(&topic, msg_type, parent, &json!({}), &content);
        if self.sender.send(message).is_err() {
            tracing::debug!(msg_type, "not published: the kernel is stopping");
        }
    }
}

/// A request and the socket to answer it on.
struct Received {
    request: Request,
    socket: RouterSendHalf,
}

/// A request that is being answered. Dropping it publishes `idle`, on every path.
struct Exchange {
    codec: Arc<Codec>,
    iopub: Iopub,
    request: Request,
    socket: RouterSendHalf,
}

impl Exchange {
    fn publish(&self, msg_type: &str, content: Value) {
        self.iopub.publish(&self.request.parent, msg_type, content);
    }

    async fn reply(&mut self, content: Value) {
        self.reply_with_metadata(json!({}), content).await;
    }

    async fn reply_with_metadata(&mut self, metadata: Value, content: Value) {
        let stem = self.request.msg_type.strip_suffix("_request").unwrap_or(&self.request.msg_type);
        let msg_type = format!("{stem}_reply");
        let Request { identities, parent, .. } = &self.request;
        let message = self.codec.encode(identities, &msg_type, parent, &metadata, &content);
        if let Err(error) = self.socket.send(message).await {
            tracing::debug!(msg_type, %error, "reply not sent: its client has gone");
        }
    }

    /// Replies that the request could not be served.
    async fn refuse(&mut self, name: ErrorName, text: &str) {
        tracing::warn!(msg_type = self.request.msg_type, %name, text, "request refused");
        self.reply(json!({"status": "error", "ename": name.as_str(), "evalue": text, "traceback": []})).await;
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.publish("status", json!({"execution_state": "idle"}));
    }
}

async fn send_published(mut socket: PubSocket, mut published: mpsc::UnboundedReceiver<ZmqMessage>) {
    while let Some(message) = published.recv().await {
        if let Err(error) = socket.send(message).await {
            tracing::warn!(%error, "output not sent");
        }
    }
}

/// Reads one ROUTER socket for ever. Messages that cannot be read are logged and skipped.
async fn receive(kernel: Arc<Kernel>, replies: RouterSendHalf, mut requests: RouterRecvHalf) {
    loop {
        match requests.recv().await {
            Ok(message) => match kernel.codec.decode(&message.into_vec()) {
                Ok(request) => requests::dispatch(&kernel, Received { request, socket: replies.clone() }).await,
                Err(error) => tracing::warn!(%error, "message skipped"),
            },
            Err(error) => {
                tracing::warn!(%error, "socket gave an error");
                tokio::task::yield_now().await;
            }
        }
    }
}

#[cfg(test)]
mod tests;
