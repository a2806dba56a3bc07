//! Splits rustc's messages, which are lines of JSON: evcxr gets the errors, in a form that it does not misread, and the kernel gets
//! the warnings.

use crate::diagnostic::{primary_span, replacements, with_suggested};
use serde_json::Value;

/// A variable that evcxr puts behind the last line of a cell.
const BEHIND_CELL: &str = "`evcxr_variable_store`";

/// The type that evcxr gives the error of a cell.
const ERROR_TYPE: &str = "EvcxrUserCodeError";

/// The message about a `return` with a value.
const RETURN: &str = "a cell returns no value: write it as the last expression, or end the cell with `return Ok(());`";

/// The texts of notes whose places say to evcxr which variable borrows.
const REQUIREMENTS: [&str; 2] = ["requirement that the value outlives", "requires argument type to outlive"];

/// The messages that rustc has written.
pub(super) struct Messages {
    /// Lines of JSON for evcxr.
    pub(super) errors: Vec<u8>,
    pub(super) warnings: Vec<Value>,
}

impl Messages {
    pub(super) fn read(bytes: &[u8]) -> Messages {
        let mut messages = Messages { errors: Vec::new(), warnings: Vec::new() };
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            match serde_json::from_slice::<Value>(line) {
                Ok(warning) if warning["level"] == "warning" => messages.warnings.push(warning),
                Ok(mut error) if error["spans"].is_array() => {
                    for_evcxr(&mut error);
                    messages.errors.extend(error.to_string().as_bytes());
                    messages.errors.push(b'\n');
                }
                _ => messages.errors.extend(line),
            }
        }
        // The summary of all warnings has no code.
        messages.warnings.retain(|warning| warning["code"].is_object());
        messages
    }
}

/// Prepares an error for evcxr. evcxr mistakes a suggestion about another line for the error itself, so such a suggestion becomes
/// plain text.
fn for_evcxr(error: &mut Value) {
    let line = primary_span(error).map(|span| span["line_start"].clone());
    for child in error["children"].as_array_mut().into_iter().flatten() {
        let message = child["message"].as_str().unwrap_or_default();
        if REQUIREMENTS.iter().any(|requirement| message.contains(requirement)) {
            continue;
        }
        let spans = child["spans"].as_array().map_or(&[][..], Vec::as_slice);
        if spans.is_empty() || spans.iter().any(|span| Some(&span["line_start"]) == line.as_ref()) {
            continue;
        }
        if let Some(message) = child["message"].as_str() {
            child["message"] = Value::from(with_suggested(message, &replacements(child)));
        }
        child["spans"] = Value::Array(Vec::new());
    }
    reword(error, BEHIND_CELL, "the end of the cell");
    without_function(error);
}

/// Removes from an error what is true of the function in which evcxr puts the statements, and of no cell.
fn without_function(error: &mut Value) {
    let is_of_function = |span: &Value| span["text"][0]["text"].as_str().is_some_and(|text| text.contains(ERROR_TYPE));
    let encloses = |span: &Value| span["label"] == "enclosing closure" && is_of_function(span);
    if let Some(spans) = error["spans"].as_array_mut()
        && spans.iter().any(encloses)
    {
        spans.retain(|span| !encloses(span));
        spans.iter_mut().for_each(|span| span["label"] = Value::from("outside of a loop"));
        let message = error["message"].as_str().unwrap_or_default();
        error["message"] = Value::from(message.replace("inside of a closure", "outside of a loop"));
    }
    let returns = primary_span(error).is_some_and(|span| {
        let text = span["text"][0]["text"].as_str().unwrap_or_default();
        span["label"].as_str().is_some_and(|label| label.contains(ERROR_TYPE)) && text.contains("return")
    });
    if returns {
        error["message"] = Value::from(RETURN);
    }
    reword(error, ERROR_TYPE, "Error");
    let notes = error["children"].as_array_mut().into_iter().flatten();
    notes.for_each(|note| replace(&mut note["message"], ERROR_TYPE, "Error"));
}

/// Replaces a word of evcxr's in an error's message and labels.
fn reword(error: &mut Value, word: &str, plain: &str) {
    replace(&mut error["message"], word, plain);
    let spans = error["spans"].as_array_mut().into_iter().flatten();
    spans.for_each(|span| replace(&mut span["label"], word, plain));
}

fn replace(text: &mut Value, word: &str, plain: &str) {
    if let Some(changed) = text.as_str().filter(|text| text.contains(word)).map(|text| text.replace(word, plain)) {
        *text = Value::from(changed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn warnings_are_the_kernels_and_errors_are_evcxrs() {
        let span = |line: u32| json!({"is_primary": true, "line_start": line, "label": "found `evcxr_variable_store`"});
        let import = json!({"line_start": 1, "suggested_replacement": "use std::process::exit;\n\n"});
        let error = json!({
            "level": "error", "message": "expected `;`, found `evcxr_variable_store`", "spans": [span(7)],
            "children": [
                {"message": "consider importing this function", "spans": [import]},
                {"message": "add it", "spans": [{"line_start": 7, "suggested_replacement": ";"}]},
            ],
        });
        let warning = json!({"level": "warning", "code": {"code": "unused_must_use"}, "spans": [span(1)]});
        let summary = json!({"level": "warning", "code": null, "spans": []});
        let text = format!("{error}\n{warning}\nno JSON\n{summary}\n");
        let messages = Messages::read(text.as_bytes());
        assert_eq!(messages.warnings, [warning]);
        let lines: Vec<&[u8]> = messages.errors.split(|byte| *byte == b'\n').collect();
        assert_eq!(lines[1..], [b"no JSON".as_slice(), b""]);
        let error: Value = serde_json::from_slice(lines[0]).unwrap_or_default();
        assert_eq!(error["message"], "expected `;`, found the end of the cell");
        assert_eq!(error["spans"][0]["label"], "found the end of the cell");
        assert_eq!(error["children"][0]["message"], "consider importing this function: `use std::process::exit;`");
        assert_eq!(error["children"][0]["spans"], json!([]));
        assert_eq!(error["children"][1]["spans"][0]["suggested_replacement"], ";");
    }
}
