//! The requests of shell and control: `execute_request` goes to the queue of cells. All other requests are answered at once, or
//! by a task of their own if the answer takes time, whatever shell or subshell they are sent to.

use std::sync::Arc;

use jupyter_protocol::{CodeMirrorMode, HelpLink, KernelInfoReply, LanguageInfo, ReplyStatus};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::cell_history::Query;
use super::code;
use super::exchange::{Exchange, Received};
use super::execute;
use super::kernel::Kernel;
use super::wire::{PROTOCOL_VERSION, Request, WireError};
use crate::failure::ErrorName;

/// Why a request is refused.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error(transparent)]
    Content(#[from] WireError),
    #[error("`{msg_type}` is not a request of Jupyter protocol {PROTOCOL_VERSION} that this kernel serves")]
    Unknown { msg_type: String },
    #[error("there is no subshell {id:?}; list_subshell_request lists them, and create_subshell_request makes one")]
    Subshell { id: String },
}

/// The socket on which a request arrives.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Channel {
    Shell,
    Control,
}

/// Answers one request of shell or control, or starts a task that does.
pub(super) async fn dispatch(kernel: &Arc<Kernel>, channel: Channel, received: Received) {
    let msg_type = received.request.msg_type.clone();
    tracing::debug!(msg_type, "request");
    if let Some(id) = missing_subshell(kernel, channel, &received.request) {
        return refuse(&mut kernel.begin(received), &Refusal::Subshell { id }).await;
    }
    if msg_type == "execute_request" {
        if execute::is_beside(kernel, &received.request) {
            tokio::spawn(execute::run_read_only(kernel.clone(), received));
            return;
        }
        return kernel.cells.push(&kernel.iopub, received);
    }
    let mut exchange = kernel.begin(received);
    match msg_type.as_str() {
        "is_complete_request" | "history_request" | "complete_request" | "inspect_request" => {
            tokio::spawn(answer_later(kernel.clone(), exchange));
        }
        "comm_open" | "comm_msg" | "comm_close" => {
            if let Err(error) = kernel.comms.take(&exchange) {
                tracing::warn!(msg_type, %error, "message of a comm skipped");
            }
        }
        "shutdown_request" => shut_down(kernel, exchange).await,
        "interrupt_request" => {
            kernel.interrupt(exchange.at).await;
            exchange.reply(json!({"status": "ok"})).await;
        }
        _ => match answer(kernel, &exchange) {
            Ok(Some(content)) => exchange.reply(content).await,
            Ok(None) => {}
            Err(refusal) => refuse(&mut exchange, &refusal).await,
        },
    }
}

/// The subshell id for which a request has to be refused, because there is no subshell with this id.
///
/// Messages of comms are not refused, because they have no reply: a front end that closes a comm and then its subshell sends the
/// two messages on two sockets, and either may arrive first. Neither is `kernel_info_request`, with which clients test whether
/// the kernel answers.
fn missing_subshell(kernel: &Kernel, channel: Channel, request: &Request) -> Option<String> {
    let is_served =
        matches!(request.msg_type.as_str(), "comm_open" | "comm_msg" | "comm_close" | "kernel_info_request");
    let id = kernel.subshells.missing(request)?;
    (channel == Channel::Shell && !is_served).then(|| id.to_owned())
}

async fn refuse(exchange: &mut Exchange, refusal: &Refusal) {
    let name = match refusal {
        Refusal::Content(_) => ErrorName::InvalidRequest,
        Refusal::Unknown { .. } => ErrorName::UnknownRequest,
        Refusal::Subshell { .. } => ErrorName::UnknownSubshell,
    };
    exchange.refuse(name, &refusal.to_string()).await;
}

/// The content of a reply that needs no waiting; none for messages that get no reply.
fn answer(kernel: &Arc<Kernel>, exchange: &Exchange) -> Result<Option<Value>, Refusal> {
    let content = match exchange.request.msg_type.as_str() {
        // Clients send this first and wait for its reply, so it is answered whatever its content.
        "kernel_info_request" => {
            let mut content = json!(kernel_info());
            content["supported_features"] = json!(["kernel subshells"]);
            content
        }
        "comm_info_request" => {
            #[derive(Deserialize)]
            struct CommInfoRequest {
                #[serde(default)]
                target_name: Option<String>,
            }
            let CommInfoRequest { target_name } = exchange.request.fields()?;
            kernel.comms.info(target_name.as_deref())
        }
        "create_subshell_request" => kernel.subshells.create(),
        "list_subshell_request" => kernel.subshells.list(),
        "delete_subshell_request" => {
            #[derive(Deserialize)]
            struct DeleteSubshellRequest {
                subshell_id: String,
            }
            let DeleteSubshellRequest { subshell_id: id } = exchange.request.fields()?;
            kernel.subshells.delete(&id).ok_or(Refusal::Subshell { id })?
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
        "debug_request" => debug_refusal(&exchange.request.content.clone()?),
        msg_type if msg_type.ends_with("_request") => {
            return Err(Refusal::Unknown { msg_type: msg_type.into() });
        }
        msg_type => {
            tracing::warn!(msg_type, "message of an unknown type skipped");
            return Ok(None);
        }
    };
    Ok(Some(content))
}

/// Answers a request that waits for a disk, a parser or the engine.
async fn answer_later(kernel: Arc<Kernel>, mut exchange: Exchange) {
    let content = match exchange.request.msg_type.as_str() {
        "is_complete_request" => code::is_complete(&exchange).await,
        "history_request" => history(&kernel, &exchange).await,
        "complete_request" => code::complete(&kernel, &exchange).await,
        _ => code::inspect(&kernel, &exchange).await,
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
        "ename": ErrorName::NoDebugger,
        "evalue": message,
        "traceback": [],
    })
}

async fn shut_down(kernel: &Arc<Kernel>, mut exchange: Exchange) {
    #[derive(Deserialize, Default)]
    struct ShutdownRequest {
        #[serde(default)]
        restart: bool,
    }
    // The kernel ends even if the rest of the message cannot be read.
    let ShutdownRequest { restart } = exchange.request.fields().unwrap_or_default();
    let content = json!({"status": "ok", "restart": restart});
    exchange.reply(content.clone()).await;
    exchange.publish("shutdown_reply", content);
    drop(exchange);
    kernel.stop();
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
            // Outputs are not kept; null says so.
            Some(true) => json!([entry.session, entry.line, [entry.source, null]]),
            _ => json!([entry.session, entry.line, entry.source]),
        })
        .collect();
    Ok(json!({"status": "ok", "history": history}))
}
