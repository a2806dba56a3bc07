//! Publishes a cell's outputs on IOPub. Front ends drop messages that come too fast, so text is gathered into larger
//! pieces, and an update of a display is skipped if a later update replaces it soon. The order is kept, and nothing else is
//! lost.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use ferrotune_display::Bundle;
use ferrotune_link::{Answer, CommAction};
use serde_json::{Map, Value, json};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::cell_history::{CellHistory, Query};
use super::comms::{CellKey, Comms};
use super::exchange::Iopub;
use super::stdin::{Question, Stdin};
use super::terminal::Terminal;
use super::wire::Parent;
use crate::execution::{Output, Payload, Stage, Stream};
use crate::failure::Failure;

const GATHER: Duration = Duration::from_millis(50);
const GATHER_BYTES: usize = 256 << 10;
/// The time between two updates of one display: five a second.
const UPDATE_INTERVAL: Duration = Duration::from_millis(200);

/// The publisher of one cell's outputs.
pub(super) struct Screen {
    pub(super) iopub: Iopub,
    pub(super) parent: Parent,
    pub(super) execution_count: u32,
    /// Whether nothing is published.
    pub(super) silent: bool,
    /// The stdin channel and the routing frames of the client that answers input requests; none if the client answers none.
    pub(super) user: Option<(Stdin, Vec<Vec<u8>>)>,
    pub(super) pending: Pending,
    /// The history, which answers the engine's questions about the cells of this session.
    pub(super) history: CellHistory,
    pub(super) comms: Arc<Comms>,
    /// The cell that makes the outputs.
    pub(super) cell: Arc<CellKey>,
    /// The `payload` of the reply.
    pub(super) payload: Vec<Value>,
    /// The state of a terminal front end that ignores updates of displays; none for other front ends.
    pub(super) terminal: Option<Terminal>,
}

/// Outputs that are not published yet.
#[derive(Default)]
pub(super) struct Pending {
    text: Option<Text>,
    updates: HashMap<String, Update>,
}

struct Text {
    stream: Stream,
    text: String,
    due: Instant,
}

/// When a display may be updated again, and the update that waits for that time.
struct Update {
    due: Instant,
    content: Option<Value>,
}

impl Screen {
    /// Publishes until the cell has ended, and returns how it ended; none if the engine has ended without saying so.
    pub(super) async fn until_done(&mut self, outputs: &mut UnboundedReceiver<Output>) -> Option<Result<(), Failure>> {
        loop {
            let output = tokio::select! {
                biased;
                output = outputs.recv() => output,
                () = sleep_until(self.next_due()) => {
                    self.flush_due(Instant::now());
                    continue;
                }
            };
            match output {
                Some(Output::Done(result)) => {
                    self.finish();
                    return Some(result);
                }
                Some(Output::History { range, reply }) => {
                    let entries = self.history.find(Query::of_session(&range)).await;
                    let cells = entries.into_iter().map(|entry| (entry.line, entry.source)).collect();
                    if reply.send(cells).is_err() {
                        tracing::debug!("the engine no longer waits for the history");
                    }
                }
                Some(output) => self.show(output),
                None => {
                    self.finish();
                    return None;
                }
            }
            // Flushed here, too, since a cell that never pauses would starve the timer.
            self.flush_due(Instant::now());
        }
    }

    /// Publishes the outputs of background threads after the cell has ended.
    pub(super) async fn until_closed(mut self, mut outputs: UnboundedReceiver<Output>) {
        self.user = None;
        while self.until_done(&mut outputs).await.is_some() {
            tracing::warn!("a cell ended twice");
        }
    }

