//! `execute_request`: runs and counts one cell after the other. A cell's outputs precede its reply, and the reply precedes
//! `idle`.
//!
//! There is one cell process, so a cell of a subshell waits for the cells before it, and prints that it waits, unless the cell
//! only looks. A failed cell aborts the queued cells of its own shell or subshell.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::sync::futures::Notified;
use tokio::sync::mpsc::{self, UnboundedReceiver};

use super::cell_queue::{Queue, Queued};
use super::comms::{CellKey, Comms};
use super::exchange::{Exchange, Received};
use super::kernel::{EngineHandle, Kernel};
use super::screen::{Pending, Screen, capture};
use super::terminal::Terminal;
use super::wire::{self, Request};
use crate::engine;
use crate::execution::{Cell, Output, Question, Work};
use crate::failure::{ErrorName, Failure};

/// The wait after a failed cell in which the reader takes requests out of the socket. A failed cell aborts the queued requests,
/// some of which may still be in the socket.
const ABORT_WINDOW: Duration = Duration::from_millis(10);

#[derive(Debug, Deserialize)]
struct ExecuteRequest {
    code: String,
    #[serde(default)]
    silent: bool,
    #[serde(default = "yes")]
    store_history: bool,
    #[serde(default)]
    user_expressions: Option<BTreeMap<String, String>>,
    #[serde(default)]
    allow_stdin: bool,
    #[serde(default = "yes")]
    stop_on_error: bool,
}

fn yes() -> bool {
    true
}

/// When a cell runs, relative to other cells.
enum Turn<'a> {
    /// The cell runs after the cells before it in the queue.
    Queued(&'a mut Queue),
    /// The cell runs at the same time as another cell.
    Beside,
}

impl Turn<'_> {
    fn end(&self, kernel: &Kernel, request: &Request) {
        match self {
            Self::Queued(_) => kernel.cells.finish(request),
            Self::Beside => {}
        }
    }
}

/// Runs queued cells as long as the kernel lives.
pub(super) async fn in_order(kernel: Arc<Kernel>, mut queue: Queue) {
    while let Some(queued) = queue.pop().await {
        let exchange = queued.begin(&kernel.iopub);
        for queued in execute(&kernel, exchange, Turn::Queued(&mut queue)).await {
            kernel.cells.finish(queued.request());
            queued.begin(&kernel.iopub).reply(json!({"status": "aborted"})).await;
        }
    }
}

/// Whether a cell runs at the same time as the running cell: the running cell is of another shell, and this cell only looks.
pub(super) fn is_beside(kernel: &Kernel, request: &Request) -> bool {
    let only_looks = |request: ExecuteRequest| {
        request.user_expressions.is_none_or(|expressions| expressions.is_empty()) && engine::only_looks(&request.code)
    };
    // A request that cannot be read is refused when its turn comes.
    kernel.cells.wait_for_others_only(request) && request.fields().is_ok_and(only_looks)
}

/// Runs a cell at the same time as the running cell.
pub(super) async fn run_read_only(kernel: Arc<Kernel>, received: Received) {
    let exchange = kernel.begin(received);
    execute(&kernel, exchange, Turn::Beside).await;
}

/// Runs one cell; returns the requests that its failure aborts.
async fn execute(kernel: &Arc<Kernel>, mut exchange: Exchange, mut turn: Turn<'_>) -> Vec<Queued> {
    if let Some(id) = kernel.subshells.missing(&exchange.request) {
        let text = format!("the cell was not run: there is no subshell {id:?}");
        turn.end(kernel, &exchange.request);
        exchange.refuse(ErrorName::UnknownSubshell, &text).await;
        return Vec::new();
    }
    let request: ExecuteRequest = match exchange.request.fields() {
        Ok(request) => request,
        Err(error) => {
            turn.end(kernel, &exchange.request);
            exchange.refuse(ErrorName::InvalidRequest, &error.to_string()).await;
            return Vec::new();
        }
    };
    // Created before the client can see the cell begin, since the client may interrupt at once.
    let interrupted = kernel.interrupts.notified();
    // The counter counts stored cells; other cells show the number of the next stored cell.
    let is_stored = request.store_history && !request.silent;
    let execution_count = kernel.count.fetch_add(u32::from(is_stored), Ordering::Relaxed) + 1;
    if is_stored {
        kernel.history.append(execution_count, request.code.clone());
    }
    if !request.silent {
        exchange.publish("execute_input", json!({"code": request.code, "execution_count": execution_count}));
    }
    let cell = Arc::new(CellKey::of(&exchange.request, &request.code));
    if let Turn::Queued(_) = turn {
        kernel.comms.begin_cell(&exchange, &cell);
    }
    let metadata = json!({"started": wire::now()});
    let result = run(kernel, interrupted, &exchange, &request, &cell, execution_count, &turn).await;

    let mut aborted = Vec::new();
    let content = match result {
        Ok((engine, payload)) => {
            let expressions = request.user_expressions.unwrap_or_default();
            let values = evaluate(&engine, &kernel.comms, &exchange.request, &cell, expressions).await;
            json!({"status": "ok", "execution_count": execution_count, "payload": payload, "user_expressions": values})
        }
        Err(failure) => {
            if !request.silent {
                exchange.publish("error", error_content(&failure));
                if let Turn::Queued(queue) = &mut turn
                    && request.stop_on_error
                {
                    tokio::time::sleep(ABORT_WINDOW).await;
                    aborted = queue.take_all_of(exchange.request.subshell.as_deref());
                }
            }
            let mut content = error_content(&failure);
            content["status"] = json!("error");
            content["execution_count"] = json!(execution_count);
            content["payload"] = json!([]);
            content["user_expressions"] = json!({});
            content
        }
    };
    turn.end(kernel, &exchange.request);
    exchange.reply_with_metadata(metadata, content).await;
    aborted
}

