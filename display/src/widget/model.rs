//! The initial states of ipywidgets' models, and the bundle that shows a model. No IO: cells and the kernel share this module.

use crate::Bundle;
use serde_json::{Map, Value, json};

/// The target of widgets' comms.
pub const TARGET: &str = "jupyter.widget";
/// The version of the protocol of Jupyter widgets, which the metadata of a `comm_open` contain.
pub const PROTOCOL: &str = "2.1.0";
/// The version of ipywidgets' models of layouts and of controls.
const MODELS: &str = "2.0.0";
/// The number of letters for which ipywidgets has room in a label, and the width of a control without its label.
const SHORT_LABEL: usize = 10;
const BESIDE_LABEL_PX: u32 = 220;
const BASE: &str = "@jupyter-widgets/base";
const CONTROLS: &str = "@jupyter-widgets/controls";

/// The state of a layout with ipywidgets' defaults.
pub fn layout() -> Map<String, Value> {
    model(BASE, "Layout", BASE, "LayoutView")
}

/// The state of the layout of a control with this label. If the label is longer than ipywidgets' room for it, the control is
/// wider, so that the label takes no width from the rest of the control.
pub fn layout_of(control: &str, label: &str) -> Map<String, Value> {
    let mut state = layout();
    let letters = label.chars().count();
    if letters > SHORT_LABEL {
        let width = match control {
            "Button" => "max-content".to_owned(),
            _ => format!("calc({BESIDE_LABEL_PX}px + {letters}ch)"),
        };
        state.insert("width".to_owned(), json!(width));
    }
    state
}

/// The state of a style, such as `SliderStyle`, with ipywidgets' defaults, except that a label is as wide as its text: ipywidgets
/// cuts labels of more than 80 pixels.
pub fn style(name: &str) -> Map<String, Value> {
    let mut state = model(CONTROLS, name, BASE, "StyleView");
    // The label of a button is inside the button.
    if name != "ButtonStyle" {
        state.insert("description_width".to_owned(), json!("initial"));
    }
    state
}

/// The state of a control, such as `IntSlider`, with the ids of its layout and style and with its own values.
pub fn control(name: &str, layout: &str, style: &str, own: &Map<String, Value>) -> Map<String, Value> {
    let mut state = model(CONTROLS, name, CONTROLS, &format!("{}View", view_of(name)));
    for (part, id) in [("layout", layout), ("style", style)] {
        state.insert(part.to_owned(), json!(format!("IPY_MODEL_{id}")));
    }
    state.extend(own.clone());
    state
}

/// The name of a control's view, which differs from the control's name for some controls.
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

/// A bundle that also shows the widget with this id, if the front end has widgets.
pub fn view(id: &str, fallback: Bundle) -> Bundle {
    let view = json!({"model_id": id, "version_major": 2, "version_minor": 0});
    fallback.with("application/vnd.jupyter.widget-view+json", view)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_beside_controls_have_the_width_of_their_text() {
        for name in
            ["SliderStyle", "DescriptionStyle", "TextStyle", "CheckboxStyle", "ProgressStyle", "ToggleButtonsStyle"]
        {
            assert_eq!(style(name)["description_width"], "initial", "{name}");
        }
        assert!(!style("ButtonStyle").contains_key("description_width"));
    }

    #[test]
    fn a_long_label_makes_its_control_wider() {
        let width = |control, label| layout_of(control, label).remove("width");
        assert_eq!(width("IntSlider", "ten lettés"), None);
        assert_eq!(width("IntSlider", "eleven ones"), Some(json!("calc(220px + 11ch)")));
        assert_eq!(width("Button", "eleven ones"), Some(json!("max-content")));
    }

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
