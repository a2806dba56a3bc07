//! Comms: the only place that keeps the open comms, the messages that no cell has taken yet, and the state of widgets.
//!
//! Cells act through [`CommAction`]s, front ends through `comm_open`, `comm_msg` and `comm_close`. A cell process holds only
//! ids, so a crash, a snapshot or `%undo` changes no comm, and a slider that the user moves between two cells has its new value
//! in the next one. See "Custom Messages" in the Jupyter messaging specification, and version 2 of the protocol of
//! Jupyter widgets.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ferrotune_link::{Answer, CommAction, CommAnswer, CommMessage};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::exchange::{Exchange, Iopub};
use super::wire::{self, Parent, WireError};
use crate::execution::Press;
use ferrotune_display::comm::HOLDER;
use ferrotune_display::widget::model::{self, TARGET as WIDGET};
use release::{Maker, Released};
use untaken::Untaken;
use widget::WidgetState;

mod lasting;
mod release;
mod stop;
mod untaken;
mod widget;

pub(super) use release::CellKey;

/// The target of a front end that asks for the state of all widgets.
const CONTROL: &str = "jupyter.widget.control";

/// All comms of the kernel, and the sender of their messages.
pub(super) struct Comms {
    iopub: Iopub,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    comms: BTreeMap<String, Comm>,
    /// The targets that cells accept.
    accepted: BTreeSet<String>,
    untaken: Untaken,
    /// The comms of the buttons that stop searches, by the ids of their displays.
    stop_buttons: BTreeMap<String, stop::Comms>,
    /// The comms of the widgets that show lasting displays, by the ids of the displays.
    lasting: BTreeMap<String, String>,
    released: Released,
    /// Whether a front end has asked for widgets.
    has_widgets: bool,
}

struct Comm {
    target: String,
    kind: Kind,
    /// Whether a cell or the kernel itself has opened the comm.
    is_own: bool,
    /// Whether a front end has closed the comm. Cells can still take its messages; an own widget keeps its state, because a front
    /// end without widgets closes each widget at once, while other front ends may show the widget.
    is_closed: bool,
    /// The maker of a widget below a cell; none for other comms.
    maker: Option<Maker>,
}

enum Kind {
    Plain,
    Widget(WidgetState),
    StopButton(WidgetState, Press),
    /// The comm over which a front end asks for the state of all widgets.
    Control,
}

