//! The Jupyter side of the kernel: requests in, replies and outputs out, whatever the engine is doing. Nothing is
//! compiled or run here; cells go to the engine's thread as [`Work`].
//!
//! Every request on shell and control is answered between a `busy` and an `idle` status of its own. Cells run one
//! after the other; all else is answered while they run.

use std::sync::{Arc, mpsc as work};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;
use zeromq::{PubSocket, RouterRecvHalf, RouterSendHalf, SocketRecv, SocketSend, ZmqMessage};

use crate::connection::{self, ConnectionInfo};
use crate::execution::Work;
use crate::history::History;
use crate::wire::{Codec, Parent, Request};

mod execute;
mod lifecycle;
mod requests;
mod screen;
mod stdin;

/// What sends on PUB and ROUTER sockets only enqueue would be lost if the process ended at once.
const DRAIN: Duration = Duration::from_millis(100);
/// Jupyter kills a kernel that has not ended 5 s after it was asked to.
const ENGINE_SHUTDOWN: Duration = Duration::from_secs(2);

/// What runs cells. `interrupt` and `shutdown` are called on threads of their own, also while a cell runs.
pub(crate) struct Engine {
    pub(crate) work: work::Sender<Work>,
    pub(crate) interrupt: Box<dyn Fn() + Send + Sync>,
    pub(crate) shutdown: Box<dyn Fn() + Send + Sync>,
}

/// Serves one connection until a shutdown request, SIGTERM, or the end of the front end's process.
///
/// The sockets listen and requests such as `kernel_info_request` are answered before `start_engine` is called, which
/// happens on its own thread. Fails where the sockets cannot be bound, or a task that serves them panics.
pub(crate) async fn serve(
    connection: ConnectionInfo,
    start_engine: impl FnOnce() -> Engine + Send + 'static,
) -> anyhow::Result<()> {
    let history = History::of_user()?;
    serve_with(connection, history, start_engine).await
}

async fn serve_with(
    connection: ConnectionInfo,
    history: History,
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
    kernel.shut_engine_down().await;
    tokio::time::sleep(DRAIN).await;
    match ended {
        Some(result) => Err(anyhow::anyhow!("a task that serves a socket has ended: {result:?}")),
        None => Ok(()),
    }
}

/// What all tasks share. Nothing in it changes but through channels.
struct Kernel {
    codec: Arc<Codec>,
    iopub: Iopub,
    stdin: stdin::Stdin,
    history: History,
    connection: ConnectionInfo,
    engine: watch::Receiver<Option<Arc<Engine>>>,
    /// Tells a cell that still waits for the engine.
    interrupts: Notify,
    executions: mpsc::UnboundedSender<Received>,
    stop: mpsc::UnboundedSender<()>,
}

impl Kernel {
    /// The engine, once it has started; none if its start failed.
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
            // Only now, so that a cell that waits for input ends as interrupted and not for want of a line.
            kernel.stdin.cancel();
        });
    }

    fn stop(&self) {
        if self.stop.send(()).is_err() {
            tracing::debug!("the kernel is stopping already");
        }
    }

    async fn shut_engine_down(&self) {
        let Some(engine) = self.engine.borrow().clone() else {
            return;
        };
        let shutdown = tokio::task::spawn_blocking(move || (engine.shutdown)());
        match tokio::time::timeout(ENGINE_SHUTDOWN, shutdown).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::error!(%error, "engine failed to shut down"),
            Err(_) => tracing::error!("engine did not shut down within {ENGINE_SHUTDOWN:?}; it is left behind"),
        }
    }

    /// Publishes `busy`; `idle` follows when what is returned is dropped.
    fn begin(&self, received: Received) -> Exchange {
        let Received { request, socket } = received;
        let exchange = Exchange { codec: self.codec.clone(), iopub: self.iopub.clone(), request, socket };
        exchange.publish("status", json!({"execution_state": "busy"}));
        exchange
    }
}

/// The way to the IOPub socket.
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

/// A request that is being answered. The client's `idle` goes out when this is dropped, whatever happened before.
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
    async fn refuse(&mut self, ename: &str, evalue: &str) {
        tracing::warn!(msg_type = self.request.msg_type, ename, evalue, "request refused");
        self.reply(json!({"status": "error", "ename": ename, "evalue": evalue, "traceback": []})).await;
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

/// Reads one ROUTER socket for ever. What is not a message for this kernel is logged and passed over.
async fn receive(kernel: Arc<Kernel>, replies: RouterSendHalf, mut requests: RouterRecvHalf) {
    loop {
        match requests.recv().await {
            Ok(message) => match kernel.codec.decode(&message.into_vec()) {
                Ok(request) => requests::dispatch(&kernel, Received { request, socket: replies.clone() }).await,
                Err(error) => tracing::warn!(%error, "message passed over"),
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
