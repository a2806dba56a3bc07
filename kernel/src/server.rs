//! The Jupyter side of the kernel: receives requests and sends replies and outputs. It compiles and runs nothing; cells go to
//! the engine's thread as [`Work`](crate::execution::Work).
//!
//! Every request on shell and control is answered between its own `busy` and `idle` status. Cells run one after the
//! other, also cells of subshells; all other requests are answered while a cell runs.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;
use zeromq::{PubSocket, RouterRecvHalf, RouterSendHalf, SocketRecv, SocketSend, ZmqMessage};

use cell_history::CellHistory;
use comms::Comms;
use connection::ConnectionInfo;
use exchange::{Iopub, Received};
use kernel::Kernel;
use requests::Channel;
use subshells::Subshells;
use wire::{Codec, Parent};

mod cell_history;
mod cell_queue;
mod code;
mod comms;
mod connection;
mod exchange;
mod execute;
mod kernel;
mod lifecycle;
mod requests;
mod screen;
mod stdin;
mod subshells;
mod terminal;
mod wire;

pub(crate) use kernel::EngineHandle;

/// The time before the end in which PUB and ROUTER sockets send their queues, which the end of the process would discard.
const DRAIN: Duration = Duration::from_millis(100);
/// Serves the connection of a connection file until a shutdown request, SIGTERM, or the end of the front end's process.
///
/// The sockets listen, and requests such as `kernel_info_request` are answered, before `start_engine` is called on a
/// thread of its own. Fails if the sockets cannot be bound, or if a task that serves them panics.
pub(crate) async fn serve(
    connection_file: &Path,
    start_engine: impl FnOnce() -> EngineHandle + Send + 'static,
) -> anyhow::Result<()> {
    let connection = connection::read(connection_file)?;
    serve_with(connection, CellHistory::of_user()?, start_engine).await
}

async fn serve_with(
    connection: ConnectionInfo,
    history: CellHistory,
    start_engine: impl FnOnce() -> EngineHandle + Send + 'static,
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
    let (cells, queue) = cell_queue::channel();
    let (stop, mut stopped) = mpsc::unbounded_channel();
    let interrupts = Notify::new();
    let (comms, subshells) = (Arc::new(Comms::new(iopub.clone())), Subshells::default());
    let ignores_updates = terminal::ignores_updates();
    let kernel = Arc::new(Kernel {
        codec,
        iopub,
        stdin,
        history,
        comms,
        subshells,
        connection,
        engine,
        interrupts,
        cells,
        count: AtomicU32::new(0),
        stop,
        ignores_updates,
    });

    kernel.iopub.publish(&Parent::none(), "status", json!({"execution_state": "starting"}));
    tasks.spawn(execute::in_order(kernel.clone(), queue));
    for (channel, socket) in [(Channel::Shell, sockets.shell), (Channel::Control, sockets.control)] {
        let (replies, requests) = socket.split();
        tasks.spawn(receive(kernel.clone(), channel, replies, requests));
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

async fn send_published(mut socket: PubSocket, mut published: mpsc::UnboundedReceiver<ZmqMessage>) {
    while let Some(message) = published.recv().await {
        if let Err(error) = socket.send(message).await {
            tracing::warn!(%error, "output not sent");
        }
    }
}

/// Reads one ROUTER socket for ever. Messages that cannot be read are logged and skipped.
async fn receive(kernel: Arc<Kernel>, channel: Channel, replies: RouterSendHalf, mut requests: RouterRecvHalf) {
    loop {
        match requests.recv().await {
            Ok(message) => match kernel.codec.decode(&message.into_vec()) {
                Ok(request) => {
                    let received = Received { request, socket: replies.clone(), at: Instant::now() };
                    requests::dispatch(&kernel, channel, received).await;
                }
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
