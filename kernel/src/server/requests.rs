//! Requests that need no cell to run: all of shell and control but `execute_request`. Each is answered at once, or by a
//! task of its own where something has to be waited for.

use std::sync::Arc;

use jupyter_protocol::{CodeMirrorMode, HelpLink, KernelInfoReply, LanguageInfo, ReplyStatus};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::sync::oneshot;

use super::{Exchange, Kernel, Received};
use crate::completeness;
use crate::execution::{Completeness, Completions, Work};
use crate::history::Query;
use crate::wire::{PROTOCOL_VERSION, WireError};

/// Why a request is refused.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error(transparent)]
    Content(#[from] WireError),
    #[error("`{msg_type}` is not a request of Jupyter protocol {PROTOCOL_VERSION} that this kernel serves")]
    Unknown { msg_type: String },
}

/// Answers one request of shell or control, or starts to.
pub(super) async fn dispatch(kernel: &Arc<Kernel>, received: Received) {
    let msg_type = received.request.msg_type.clone();
    tracing::debug!(msg_type, "request");
    if msg_type == "execute_request" {
        if kernel.executions.send(received).is_err() {
            tracing::debug!("cell not run: the kernel is stopping");
        }
        return;
    }
    let mut exchange = kernel.begin(received);
    match msg_type.as_str() {
        "is_complete_request" | "history_request" | "complete_request" | "inspect_request" => {
            tokio::spawn(answer_in_time(kernel.clone(), exchange));
        }
        "comm_open" => refuse_comm(&exchange),
        "shutdown_request" => shut_down(kernel, exchange).await,
        _ => match answer(kernel, &exchange) {
            Ok(Some(content)) => exchange.reply(content).await,
            Ok(None) => {}
            Err(refusal) => refuse(&mut exchange, &refusal).await,
        },
    }
}

async fn refuse(exchange: &mut Exchange, refusal: &Refusal) {
    let ename = match refusal {
        Refusal::Content(_) => "InvalidRequest",
        Refusal::Unknown { .. } => "UnknownRequest",
    };
    exchange.refuse(ename, &refusal.to_string()).await;
}

/// The content of a reply that is known at once; none for messages that get no reply.
fn answer(kernel: &Arc<Kernel>, exchange: &Exchange) -> Result<Option<Value>, Refusal> {
    let content = match exchange.request.msg_type.as_str() {
        // Clients wait for this one before all else, so it is answered whatever its content.
        "kernel_info_request" => json!(kernel_info()),
        "comm_info_request" => {
            // No target is served, so there is none whatever `target_name` asks for.
            exchange.request.content.clone()?;
            json!({"status": "ok", "comms": {}})
        }
        "connect_request" => {
            let connection = &kernel.connection;
            json!({
                "status": "ok",
                "shell_port": connection.shell_port,
                "iopub_port": connection.iopub_port,
                "stdin_port": connection.stdin_port,
                "control_port": connection.control_port,
                "hb_port": connection.hb_port,
            })
        }
        "interrupt_request" => {
            kernel.interrupt();
            json!({"status": "ok"})
        }
        "debug_request" => debug_refusal(&exchange.request.content.clone()?),
        "comm_msg" | "comm_close" => {
            tracing::debug!(msg_type = exchange.request.msg_type, "message for a comm that is not open");
            return Ok(None);
        }
        msg_type if msg_type.ends_with("_request") => {
            return Err(Refusal::Unknown { msg_type: msg_type.into() });
        }
        msg_type => {
            tracing::warn!(msg_type, "message of an unknown type passed over");
            return Ok(None);
        }
    };
    Ok(Some(content))
}

/// For replies that a disk, a parser or the engine has to be waited for.
async fn answer_in_time(kernel: Arc<Kernel>, mut exchange: Exchange) {
    let content = match exchange.request.msg_type.as_str() {
        "is_complete_request" => is_complete(&exchange).await,
        "history_request" => history(&kernel, &exchange).await,
        "complete_request" => complete(&kernel, &exchange).await,
        _ => inspect(&kernel, &exchange).await,
    };
    match content {
        Ok(content) => exchange.reply(content).await,
        Err(error) => refuse(&mut exchange, &error.into()).await,
    }
}