/// Runs the cell on the engine and publishes its outputs. Returns the engine, for the cell's `user_expressions`, and the
/// payload of the reply.
async fn run(
    kernel: &Arc<Kernel>,
    interrupted: Notified<'_>,
    exchange: &Exchange,
    request: &ExecuteRequest,
    key: &Arc<CellKey>,
    execution_count: u32,
    turn: &Turn<'_>,
) -> Result<(Arc<EngineHandle>, Vec<Value>), Failure> {
    let engine = tokio::select! {
        engine = kernel.engine() => engine.ok_or_else(|| engine_gone("it did not start"))?,
        () = interrupted => {
            return Err(Failure::new(ErrorName::Interrupted, "the cell was interrupted before the kernel had started"));
        }
    };
    let mut outputs = match turn {
        Turn::Queued(_) => start(&engine, cell(exchange, request, execution_count))?,
        Turn::Beside => {
            let (outputs, given) = mpsc::unbounded_channel();
            (engine.ask)(Question::Look { code: request.code.clone(), outputs });
            given
        }
    };
    let mut screen = Screen {
        iopub: exchange.iopub.clone(),
        parent: exchange.request.parent.clone(),
        execution_count,
        silent: request.silent,
        user: request.allow_stdin.then(|| (kernel.stdin.clone(), exchange.request.identities.clone())),
        pending: Pending::default(),
        history: kernel.history.clone(),
        comms: kernel.comms.clone(),
        cell: key.clone(),
        payload: Vec::new(),
        terminal: kernel.ignores_updates.then(Terminal::default),
    };
    let result = screen.until_done(&mut outputs).await;
    let payload = std::mem::take(&mut screen.payload);
    if let Turn::Queued(_) = turn {
        kernel.stdin.cancel();
    }
    tokio::spawn(screen.until_closed(outputs));
    result.ok_or_else(|| engine_gone("it ended while the cell ran"))?.map(|()| (engine, payload))
}

fn cell(exchange: &Exchange, request: &ExecuteRequest, execution_count: u32) -> Cell {
    Cell {
        code: request.code.clone(),
        allow_stdin: request.allow_stdin,
        can_be_undone: true,
        count: (request.store_history && !request.silent).then_some(execution_count),
        sent_at: exchange.at,
        subshell: exchange.request.subshell.clone(),
    }
}

fn start(engine: &EngineHandle, cell: Cell) -> Result<UnboundedReceiver<Output>, Failure> {
    let (outputs, given) = mpsc::unbounded_channel();
    engine.work.send(Work::Execute { cell, outputs }).map_err(|_| engine_gone("it has ended"))?;
    Ok(given)
}

/// Evaluates the `user_expressions` of a request: each expression runs as a cell, and only its value is kept.
async fn evaluate(
    engine: &EngineHandle,
    comms: &Comms,
    request: &Request,
    key: &Arc<CellKey>,
    expressions: BTreeMap<String, String>,
) -> Map<String, Value> {
    let (mut values, sent_at) = (Map::new(), Instant::now());
    for (name, code) in expressions {
        let subshell = request.subshell.clone();
        let cell = Cell { code, allow_stdin: false, can_be_undone: false, count: None, sent_at, subshell };
        let value = match start(engine, cell) {
            Ok(mut outputs) => capture(comms, &request.parent, key, &mut outputs)
                .await
                .unwrap_or_else(|| Err(engine_gone("it has ended"))),
            Err(failure) => Err(failure),
        };
        let entry = match value {
            Ok(Some((data, metadata))) => json!({"status": "ok", "data": data, "metadata": metadata}),
            Ok(None) => json!({"status": "ok", "data": {"text/plain": "()"}, "metadata": {}}),
            Err(failure) => {
                let mut entry = error_content(&failure);
                entry["status"] = json!("error");
                entry
            }
        };
        values.insert(name, entry);
    }
    values
}

fn error_content(failure: &Failure) -> Value {
    json!({"ename": failure.name, "evalue": failure.text, "traceback": failure.traceback})
}

fn engine_gone(how: &str) -> Failure {
    let text = format!("cells cannot run: the kernel's engine is gone, {how}; restart the kernel");
    Failure::new(ErrorName::EngineStopped, text)
}
