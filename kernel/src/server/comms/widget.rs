//! The state of one widget, as cells and front ends have set it, and the messages that carry it.

use serde_json::{Map, Value, json};

/// The values of a widget, and its binary data, which is not among the values.
#[derive(Debug, Default)]
pub(super) struct WidgetState {
    pub(super) values: Map<String, Value>,
    /// The binary buffers, each with its path: the keys and indices of its place in the values.
    buffers: Vec<(Vec<Value>, Vec<u8>)>,
}

impl WidgetState {
    /// The state in the data of a `comm_open`.
    pub(super) fn new(data: &Value, buffers: &[Vec<u8>]) -> Result<Self, &'static str> {
        let mut widget = Self::default();
        widget.merge(data, buffers)?;
        Ok(widget)
    }

    /// A state without binary data.
    pub(super) fn of(values: Map<String, Value>) -> Self {
        Self { values, buffers: Vec::new() }
    }

    /// Sets the values of an `update`. Other values stay as they are.
    pub(super) fn merge(&mut self, data: &Value, buffers: &[Vec<u8>]) -> Result<(), &'static str> {
        let values = data["state"].as_object().ok_or("the data of a widget has no `state` with its values")?;
        let paths = paths(data).ok_or("`buffer_paths` of a widget is not a list of lists")?;
        if paths.len() != buffers.len() {
            return Err("`buffer_paths` of a widget does not have one path for each buffer");
        }
        for (name, value) in values {
            self.buffers.retain(|(path, _)| path.first().is_none_or(|first| first != name));
            self.values.insert(name.clone(), value.clone());
        }
        for (path, buffer) in paths.into_iter().zip(buffers) {
            self.buffers.retain(|(own, _)| *own != path);
            self.buffers.push((path, buffer.clone()));
        }
        Ok(())
    }

    /// The data and buffers of an `update` with the whole state.
    pub(super) fn update(&self) -> (Value, Vec<Vec<u8>>) {
        let paths: Vec<_> = self.buffers.iter().map(|(path, _)| path).collect();
        let data = json!({"method": "update", "state": self.values, "buffer_paths": paths});
        (data, self.buffers.iter().map(|(_, buffer)| buffer.clone()).collect())
    }
}

fn paths(data: &Value) -> Option<Vec<Vec<Value>>> {
    match &data["buffer_paths"] {
        Value::Null => Some(Vec::new()),
        paths => paths.as_array()?.iter().map(|path| path.as_array().cloned()).collect(),
    }
}

/// The data and buffers of the answer to `request_states`: the whole state of all widgets.
pub(super) fn update_states<'a>(widgets: impl Iterator<Item = (&'a str, &'a WidgetState)>) -> (Value, Vec<Vec<u8>>) {
    let (mut states, mut paths, mut buffers) = (Map::new(), Vec::new(), Vec::new());
    for (id, WidgetState { values, buffers: own }) in widgets {
        let model = |name: &str| values.get(name).cloned().unwrap_or_default();
        let state = json!({
            "model_name": model("_model_name"),
            "model_module": model("_model_module"),
            "model_module_version": model("_model_module_version"),
            "state": values,
        });
        states.insert(id.to_owned(), state);
        for (path, buffer) in own {
            paths.push([&[json!(id), json!("state")], path.as_slice()].concat());
            buffers.push(buffer.clone());
        }
    }
    (json!({"method": "update_states", "states": states, "buffer_paths": paths}), buffers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_that_is_set_anew_loses_its_buffers_and_no_others() {
        let open = json!({"state": {"value": {}, "n": 1, "other": {}}, "buffer_paths": [["value", "x"], ["other", 0]]});
        let mut widget = WidgetState::new(&open, &[vec![1], vec![2]]).unwrap();
        widget.merge(&json!({"state": {"value": {}}, "buffer_paths": [["value", "y"]]}), &[vec![3]]).unwrap();
        let state = json!({"value": {}, "n": 1, "other": {}});
        let data = json!({"method": "update", "state": state, "buffer_paths": [["other", 0], ["value", "y"]]});
        assert_eq!(widget.update(), (data, vec![vec![2], vec![3]]));
        let (data, buffers) = update_states([("id", &widget)].into_iter());
        assert_eq!(data["buffer_paths"], json!([["id", "state", "other", 0], ["id", "state", "value", "y"]]));
        assert_eq!((data["states"]["id"]["state"].clone(), buffers.len()), (state, 2));
    }

    #[test]
    fn data_that_is_no_state_changes_nothing() {
        let mut widget = WidgetState::new(&json!({"state": {"n": 1}}), &[]).unwrap();
        for (data, buffers) in [
            (json!({}), vec![]),
            (json!({"state": 1}), vec![]),
            (json!({"state": {"n": 2}, "buffer_paths": 1}), vec![]),
            (json!({"state": {"n": 2}, "buffer_paths": [["n"]]}), vec![]),
            (json!({"state": {"n": 2}}), vec![vec![1]]),
        ] {
            widget.merge(&data, &buffers).unwrap_err();
        }
        assert_eq!(widget.values["n"], 1);
    }
}