fn kernel_info() -> KernelInfoReply {
    let link = |text: &str, url: &str| HelpLink { text: text.into(), url: url.into() };
    let version = env!("CARGO_PKG_VERSION");
    KernelInfoReply {
        status: ReplyStatus::Ok,
        protocol_version: PROTOCOL_VERSION.into(),
        implementation: "ferrotune".into(),
        implementation_version: version.into(),
        language_info: LanguageInfo {
            name: "rust".into(),
            version: env!("CARGO_PKG_RUST_VERSION").into(),
            mimetype: Some("text/x-rust".into()),
            file_extension: Some(".rs".into()),
            pygments_lexer: Some("rust".into()),
            codemirror_mode: Some(CodeMirrorMode::Simple("rust".into())),
            nbconvert_exporter: None,
        },
        banner: format!("Ferrotune {version}: Rust with candle and hyper-parameter search. %lsmagic lists the magics."),
        help_links: vec![
            link("The Rust Book", "https://doc.rust-lang.org/book/"),
            link("Rust standard library", "https://doc.rust-lang.org/std/"),
            link("candle", "https://docs.rs/candle-core"),
        ],
        debugger: false,
        error: None,
    }
}

fn debug_refusal(request: &Map<String, Value>) -> Value {
    let message = "this kernel has no debugger";
    json!({
        "type": "response",
        "seq": request.get("seq").cloned().unwrap_or(json!(0)),
        "request_seq": request.get("seq").cloned().unwrap_or(json!(0)),
        "command": request.get("command").cloned().unwrap_or(json!("")),
        "success": false,
        "message": message,
        "body": {},
        "status": "error",
        "ename": "NoDebugger",
        "evalue": message,
        "traceback": [],
    })
}

/// Comms of targets that are not served are closed at once, as the specification asks.
fn refuse_comm(exchange: &Exchange) {
    #[derive(Deserialize)]
    struct CommOpen {
        comm_id: String,
        #[serde(default)]
        target_name: String,
    }
    match exchange.request.fields::<CommOpen>() {
        Ok(CommOpen { comm_id, target_name }) => {
            tracing::debug!(target_name, "comm closed: its target is not served");
            exchange.publish("comm_close", json!({"comm_id": comm_id, "data": {}}));
        }
        Err(error) => tracing::warn!(%error, "comm_open passed over"),
    }
}

async fn shut_down(kernel: &Arc<Kernel>, mut exchange: Exchange) {
    #[derive(Deserialize, Default)]
    struct ShutdownRequest {
        #[serde(default)]
        restart: bool,
    }
    // A kernel that is told to end does, even where the rest of the message is unreadable.
    let ShutdownRequest { restart } = exchange.request.fields().unwrap_or_default();
    let content = json!({"status": "ok", "restart": restart});
    exchange.reply(content.clone()).await;
    exchange.publish("shutdown_reply", content);
    drop(exchange);
    kernel.stop();
}

async fn is_complete(exchange: &Exchange) -> Result<Value, WireError> {
    #[derive(Deserialize)]
    struct IsCompleteRequest {
        code: String,
    }
    let IsCompleteRequest { code } = exchange.request.fields()?;
    let checked = tokio::task::spawn_blocking(move || completeness::check(&code)).await;
    Ok(match checked {
        Ok(Completeness::Complete) => json!({"status": "complete"}),
        Ok(Completeness::Incomplete { indent }) => json!({"status": "incomplete", "indent": indent}),
        Ok(Completeness::Invalid) => json!({"status": "invalid"}),
        Err(error) => {
            tracing::error!(%error, "completeness of a cell could not be told");
            json!({"status": "unknown"})
        }
    })
}