    fn show(&mut self, output: Output) {
        match output {
            Output::Stream(stream, text) => self.gather(stream, &text),
            Output::Lasting { display_id, bundle, stage } => self.show_lasting(display_id, bundle, stage),
            Output::Display { data, metadata, display_id: Some(id), update: true } => {
                let content = display(data, metadata, json!({"display_id": id}));
                self.update(id, content);
            }
            Output::Display { data, metadata, display_id, update: _ } => {
                let transient = match &display_id {
                    Some(id) => {
                        self.flush_update(id);
                        json!({"display_id": id})
                    }
                    None => json!({}),
                };
                self.publish("display_data", display(data, metadata, transient));
            }
            Output::Clear { wait } => {
                self.flush();
                self.publish("clear_output", json!({"wait": wait}));
            }
            Output::Result { data, metadata } => {
                let content = json!({"execution_count": self.execution_count, "data": data, "metadata": metadata});
                self.publish("execute_result", content);
            }
            Output::Input { prompt, password, reply } => {
                self.flush();
                if let Some((stdin, identities)) = &self.user {
                    let (identities, parent) = (identities.clone(), self.parent.clone());
                    stdin.ask(Question { identities, parent, prompt, password, reply });
                }
            }
            Output::Comm { action, reply } => {
                if matches!(action, CommAction::Open { .. } | CommAction::Send { .. } | CommAction::Close { .. }) {
                    self.flush_text();
                }
                answer(&self.comms, &self.parent, &self.cell, action, reply);
            }
            Output::StopButton { id, press } => {
                self.flush_text();
                if let Some(Bundle { data, metadata }) = self.comms.show_stop_button(&self.parent, &id, press) {
                    self.publish("display_data", display(data, metadata, json!({"display_id": id})));
                }
            }
            Output::StopButtonGone { id } => {
                if self.comms.close_stop_button(&self.parent, &id) {
                    let Bundle { data, metadata } = Bundle::text("");
                    self.publish("update_display_data", display(data, metadata, json!({"display_id": id})));
                }
            }
            Output::Payload(payload) => self.payload.push(entry(payload)),
            Output::Done(_) | Output::History { .. } => unreachable!("`until_done` takes it"),
        }
    }

    /// Shows a display as a widget, which a page that is loaded anew still shows. Such a page no longer knows the displays of
    /// earlier cells, and would drop their updates. In the last stage the display's own bundle, which a notebook keeps, replaces
    /// the widget.
    fn show_lasting(&mut self, id: String, bundle: Bundle, stage: Stage) {
        let transient = json!({"display_id": id});
        match stage {
            Stage::First => {
                self.flush_text();
                let has_widgets = !self.silent && self.terminal.is_none();
                let shown =
                    if has_widgets { self.comms.show_lasting(&self.parent, &self.cell, &id, bundle) } else { bundle };
                self.publish("display_data", display(shown.data, shown.metadata, transient));
            }
            Stage::Later => self.update(id, display(bundle.data, bundle.metadata, transient)),
            Stage::Last => {
                self.pending.updates.remove(&id);
                self.comms.update_lasting(&self.parent, &id, &bundle.data);
                self.publish("update_display_data", display(bundle.data, bundle.metadata, transient));
            }
        }
    }

    fn publish_update(&mut self, id: &str, content: Value) {
        let is_widget =
            content["data"].as_object().is_some_and(|data| self.comms.update_lasting(&self.parent, id, data));
        if !is_widget {
            self.publish("update_display_data", content);
        }
    }

    fn gather(&mut self, stream: Stream, text: &str) {
        if text.is_empty() {
            return;
        }
        if self.pending.text.as_ref().is_some_and(|pending| pending.stream != stream) {
            self.flush_text();
        }
        let pending =
            self.pending.text.get_or_insert_with(|| Text { stream, text: String::new(), due: Instant::now() + GATHER });
        pending.text.push_str(text);
        if pending.text.len() >= GATHER_BYTES {
            self.flush_text();
        }
    }

    fn update(&mut self, id: String, content: Value) {
        let now = Instant::now();
        match self.pending.updates.get_mut(&id) {
            Some(update) if update.due > now => update.content = Some(content),
            _ => {
                self.publish_update(&id, content);
                self.pending.updates.insert(id, Update { due: now + UPDATE_INTERVAL, content: None });
            }
        }
    }

    fn next_due(&self) -> Option<Instant> {
        let updates = self.pending.updates.values().filter(|update| update.content.is_some()).map(|update| update.due);
        updates.chain(self.pending.text.as_ref().map(|text| text.due)).min()
    }

