//! State that the tasks of the server share: the codec, channels to other tasks, and the engine.

use std::sync::atomic::AtomicU32;
use std::sync::{Arc, mpsc as work};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, mpsc, watch};

use super::cell_history::CellHistory;
use super::cell_queue::Cells;
use super::comms::Comms;
use super::connection::ConnectionInfo;
use super::exchange::{Exchange, Iopub, Received};
use super::stdin::Stdin;
use super::subshells::Subshells;
use super::wire::Codec;
use crate::execution::{Question, Work};

/// How long the engine may take to stop. Jupyter kills a kernel 5 s after its shutdown request.
const ENGINE_SHUTDOWN: Duration = Duration::from_secs(2);

/// The server's connection to the engine: the thread that runs cells, and functions that may be called while it is busy.
pub(crate) struct EngineHandle {
    pub(crate) work: work::Sender<Work>,
    /// Answers questions about code while cells run, on another thread.
    pub(crate) ask: Box<dyn Fn(Question) + Send + Sync>,
    /// Stops the cell or search that ran or was queued at this moment; returns whether one ran. Called on another thread.
    pub(crate) interrupt: Box<dyn Fn(Instant) -> bool + Send + Sync>,
    /// Stops the running cell or search, because the kernel ends. Called on another thread.
    pub(crate) end: Box<dyn Fn() + Send + Sync>,
}

/// The state that all tasks share. Tasks change it through channels; `comms` and `subshells` lock their state for an instant.
pub(super) struct Kernel {
    pub(super) codec: Arc<Codec>,
    pub(super) iopub: Iopub,
    pub(super) stdin: Stdin,
    pub(super) history: CellHistory,
    pub(super) comms: Arc<Comms>,
    pub(super) subshells: Subshells,
    pub(super) connection: ConnectionInfo,
    pub(super) engine: watch::Receiver<Option<Arc<EngineHandle>>>,
    /// Wakes a cell that still waits for the engine.
    pub(super) interrupts: Notify,
    pub(super) cells: Cells,
    /// The number of cells that have got an execution count.
    pub(super) count: AtomicU32,
    pub(super) stop: mpsc::UnboundedSender<()>,
    /// Whether the front end is a terminal that ignores updates of displays.
    pub(super) ignores_updates: bool,
}

impl Kernel {
    /// Waits until the engine has started; none if the start failed.
    pub(super) async fn engine(&self) -> Option<Arc<EngineHandle>> {
        let mut engine = self.engine.clone();
        engine.wait_for(Option::is_some).await.ok()?.clone()
    }

    /// Stops the cells and searches that ran or were queued at this moment.
    pub(super) async fn interrupt(&self, at: Instant) {
        self.interrupts.notify_waiters();
        let engine = self.engine.borrow().clone();
        let Some(engine) = engine else { return };
        match tokio::task::spawn_blocking(move || (engine.interrupt)(at)).await {
            // The question is cancelled after the interrupt, so that a cell that waits for input fails as interrupted.
            Ok(true) => self.stdin.cancel(),
            Ok(false) => {}
            Err(error) => tracing::error!(%error, "the interrupt failed"),
        }
    }

    pub(super) fn stop(&self) {
        if self.stop.send(()).is_err() {
            tracing::debug!("the kernel is stopping already");
        }
    }

    pub(super) async fn stop_engine(&self) {
        let Some(engine) = self.engine.borrow().clone() else {
            return;
        };
        let stopped = tokio::task::spawn_blocking(move || (engine.end)());
        match tokio::time::timeout(ENGINE_SHUTDOWN, stopped).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::error!(%error, "engine failed to stop"),
            Err(_) => tracing::error!("engine did not stop within {ENGINE_SHUTDOWN:?}; the kernel ends without it"),
        }
    }

    /// Publishes `busy`; `idle` follows when the exchange is dropped.
    pub(super) fn begin(&self, received: Received) -> Exchange {
        Exchange::begin(self.iopub.clone(), received)
    }
}
