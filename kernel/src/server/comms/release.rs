//! Closes widgets of cells: those that no variable holds and whose cell has run again or is deleted.
//!
//! A front end never reports that it no longer shows a widget, and ipywidgets keeps every widget until the kernel ends. Here a
//! run of a cell replaces what its last run has shown, so nobody sees the widgets of the last run; and without a variable no
//! cell reads them. A widget that a loop has shown and dropped stays until its cell runs again, because the user sees it.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use ferrotune_display::widget::model;
use ferrotune_link::CommMessage;
use serde_json::{Value, json};

use super::{Comm, Kind, State};
use crate::server::exchange::{Exchange, Iopub};
use crate::server::wire::{Parent, Request};

/// How many released comms keep their state.
const KEPT: usize = 300;

/// The released comms that keep their state, oldest first. `%undo` can bring back a variable that holds one of them.
pub(super) type Released = VecDeque<String>;

/// The identity of a notebook cell.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::server) enum CellKey {
    /// The front end's id of the cell.
    Id(String),
    /// The cell's source, if the front end sends no id.
    Code(String),
}

impl CellKey {
    pub(in crate::server) fn of(request: &Request, code: &str) -> Self {
        match &request.notebook.cell_id {
            Some(id) => Self::Id(id.clone()),
            None => Self::Code(code.to_owned()),
        }
    }
}

/// The cell that has made a widget, and whether the widget is still needed.
pub(super) struct Maker {
    cell: Arc<CellKey>,
    /// Whether the cell has run again or is deleted: the front end then no longer shows the widget below it.
    is_replaced: bool,
    /// Whether a variable of the cell process holds the widget.
    is_held: bool,
}

impl Maker {
    /// The maker of a cell's widget. The widget counts as held until the cell process reports otherwise.
    pub(super) fn new(cell: &Arc<CellKey>) -> Self {
        Self { cell: cell.clone(), is_replaced: false, is_held: true }
    }

    /// The maker of one of the kernel's own widgets below a cell, which no variable can hold.
    pub(super) fn unheld(cell: &Arc<CellKey>) -> Self {
        Self { is_held: false, ..Self::new(cell) }
    }
}

/// The ids of the held widgets in the report of a cell process.
pub(super) fn held(report: &CommMessage) -> Result<BTreeSet<String>, String> {
    let ids = report.data.get("held").cloned().unwrap_or_default();
    serde_json::from_value(ids)
        .map_err(|error| format!("the list of widgets that variables hold is unreadable: {error}"))
}

impl super::Comms {
    /// Closes, at the start of a cell, the widgets of its last run and of deleted cells that no variable holds.
    pub(in crate::server) fn begin_cell(&self, exchange: &Exchange, cell: &CellKey) {
        let deleted = &exchange.request.notebook.deleted_cells;
        let is_replaced = |maker: &CellKey| maker == cell || matches!(maker, CellKey::Id(id) if deleted.contains(id));
        let mut state = self.lock();
        let makers = state.comms.values_mut().filter_map(|comm| comm.maker.as_mut());
        makers.filter(|maker| is_replaced(&maker.cell)).for_each(|maker| maker.is_replaced = true);
        state.release(&self.iopub, &exchange.request.parent);
    }
}

impl State {
    /// Records the comms that variables hold, as the cell process has reported them, and closes and reopens widgets accordingly.
    pub(super) fn hold(&mut self, iopub: &Iopub, parent: &Parent, held: &BTreeSet<String>) {
        for (id, comm) in &mut self.comms {
            if let Some(maker) = &mut comm.maker {
                maker.is_held = held.contains(id);
            }
        }
        held.iter().for_each(|id| self.reopen(iopub, parent, id));
        self.release(iopub, parent);
    }

    fn release(&mut self, iopub: &Iopub, parent: &Parent) {
        let is_done = |comm: &Comm| comm.maker.as_ref().is_some_and(|maker| maker.is_replaced && !maker.is_held);
        let done = self.comms.iter().filter(|(id, comm)| is_done(comm) && !self.released.contains(id));
        let mut done: Vec<(bool, String)> = done.map(|(id, comm)| (comm.has_parts(), id.clone())).collect();
        // A widget is closed before its layout and style.
        done.sort_by_key(|(has_parts, _)| !has_parts);
        for (_, id) in done {
            iopub.publish(parent, "comm_close", json!({"comm_id": id, "data": {}}));
            if let Some(comm) = self.comms.get_mut(&id) {
                comm.is_closed = true;
            }
            self.released.push_back(id);
        }
        while self.released.len() > KEPT {
            let Some(oldest) = self.released.pop_front() else { break };
            self.comms.remove(&oldest);
            self.untaken.forget(&oldest);
        }
    }

    /// Opens a released widget again, with its layout and style, because a variable or a cell uses the widget after all.
    pub(super) fn reopen(&mut self, iopub: &Iopub, parent: &Parent, id: &str) {
        let Some(at) = self.released.iter().position(|released| released == id) else { return };
        self.released.remove(at);
        let Some(Kind::Widget(widget)) = self.comms.get(id).map(|comm| &comm.kind) else { return };
        let (mut data, buffers) = widget.update();
        for part in ["layout", "style"] {
            if let Some(part) = data["state"][part].as_str().and_then(|part| part.strip_prefix("IPY_MODEL_")) {
                self.reopen(iopub, parent, part);
            }
        }
        let Some(comm) = self.comms.get_mut(id) else { return };
        comm.is_closed = false;
        if let Some(maker) = &mut comm.maker {
            maker.is_held = true;
        }
        let state = data["state"].take();
        let data = json!({"state": state, "buffer_paths": data["buffer_paths"].take()});
        let content = json!({"comm_id": id, "target_name": model::TARGET, "data": data});
        iopub.publish_with(parent, "comm_open", &json!({"version": model::PROTOCOL}), content, &buffers);
    }
}

impl Comm {
    /// Whether the comm is a widget that refers to a layout.
    fn has_parts(&self) -> bool {
        matches!(&self.kind, Kind::Widget(widget) if matches!(widget.values.get("layout"), Some(Value::String(_))))
    }
}