/// The content of a front end's message about a comm.
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

    /// Handles `comm_open`, `comm_msg` or `comm_close` from a front end.
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
            target if state.accepted.contains(target) => Ok(Kind::Plain),
            _ => Err("no cell accepts its target"),
        };
        match kind {
            Ok(kind) => {
                let is_plain = matches!(kind, Kind::Plain);
                let comm = Comm { target: target_name.clone(), kind, is_own: false, is_closed: false, maker: None };
                state.comms.insert(comm_id.clone(), comm);
                if is_plain {
                    state.keep(exchange, &comm_id, Some(&target_name), for_cells(data, buffers));
                }
            }
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
        let Ok(comm) = state.usable(&comm_id) else {
            return tracing::debug!(comm_id, "message for a comm that is not open");
        };
        let method = data["method"].as_str().unwrap_or_default();
        match (&mut comm.kind, method) {
            (Kind::Plain, _) => state.keep(exchange, &comm_id, None, for_cells(data, buffers)),
            (Kind::StopButton(_, press), "custom") if data["content"]["event"] == "click" => press.act(),
            (Kind::Widget(_), "custom") => {
                state.keep(exchange, &comm_id, None, for_cells(data["content"].clone(), buffers));
            }
            (Kind::Widget(widget) | Kind::StopButton(widget, _), "update") => match widget.merge(&data, buffers) {
                // The echo is for other views of the notebook, and for clients that wait until the kernel has the value.
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

    fn closed(&self, FromFrontEnd { comm_id, .. }: FromFrontEnd) {
        let mut state = self.lock();
        let State { comms, untaken, .. } = &mut *state;
        let Some(comm) = comms.get_mut(&comm_id) else {
            return tracing::debug!(comm_id, "comm_close of a comm that is not open");
        };
        if untaken.has_first(&comm_id) {
            untaken.forget(&comm_id);
        }
        comm.is_closed = true;
        if !comm.is_usable() && !untaken.has(&comm_id) {
            comms.remove(&comm_id);
        }
    }

    /// Carries out a cell's action on a comm. Published messages have the request of the cell as their `parent`.
    pub(super) fn act(&self, parent: &Parent, cell: &Arc<CellKey>, action: CommAction) -> Answer {
        match self.answer(parent, cell, action) {
            Ok(Some(learned)) => Answer::Comm { learned },
            Ok(None) => Answer::Done,
            Err(reason) => Answer::Refused { reason },
        }
    }

    fn answer(&self, parent: &Parent, cell: &Arc<CellKey>, action: CommAction) -> Result<Option<CommAnswer>, String> {
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
                let maker = matches!(kind, Kind::Widget(_)).then(|| Maker::new(cell));
                state.comms.insert(id.clone(), Comm { maker, ..Comm::own(target, kind) });
                Ok(Some(CommAnswer::Opened { id }))
            }
            CommAction::Send { comm, message } if comm == HOLDER => {
                state.hold(&self.iopub, parent, &release::held(&message)?);
                Ok(None)
            }
            CommAction::Send { comm: id, message } => {
                state.reopen(&self.iopub, parent, &id);
                let (comm, buffers) = (state.usable(&id)?, bytes(&message)?);
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
                state.usable(&id)?;
                state.comms.remove(&id);
                state.untaken.forget(&id);
                let (content, buffers) = (json!({"comm_id": id, "data": message.data}), bytes(&message)?);
                self.iopub.publish_with(parent, "comm_close", &Value::Object(message.metadata), content, &buffers);
                Ok(None)
            }
            CommAction::Take { comm: id } => {
                let is_usable = state.comms.get(&id).ok_or_else(|| not_open(&id))?.is_usable();
                let messages = state.untaken.take(&id);
                if !is_usable {
                    state.comms.remove(&id);
                }
                Ok(Some(CommAnswer::Messages { messages }))
            }
            CommAction::State { comm: id } => {
                state.reopen(&self.iopub, parent, &id);
                match &state.usable(&id)?.kind {
                    Kind::Widget(widget) => Ok(Some(CommAnswer::State { values: widget.values.clone() })),
                    Kind::Plain | Kind::StopButton(..) | Kind::Control => {
                        Err(format!("the comm {id} is not a widget's; it has no state"))
                    }
                }
            }
            CommAction::Accept { target } => {
                let opened = state.untaken.take_opened(&target);
                state.accepted.insert(target);
                Ok(Some(CommAnswer::Accepted { opened }))
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The comm with this id, if messages can be sent over it.
    fn usable(&mut self, id: &str) -> Result<&mut Comm, String> {
        self.comms.get_mut(id).filter(|comm| comm.is_usable()).ok_or_else(|| not_open(id))
    }

    /// Keeps a message for cells. With `opens`, it is the first message of a comm with this target.
    fn keep(&mut self, exchange: &Exchange, id: &str, opens: Option<&str>, message: CommMessage) {
        for unknown in self.untaken.keep(id, opens, message) {
            if self.comms.remove(&unknown).is_some() {
                exchange.publish("comm_close", json!({"comm_id": unknown, "data": {}}));
            }
        }
        let Self { comms, untaken, .. } = self;
        comms.retain(|id, comm| comm.is_usable() || untaken.has(id));
    }

    /// Opens a widget of the kernel's own, and returns its id.
    fn open_own(
        &mut self,
        iopub: &Iopub,
        parent: &Parent,
        values: Map<String, Value>,
        kind: impl FnOnce(WidgetState) -> Kind,
    ) -> String {
        let id = wire::random_id();
        let content = json!({"comm_id": id, "target_name": WIDGET, "data": model::opening(&values)});
        iopub.publish_with(parent, "comm_open", &json!({"version": model::PROTOCOL}), content, &[]);
        self.comms.insert(id.clone(), Comm::own(WIDGET.to_owned(), kind(WidgetState::of(values))));
        id
    }

    /// Opens a control of the kernel's own, such as `HTML`, with its layout and its style, such as `HTMLStyle`. Returns the ids of the
    /// layout, the style and the control.
    fn open_control(
        &mut self,
        iopub: &Iopub,
        parent: &Parent,
        [name, style]: [&str; 2],
        own: &Map<String, Value>,
        kind: impl FnOnce(WidgetState) -> Kind,
    ) -> [String; 3] {
        let layout = self.open_own(iopub, parent, model::layout(), Kind::Widget);
        let style = self.open_own(iopub, parent, model::style(style), Kind::Widget);
        let control = self.open_own(iopub, parent, model::control(name, &layout, &style, own), kind);
        [layout, style, control]
    }

    fn widgets(&self) -> impl Iterator<Item = (&str, &WidgetState)> {
        self.comms.iter().filter(|(_, comm)| !comm.is_closed).filter_map(|(id, comm)| match &comm.kind {
            Kind::Widget(widget) | Kind::StopButton(widget, _) => Some((id.as_str(), widget)),
            Kind::Plain | Kind::Control => None,
        })
    }
}

impl Comm {
    /// A comm that a cell or the kernel opens.
    fn own(target: String, kind: Kind) -> Self {
        Self { target, kind, is_own: true, is_closed: false, maker: None }
    }

    fn is_usable(&self) -> bool {
        !self.is_closed || (self.is_own && matches!(self.kind, Kind::Widget(_)))
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
