//! The button that stops a search: the kernel's own widget, which is only shown if a front end has asked for widgets.

use ferrotune_display::Bundle;
use ferrotune_display::widget::model;
use serde_json::json;

use super::Kind;
use crate::execution::Press;
use crate::server::wire::Parent;

/// The text that another front end of the same notebook shows if it has no widgets.
const FALLBACK: &str = "%tune stop or an interrupt stops the search";

/// The ids of a button's layout, of its style and of itself.
pub(super) type Comms = [String; 3];

impl super::Comms {
    /// Opens the button of a search; none if no front end has asked for widgets.
    pub(in crate::server) fn show_stop_button(&self, parent: &Parent, id: &str, press: Press) -> Option<Bundle> {
        let mut state = self.lock();
        if !state.has_widgets {
            return None;
        }
        let own =
            json!({"description": "Stop", "icon": "stop", "tooltip": "stop after the current step of each trial"});
        let own = own.as_object().cloned().unwrap_or_default();
        let kind = |widget| Kind::StopButton(widget, press);
        let comms = state.open_control(&self.iopub, parent, ["Button", "ButtonStyle"], &own, kind);
        let bundle = model::view(&comms[2], Bundle::text(FALLBACK));
        state.stop_buttons.insert(id.to_owned(), comms);
        Some(bundle)
    }

    /// Closes the button of a search, and returns whether there was one.
    pub(in crate::server) fn close_stop_button(&self, parent: &Parent, id: &str) -> bool {
        let mut state = self.lock();
        let Some(comms) = state.stop_buttons.remove(id) else { return false };
        for comm in comms.into_iter().rev() {
            if state.comms.remove(&comm).is_some() {
                self.iopub.publish(parent, "comm_close", json!({"comm_id": comm, "data": {}}));
            }
        }
        true
    }
}
