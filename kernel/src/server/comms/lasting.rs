//! Lasting displays: displays that still change after a page has been loaded anew. They are the kernel's own widgets, and only
//! shown if a front end has asked for widgets.

use std::sync::Arc;

use ferrotune_display::Bundle;
use ferrotune_display::widget::model;
use serde_json::{Map, Value, json};

use super::release::{CellKey, Maker};
use super::{Comm, Kind};
use crate::server::wire::Parent;

impl super::Comms {
    /// Opens the widget of a display, and returns the MIME bundle that shows the widget. Returns the display's own bundle if no front
    /// end has asked for widgets or the bundle has no HTML. The widget lasts until its cell runs again or is deleted.
    pub(in crate::server) fn show_lasting(
        &self,
        parent: &Parent,
        cell: &Arc<CellKey>,
        display: &str,
        bundle: Bundle,
    ) -> Bundle {
        let mut state = self.lock();
        let Some(value) = value(&bundle.data).filter(|_| state.has_widgets) else { return bundle };
        let own = Map::from_iter([("value".to_owned(), value)]);
        let comms = state.open_control(&self.iopub, parent, ["HTML", "HTMLStyle"], &own, Kind::Widget);
        for id in &comms {
            if let Some(comm) = state.comms.get_mut(id) {
                comm.maker = Some(Maker::unheld(cell));
            }
        }
        let [.., html] = comms;
        let shown = model::view(&html, bundle);
        state.lasting.insert(display.to_owned(), html);
        shown
    }

    /// Shows a later bundle in the widget of a display. Returns `false` if no such widget is open or the bundle has no HTML.
    pub(in crate::server) fn update_lasting(&self, parent: &Parent, display: &str, data: &Map<String, Value>) -> bool {
        let mut state = self.lock();
        let Some(id) = state.lasting.get(display).cloned() else { return false };
        let Some(Comm { kind: Kind::Widget(widget), is_closed: false, .. }) = state.comms.get_mut(&id) else {
            state.lasting.remove(display);
            return false;
        };
        let Some(value) = value(data) else { return false };
        widget.values.insert("value".to_owned(), value.clone());
        let change = json!({"method": "update", "state": {"value": value}, "buffer_paths": []});
        self.iopub.publish(parent, "comm_msg", json!({"comm_id": id, "data": change}));
        true
    }
}

/// The HTML of a bundle, with lines as close as in other outputs: ipywidgets gives them the height of a control.
fn value(data: &Map<String, Value>) -> Option<Value> {
    let html = data.get("text/html")?.as_str()?;
    Some(json!(format!("<div style=\"line-height: normal\">{html}</div>")))
}
