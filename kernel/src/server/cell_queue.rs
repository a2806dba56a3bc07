//! The cells that wait: they run one after the other, whatever shell or subshell they were sent to.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::Deserialize;
use serde_json::json;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};

use super::exchange::{Exchange, Iopub, Received};
use super::wire::Request;

/// What a client of a subshell reads where its cell has to wait.
const WAITS: &str = "another cell runs; this one runs after it, since all cells share one process and its variables\n";

/// Puts cells into the queue.
pub(super) struct Cells {
    sender: UnboundedSender<Queued>,
    /// How many cells of each shell are queued or run.
    unfinished: Mutex<BTreeMap<Option<String>, usize>>,
}

/// A cell in the queue.
pub(super) enum Queued {
    /// Its client knows of it nothing yet.
    Silent(Received),
    /// Its client knows that it waits.
    Announced(Exchange),
}

/// The receiving end of the queue.
pub(super) struct Queue {
    incoming: UnboundedReceiver<Queued>,
    /// Those that were received while cells were looked for that a failure aborts.
    next: VecDeque<Queued>,
}

pub(super) fn channel() -> (Cells, Queue) {
    let (sender, incoming) = mpsc::unbounded_channel();
    (Cells { sender, unfinished: Mutex::default() }, Queue { incoming, next: VecDeque::new() })
}

impl Cells {
    /// Adds a cell. One of a subshell says so if it has to wait, because clients expect that subshells do not; a silent one
    /// publishes nothing.
    pub(super) fn push(&self, iopub: &Iopub, received: Received) {
        let waits = {
            let mut unfinished = self.unfinished();
            let waits = !unfinished.is_empty();
            *unfinished.entry(received.request.subshell.clone()).or_default() += 1;
            waits
        };
        let queued = if waits && received.request.subshell.is_some() && !is_silent(&received.request) {
            let exchange = Exchange::begin(iopub.clone(), received);
            exchange.publish("stream", json!({"name": "stderr", "text": WAITS}));
            Queued::Announced(exchange)
        } else {
            Queued::Silent(received)
        };
        if self.sender.send(queued).is_err() {
            tracing::debug!("cell not run: the kernel is stopping");
        }
    }

    /// A cell has ended, or was aborted. This comes before its reply, since the client may then send the next one.
    pub(super) fn finish(&self, request: &Request) {
        let mut unfinished = self.unfinished();
        if let Some(count) = unfinished.get_mut(&request.subshell) {
            *count -= 1;
        }
        unfinished.retain(|_, count| *count > 0);
    }

    /// Whether only cells of other shells are queued or run, so that a cell of this subshell overtakes none of its own.
    pub(super) fn wait_for_others_only(&self, request: &Request) -> bool {
        let unfinished = self.unfinished();
        request.subshell.is_some() && !unfinished.is_empty() && !unfinished.contains_key(&request.subshell)
    }

    fn unfinished(&self) -> MutexGuard<'_, BTreeMap<Option<String>, usize>> {
        self.unfinished.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_silent(request: &Request) -> bool {
    #[derive(Deserialize)]
    struct WithSilent {
        #[serde(default)]
        silent: bool,
    }
    // A request that cannot be read is refused when its turn comes.
    request.fields().is_ok_and(|WithSilent { silent }| silent)
}

impl Queued {
    /// Publishes `busy`, once more where the client knows of the cell, because the cell before it was followed by `idle`.
    pub(super) fn begin(self, iopub: &Iopub) -> Exchange {
        match self {
            Self::Silent(received) => Exchange::begin(iopub.clone(), received),
            Self::Announced(exchange) => {
                exchange.publish("status", json!({"execution_state": "busy"}));
                exchange
            }
        }
    }

    pub(super) fn request(&self) -> &Request {
        match self {
            Self::Silent(received) => &received.request,
            Self::Announced(exchange) => &exchange.request,
        }
    }
}

impl Queue {
    /// The next cell; none once the kernel stops.
    pub(super) async fn pop(&mut self) -> Option<Queued> {
        match self.next.pop_front() {
            Some(queued) => Some(queued),
            None => self.incoming.recv().await,
        }
    }

    /// Takes out all cells of the main shell, or those of a subshell.
    pub(super) fn take_all_of(&mut self, subshell: Option<&str>) -> Vec<Queued> {
        self.next.extend(std::iter::from_fn(|| self.incoming.try_recv().ok()));
        let all = std::mem::take(&mut self.next);
        let (taken, left) = all.into_iter().partition(|queued| queued.request().subshell.as_deref() == subshell);
        self.next = left;
        Vec::from_iter::<VecDeque<Queued>>(taken)
    }
}
