//! Comms: the one place that keeps those that are open, the messages that no cell has taken yet, and the state of widgets.
//!
//! Cells act through [`CommAction`]s, front ends through `comm_open`, `comm_msg` and `comm_close`. A cell process holds only
//! ids, so a crash, a snapshot or `%undo` changes no comm, and a slider that the user moves between two cells has its new value
//! in the next one. See "Custom Messages" in the Jupyter messaging specification, and version 2 of the protocol of
//! Jupyter widgets.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ferrotune_link::{Answer, CommAction, CommAnswer, CommMessage};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::exchange::{Exchange, Iopub};
use super::wire::{self, Parent, WireError};
use crate::stop_button::Press;
use ferrotune_display::widget::model::TARGET as WIDGET;
use widget::WidgetState;

mod stop;
mod widget;

/// The target of a front end that asks for the state of all widgets.
const CONTROL: &str = "jupyter.widget.control";
/// More messages that no cell takes are not kept; the oldest ones are dropped.
const INBOX_MESSAGES: usize = 10_000;

/// All comms of the kernel.
pub(super) struct Comms {
    iopub: Iopub,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    comms: BTreeMap<String, Comm>,
    /// What front ends have opened and no cell has taken, for each target that a cell accepts.
    accepted: BTreeMap<String, Vec<(String, CommMessage)>>,
    /// The comms of the buttons that stop searches, by the ids of their displays.
    stop_buttons: BTreeMap<String, stop::Comms>,
    /// A front end has asked for widgets.
    has_widgets: bool,
}

struct Comm {
    target: String,
    kind: Kind,
    /// Messages for cells.
    inbox: VecDeque<CommMessage>,
    /// The front end has closed it; cells can still take its messages.
    is_closed: bool,
}

enum Kind {
    Plain,
    Widget(WidgetState),
    StopButton(WidgetState, Press),
    /// Of a front end that knows widgets.
    Control,
}

/// What a front end sends of a comm.
#[derive(Deserialize)]
struct FromFrontEnd {
    comm_id: String,
    #[serde(default)]
    target_name: String,
    #[serde(default)]
    data: Value,
}

impl Comms {
    pub(super) fn new(iopub: Iopub) -> Self {
        Self { iopub, state: Mutex::default() }
    }

    /// The content of the reply to `comm_info_request`.
    pub(super) fn info(&self, target: Option<&str>) -> Value {
        let mut state = self.lock();
        state.has_widgets |= target == Some(WIDGET);
        let open = state.comms.iter().filter(|(_, comm)| {
            !comm.is_closed && target.is_none_or(|target| target.is_empty() || target == comm.target)
        });
        let comms: Map<String, Value> =
            open.map(|(id, comm)| (id.clone(), json!({"target_name": comm.target}))).collect();
        json!({"status": "ok", "comms": comms})
    }

    /// Takes `comm_open`, `comm_msg` or `comm_close` from a front end.
    ///
    /// Fails if the content cannot be read.
    pub(super) fn take(&self, exchange: &Exchange) -> Result<(), WireError> {
        let message: FromFrontEnd = exchange.request.fields()?;
        match exchange.request.msg_type.as_str() {
            "comm_open" => self.opened(exchange, message),
            "comm_msg" => self.received(exchange, message),
            _ => self.closed(message),
        }
        Ok(())
    }

    fn opened(&self, exchange: &Exchange, message: FromFrontEnd) {
        let FromFrontEnd { comm_id, target_name, data } = message;
        let mut state = self.lock();
        if state.comms.contains_key(&comm_id) {
            return tracing::warn!(comm_id, "comm_open skipped: its comm is open");
        }
        let buffers = &exchange.request.buffers;
        let kind = match target_name.as_str() {
            WIDGET => WidgetState::new(&data, buffers).map(Kind::Widget),
            CONTROL => {
                state.has_widgets = true;
                Ok(Kind::Control)
            }
            target => match state.accepted.get_mut(target) {
                Some(opened) => {
                    opened.push((comm_id.clone(), for_cells(data, buffers)));
                    Ok(Kind::Plain)
                }
                None => Err("no cell accepts its target"),
            },
        };
        match kind {
            Ok(kind) => drop(state.comms.insert(comm_id, Comm::new(target_name, kind))),
            Err(reason) => {
                tracing::debug!(target_name, reason, "comm closed");
                exchange.publish("comm_close", json!({"comm_id": comm_id, "data": {}}));
            }
        }
    }

    fn received(&self, exchange: &Exchange, message: FromFrontEnd) {
        let FromFrontEnd { comm_id, data, .. } = message;
        let mut state = self.lock();
        let publish = |data: Value, buffers: &[Vec<u8>]| {
            let content = json!({"comm_id": comm_id, "data": data});
            self.iopub.publish_with(&exchange.request.parent, "comm_msg", &json!({}), content, buffers);
        };
        let buffers = &exchange.request.buffers;
        let Some(comm) = state.comms.get_mut(&comm_id).filter(|comm| !comm.is_closed) else {
            return tracing::debug!(comm_id, "message for a comm that is not open");
        };
        let method = data["method"].as_str().unwrap_or_default();
        match (&mut comm.kind, method) {
            (Kind::Plain, _) => comm.keep(for_cells(data, buffers)),
            (Kind::StopButton(_, press), "custom") if data["content"]["event"] == "click" => press.stop(),
            (Kind::Widget(_), "custom") => comm.keep(for_cells(data["content"].clone(), buffers)),
            (Kind::Widget(widget) | Kind::StopButton(widget, _), "update") => match widget.merge(&data, buffers) {
                // For other views of the notebook, and for those who wait until the kernel has the value.
                Ok(()) => {
                    let mut echo = data;
                    echo["method"] = json!("echo_update");
                    publish(echo, buffers);
                }
                Err(reason) => tracing::warn!(comm_id, reason, "update of a widget skipped"),
            },
            (Kind::Widget(widget) | Kind::StopButton(widget, _), "request_state") => {
                let (data, buffers) = widget.update();
                publish(data, &buffers);
            }
            (Kind::Control, "request_states") => {
                let (data, buffers) = widget::update_states(state.widgets());
                publish(data, &buffers);
            }
            (Kind::Widget(_) | Kind::StopButton(..) | Kind::Control, method) => {
                tracing::warn!(comm_id, method, "message of a widget skipped: its method is unknown");
            }
        }
    }

