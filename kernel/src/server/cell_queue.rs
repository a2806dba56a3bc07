//! The queue of waiting cells. Cells run one after the other, whatever shell or subshell they were sent to.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::Deserialize;
use serde_json::json;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};

use super::exchange::{Exchange, Iopub, Received};
use super::wire::Request;

/// The text that a client of a subshell gets if its cell has to wait.
const WAITS: &str = "another cell runs; this one runs after it, since all cells share one process and its variables\n";

/// The sending end of the queue.
pub(super) struct Cells {
    sender: UnboundedSender<Queued>,
    /// How many cells of each shell are queued or running; the key of the main shell is `None`.
    unfinished: Mutex<BTreeMap<Option<String>, usize>>,
}

/// A cell in the queue.
pub(super) enum Queued {
    /// A cell of which nothing has been published yet.
    Silent(Received),
    /// A cell whose client has been informed that the cell waits.
    Announced(Exchange),
}

/// The receiving end of the queue.
pub(super) struct Queue {
    incoming: UnboundedReceiver<Queued>,
    /// The cells that were received early, during a search for cells that a failure aborts.
    next: VecDeque<Queued>,
}

pub(super) fn channel() -> (Cells, Queue) {
    let (sender, incoming) = mpsc::unbounded_channel();
    (Cells { sender, unfinished: Mutex::default() }, Queue { incoming, next: VecDeque::new() })
}

impl Cells {
    /// Adds a cell. If a cell of a subshell has to wait, a text says so, because clients expect that subshells do not wait; for a
    /// silent cell nothing is published.
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

    /// Counts a cell as ended or aborted. This must happen before the cell's reply, after which the client may send the next cell.
    pub(super) fn finish(&self, request: &Request) {
        let mut unfinished = self.unfinished();
        if let Some(count) = unfinished.get_mut(&request.subshell) {
            *count -= 1;
        }
        unfinished.retain(|_, count| *count > 0);
    }

    /// Whether only cells of other shells are queued or running, so that a cell of this subshell overtakes no cell of its own.
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
    /// Publishes `busy`. An announced cell gets a second `busy`, because `idle` has followed the cell before it.
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