    fn flush_due(&mut self, now: Instant) {
        if self.pending.text.as_ref().is_some_and(|text| text.due <= now) {
            self.flush_text();
        }
        let due: Vec<String> =
            self.pending.updates.iter().filter(|(_, update)| update.due <= now).map(|(id, _)| id.clone()).collect();
        for id in due {
            if let Some(Update { content: Some(content), .. }) = self.pending.updates.remove(&id) {
                self.update(id, content);
            }
        }
    }

    fn flush_update(&mut self, id: &str) {
        if let Some(content) = self.pending.updates.get_mut(id).and_then(|update| update.content.take()) {
            self.publish_update(id, content);
        }
    }

    fn flush(&mut self) {
        self.flush_text();
        let ids: Vec<String> = self.pending.updates.keys().cloned().collect();
        ids.iter().for_each(|id| self.flush_update(id));
    }

    fn flush_text(&mut self) {
        if let Some(Text { stream, text, .. }) = self.pending.text.take() {
            let name = match stream {
                Stream::Stdout => "stdout",
                Stream::Stderr => "stderr",
            };
            self.publish("stream", json!({"name": name, "text": text}));
        }
    }

    fn publish(&mut self, msg_type: &str, content: Value) {
        self.flush_text();
        let translated = match &mut self.terminal {
            Some(terminal) => terminal.translate(msg_type, content),
            None => Some((msg_type, content)),
        };
        self.send(translated);
    }

    /// Publishes the pending outputs, and what a terminal does not show yet. Later outputs cannot overwrite anything in a terminal.
    fn finish(&mut self) {
        self.flush();
        let left = self.terminal.take().and_then(|mut terminal| terminal.finish());
        self.send(left);
    }

    fn send(&self, message: Option<(&str, Value)>) {
        if let Some((msg_type, content)) = message.filter(|_| !self.silent) {
            self.iopub.publish(&self.parent, msg_type, content);
        }
    }
}

fn display(data: Map<String, Value>, metadata: Map<String, Value>, transient: Value) -> Value {
    json!({"data": data, "metadata": metadata, "transient": transient})
}

/// The JSON of a payload, as in the specification of `execute_reply`.
fn entry(payload: Payload) -> Value {
    match payload {
        Payload::Page(data) => json!({"source": "page", "data": data, "start": 0}),
        Payload::ReplaceCell(text) => json!({"source": "set_next_input", "text": text, "replace": true}),
        Payload::NextCell(text) => json!({"source": "set_next_input", "text": text, "replace": false}),
    }
}

async fn sleep_until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}

fn answer(comms: &Comms, parent: &Parent, cell: &Arc<CellKey>, action: CommAction, reply: oneshot::Sender<Answer>) {
    if reply.send(comms.act(parent, cell, action)).is_err() {
        tracing::debug!("the cell no longer waits for what became of its comm");
    }
}

/// Waits for the end of an expression, and returns its last `execute_result` or its failure. Other outputs are dropped, except
/// actions on comms.
pub(super) async fn capture(
    comms: &Comms,
    parent: &Parent,
    cell: &Arc<CellKey>,
    outputs: &mut UnboundedReceiver<Output>,
) -> Option<Result<Option<(Map<String, Value>, Map<String, Value>)>, Failure>> {
    let mut value = None;
    loop {
        match outputs.recv().await? {
            Output::Result { data, metadata } => value = Some((data, metadata)),
            Output::Done(result) => return Some(result.map(|()| value)),
            Output::Comm { action, reply } => answer(comms, parent, cell, action, reply),
            Output::Input { reply, .. } => drop::<oneshot::Sender<String>>(reply),
            Output::History { reply, .. } => drop(reply),
            Output::Stream(..)
            | Output::Display { .. }
            | Output::Lasting { .. }
            | Output::Clear { .. }
            | Output::StopButton { .. }
            | Output::StopButtonGone { .. }
            | Output::Payload(_) => {}
        }
    }
}