    fn closed(&self, message: FromFrontEnd) {
        let mut state = self.lock();
        let Some(comm) = state.comms.get_mut(&message.comm_id) else {
            return tracing::debug!(comm_id = message.comm_id, "comm_close of a comm that is not open");
        };
        comm.is_closed = true;
        if comm.inbox.is_empty() {
            state.comms.remove(&message.comm_id);
        }
    }

    /// Does what a cell wants with a comm. What is published belongs to `parent`, the request of the cell.
    pub(super) fn act(&self, parent: &Parent, action: CommAction) -> Answer {
        match self.answer(parent, action) {
            Ok(Some(learned)) => Answer::Comm { learned },
            Ok(None) => Answer::Done,
            Err(reason) => Answer::Refused { reason },
        }
    }

    fn answer(&self, parent: &Parent, action: CommAction) -> Result<Option<CommAnswer>, String> {
        let mut state = self.lock();
        match action {
            CommAction::Open { target, message } => {
                let (id, buffers) = (wire::random_id(), bytes(&message)?);
                let kind = match target.as_str() {
                    WIDGET => Kind::Widget(WidgetState::new(&message.data, &buffers)?),
                    _ => Kind::Plain,
                };
                let content = json!({"comm_id": id, "target_name": target, "data": message.data});
                self.iopub.publish_with(parent, "comm_open", &Value::Object(message.metadata), content, &buffers);
                state.comms.insert(id.clone(), Comm::new(target, kind));
                Ok(Some(CommAnswer::Opened { id }))
            }
            CommAction::Send { comm: id, message } => {
                let (comm, buffers) = (state.open(&id)?, bytes(&message)?);
                if let Kind::Widget(widget) = &mut comm.kind
                    && message.data["method"] == "update"
                {
                    widget.merge(&message.data, &buffers)?;
                }
                let content = json!({"comm_id": id, "data": message.data});
                self.iopub.publish_with(parent, "comm_msg", &Value::Object(message.metadata), content, &buffers);
                Ok(None)
            }
            CommAction::Close { comm: id, message } => {
                state.open(&id)?;
                state.comms.remove(&id);
                let (content, buffers) = (json!({"comm_id": id, "data": message.data}), bytes(&message)?);
                self.iopub.publish_with(parent, "comm_close", &Value::Object(message.metadata), content, &buffers);
                Ok(None)
            }
            CommAction::Take { comm: id } => {
                let comm = state.comms.get_mut(&id).ok_or_else(|| not_open(&id))?;
                let messages = std::mem::take(&mut comm.inbox).into();
                if comm.is_closed {
                    state.comms.remove(&id);
                }
                Ok(Some(CommAnswer::Messages { messages }))
            }
            CommAction::State { comm: id } => match &state.open(&id)?.kind {
                Kind::Widget(widget) => Ok(Some(CommAnswer::State { values: widget.values.clone() })),
                Kind::Plain | Kind::StopButton(..) | Kind::Control => {
                    Err(format!("the comm {id} is not a widget's; it has no state"))
                }
            },
            CommAction::Accept { target } => {
                let opened = std::mem::take(state.accepted.entry(target).or_default());
                Ok(Some(CommAnswer::Accepted { opened }))
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn open(&mut self, id: &str) -> Result<&mut Comm, String> {
        self.comms.get_mut(id).filter(|comm| !comm.is_closed).ok_or_else(|| not_open(id))
    }

    fn widgets(&self) -> impl Iterator<Item = (&str, &WidgetState)> {
        self.comms.iter().filter(|(_, comm)| !comm.is_closed).filter_map(|(id, comm)| match &comm.kind {
            Kind::Widget(widget) | Kind::StopButton(widget, _) => Some((id.as_str(), widget)),
            Kind::Plain | Kind::Control => None,
        })
    }
}

impl Comm {
    fn new(target: String, kind: Kind) -> Self {
        Self { target, kind, inbox: VecDeque::new(), is_closed: false }
    }

    fn keep(&mut self, message: CommMessage) {
        if self.inbox.len() == INBOX_MESSAGES {
            tracing::warn!(
                target = self.target,
                "a message of a comm is lost: no cell has taken {INBOX_MESSAGES} others"
            );
            self.inbox.pop_front();
        }
        self.inbox.push_back(message);
    }
}

fn not_open(id: &str) -> String {
    format!(
        "the comm {id} is not open; a widget that was closed, or made before the kernel was restarted, is made anew by its cell"
    )
}

fn for_cells(data: Value, buffers: &[Vec<u8>]) -> CommMessage {
    CommMessage { data, metadata: Map::new(), buffers: buffers.iter().map(|bytes| STANDARD.encode(bytes)).collect() }
}

fn bytes(message: &CommMessage) -> Result<Vec<Vec<u8>>, String> {
    let decode =
        |text: &String| STANDARD.decode(text).map_err(|error| format!("a buffer of a comm is not base64: {error}"));
    message.buffers.iter().map(decode).collect()
}