async fn history(kernel: &Kernel, exchange: &Exchange) -> Result<Value, WireError> {
    #[derive(Deserialize)]
    struct WithOutput {
        #[serde(default)]
        output: Option<bool>,
    }
    let query: Query = exchange.request.fields()?;
    let WithOutput { output } = exchange.request.fields()?;
    let entries = kernel.history.find(query).await;
    let history: Vec<Value> = entries
        .into_iter()
        .map(|entry| match output {
            // Outputs are not kept, which clients know as null.
            Some(true) => json!([entry.session, entry.line, [entry.source, null]]),
            _ => json!([entry.session, entry.line, entry.source]),
        })
        .collect();
    Ok(json!({"status": "ok", "history": history}))
}

#[derive(Deserialize)]
struct AtCursor {
    code: String,
    /// In code points; the end where it is left open.
    #[serde(default)]
    cursor_pos: Option<usize>,
}

impl AtCursor {
    fn cursor_bytes(&self) -> usize {
        self.cursor_pos.map_or(self.code.len(), |points| bytes_of(&self.code, points))
    }
}

async fn complete(kernel: &Kernel, exchange: &Exchange) -> Result<Value, WireError> {
    let at: AtCursor = exchange.request.fields()?;
    let cursor = at.cursor_bytes();
    let code = at.code.clone();
    let work = |reply| Work::Complete { code, cursor, reply };
    let found =
        ask(kernel, work).await.unwrap_or_else(|| Completions { start: cursor, end: cursor, matches: Vec::new() });
    let start = points_of(&at.code, found.start);
    let end = points_of(&at.code, found.end);
    let texts: Vec<&str> = found.matches.iter().map(|completion| completion.text.as_str()).collect();
    let types: Vec<Value> = found
        .matches
        .iter()
        .map(|completion| json!({"start": start, "end": end, "text": completion.text, "type": completion.kind}))
        .collect();
    Ok(json!({
        "status": "ok",
        "matches": texts,
        "cursor_start": start,
        "cursor_end": end,
        "metadata": {"_jupyter_types_experimental": types},
    }))
}

async fn inspect(kernel: &Kernel, exchange: &Exchange) -> Result<Value, WireError> {
    let at: AtCursor = exchange.request.fields()?;
    let cursor = at.cursor_bytes();
    let data = ask(kernel, |reply| Work::Inspect { code: at.code, cursor, reply }).await.unwrap_or_default();
    Ok(json!({"status": "ok", "found": !data.is_empty(), "data": data, "metadata": {}}))
}

/// What the engine answers, in its turn; none if it is not there or gives no answer.
async fn ask<T>(kernel: &Kernel, work: impl FnOnce(oneshot::Sender<T>) -> Work) -> Option<T> {
    let engine = kernel.engine().await?;
    let (reply, answer) = oneshot::channel();
    if engine.work.send(work(reply)).is_err() {
        tracing::warn!("the engine has ended; the client gets an empty answer");
    }
    answer.await.ok()
}

/// The byte offset of a number of code points, in which Jupyter counts.
fn bytes_of(code: &str, points: usize) -> usize {
    code.char_indices().nth(points).map_or(code.len(), |(at, _)| at)
}

/// The inverse of [`bytes_of`]; offsets within a character count as its start.
fn points_of(code: &str, bytes: usize) -> usize {
    code.char_indices().take_while(|(at, c)| at + c.len_utf8() <= bytes).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_are_counted_in_code_points() {
        let code = "aü😀b";
        for (points, bytes) in [(0, 0), (1, 1), (2, 3), (3, 7), (4, 8)] {
            assert_eq!(bytes_of(code, points), bytes);
            assert_eq!(points_of(code, bytes), points);
        }
        assert_eq!(bytes_of(code, 99), 8);
        assert_eq!(points_of(code, 99), 4);
        assert_eq!(points_of(code, 2), 1);
    }
}
