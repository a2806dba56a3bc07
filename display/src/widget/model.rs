//! The states with which ipywidgets' models are opened, and the bundle that shows one. No IO: cells and the kernel share them.

use crate::Bundle;
use serde_json::{Map, Value, json};

/// The target of widgets' comms.
pub const TARGET: &str = "jupyter.widget";
/// The version of the protocol of Jupyter widgets, which the metadata of a `comm_open` holds.
pub const PROTOCOL: &str = "2.1.0";
/// The version of ipywidgets' models of layouts and of controls.
const MODELS: &str = "2.0.0";
const BASE: &str = "@jupyter-widgets/base";
const CONTROLS: &str = "@jupyter-widgets/controls";

/// The state of a layout with ipywidgets' defaults.
pub fn layout() -> Map<String, Value> {
    model(BASE, "Layout", BASE, "LayoutView")
}

/// The state of a style, such as `SliderStyle`, with ipywidgets' defaults.
pub fn style(name: &str) -> Map<String, Value> {
    model(CONTROLS, name, BASE, "StyleView")
}

/// The state of a control, such as `IntSlider`, with the ids of its layout and style and with values of its own.
pub fn control(name: &str, layout: &str, style: &str, own: &Map<String, Value>) -> Map<String, Value> {
    let mut state = model(CONTROLS, name, CONTROLS, &format!("{}View", view_of(name)));
    for (part, id) in [("layout", layout), ("style", style)] {
        state.insert(part.to_owned(), json!(format!("IPY_MODEL_{id}")));
    }
    state.extend(own.clone());
    state
}

/// The view of a control, which for some is not called as the control.
fn view_of(control: &str) -> &str {
    match control {
        "IntProgress" | "FloatProgress" => "Progress",
        "BoundedIntText" => "IntText",
        "BoundedFloatText" => "FloatText",
        "NaiveDatetime" => "Datetime",
        other => other,
    }
}

fn model(module: &str, name: &str, view_module: &str, view: &str) -> Map<String, Value> {
    let name = format!("{name}Model");
    let entries = [
        ("_model_module", module),
        ("_model_module_version", MODELS),
        ("_model_name", &name),
        ("_view_module", view_module),
        ("_view_module_version", MODELS),
        ("_view_name", view),
    ];
    entries.map(|(name, value)| (name.to_owned(), json!(value))).into_iter().collect()
}

/// The data of a `comm_open` with this state.
pub fn opening(state: &Map<String, Value>) -> Value {
    json!({"state": state, "buffer_paths": []})
}

/// A bundle that also shows the widget with this id, where the front end has widgets.
pub fn view(id: &str, fallback: Bundle) -> Bundle {
    let view = json!({"model_id": id, "version_major": 2, "version_minor": 0});
    fallback.with("application/vnd.jupyter.widget-view+json", view)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_control_has_the_view_that_ipywidgets_gives_it() {
        for (name, view) in [
            ("IntSlider", "IntSliderView"),
            ("IntProgress", "ProgressView"),
            ("FloatProgress", "ProgressView"),
            ("BoundedIntText", "IntTextView"),
            ("BoundedFloatText", "FloatTextView"),
            ("NaiveDatetime", "DatetimeView"),
        ] {
            let state = control(name, "layout", "style", &Map::new());
            assert_eq!((&state["_model_name"], &state["_view_name"]), (&json!(format!("{name}Model")), &json!(view)));
        }
        let own = Map::from_iter([("_view_name".to_owned(), json!("MyView"))]);
        assert_eq!(control("IntSlider", "layout", "style", &own)["_view_name"], "MyView");
    }
}
