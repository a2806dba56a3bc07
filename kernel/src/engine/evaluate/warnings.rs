//! The compiler's warnings about lines of the cell. Warnings about earlier cells and about evcxr's own code are left out.

use crate::diagnostic::{number, primary_span};
use crate::engine::Engine;
use crate::engine::evaluate::insertions::Insertions;
use crate::engine::evaluate::place::{Place, SplitCell};
use crate::engine::evaluate::report::marked;
use crate::execution::{Output, Stream};
use crate::failure::{BLUE, BOLD, PLAIN, YELLOW};
use serde_json::Value;

impl Engine {
    /// Shows the compiler's warnings about a compiled cell. `cell` has the user's lines, and `prepared` the prepared lines for evcxr.
    pub(in crate::engine) fn show_warnings(&self, cell: &str, prepared: &str, insertions: &Insertions) {
        let diagnostics = self.link.take_warnings();
        if diagnostics.is_empty() {
            return;
        }
        let generated = self.evaluator.last_source();
        let generated: Vec<&str> = generated.lines().collect();
        let split = SplitCell::of(prepared);
        let place = |line| {
            let place = split.place(&generated, line)?;
            let (own, line) = (cell.lines().nth(place.line - 1)?, prepared.lines().nth(place.line - 1)?);
            // A generated line, which the user has not written, shows no warning.
            (insertions.original_line(place.line, line) == own).then_some((place, own.to_owned()))
        };
        for lines in diagnostics.iter().filter_map(|warning| warning_lines(warning, place, insertions)) {
            self.link.emit(Output::Stream(Stream::Stderr, format!("{}\n", lines.join("\n"))));
        }
    }
}

/// The lines of a warning, with its line of the cell, which `find` finds; none if the warning is not about a line of the cell.
fn warning_lines(
    warning: &Value,
    find: impl Fn(usize) -> Option<(Place, String)>,
    insertions: &Insertions,
) -> Option<Vec<String>> {
    let span = primary_span(warning)?;
    let (start, end) = (number(span, "line_start")?, number(span, "line_end")?);
    let (place, shown) = find(start)?;
    let column = |name: &str| {
        let column = number(span, name)? + place.shift;
        Some(insertions.original_column(place.line, column))
    };
    let first = column("column_start")?;
    let last = if start == end { column("column_end")? } else { shown.chars().count() + 1 };
    let marks = "^".repeat(last.saturating_sub(first).max(1));
    let label = span["label"].as_str().unwrap_or_default();
    let mut lines = vec![format!(
        "{YELLOW}{BOLD}warning{PLAIN}: {} (line {}, column {first})",
        warning["message"].as_str()?,
        place.line
    )];
    lines.extend(marked(place.line, &shown, first, format!("{YELLOW}{marks}{PLAIN} {label}").trim_end()));
    let children = warning["children"].as_array().into_iter().flatten();
    let advice = children.filter_map(|child| Some((child["level"].as_str()?, child["message"].as_str()?)));
    // A note that names the lint only says where the lint is set.
    let advice = advice.filter(|(_, message)| !message.contains("on by default"));
    lines.extend(advice.map(|(level, message)| format!("{BLUE}{level}{PLAIN}: {}", heeded(message))));
    Some(lines)
}

/// The advice to show in place of rustc's. rustc's advice for an unused `Result` hides the error. A `?` does not hide the error, and
/// allows a trial to be pruned.
fn heeded(advice: &str) -> &str {
    let ignores = advice.starts_with("use `let _ = ...` to ignore");
    if ignores { "write `?` behind it, so that its error ends the cell, or the trial as it should" } else { advice }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_warning_is_shown_with_its_line_and_one_about_an_earlier_cell_is_not() {
        let warning = json!({
            "message": "unused `Result` that must be used",
            "spans": [{"is_primary": true, "line_start": 3, "line_end": 3, "column_start": 1, "column_end": 7, "label": null}],
            "children": [
                {"level": "note", "message": "`#[warn(unused_must_use)]` (part of `#[warn(unused)]`) on by default"},
                {"level": "help", "message": "use `let _ = ...` to ignore the resulting value"},
            ],
        });
        let shown = |cell: &str| {
            let generated = ["pub extern \"C-unwind\" fn run_user_code_1() {", "let a = 1; ", "call();", "}"];
            let find = |line| Some((SplitCell::of(cell).place(&generated, line)?, cell.to_owned()));
            warning_lines(&warning, find, &Insertions::default())
        };
        let plain = |line: &String| {
            [YELLOW, BLUE, BOLD, PLAIN].iter().fold(line.clone(), |line, colour| line.replace(colour, ""))
        };
        let lines: Vec<String> = shown("let a = 1; call();").unwrap_or_default().iter().map(plain).collect();
        let expected = [
            "warning: unused `Result` that must be used (line 1, column 12)",
            "   1 | let a = 1; call();",
            "     |            ^^^^^^",
            "help: write `?` behind it, so that its error ends the cell, or the trial as it should",
        ];
        assert_eq!(lines, expected);
        assert_eq!(shown("let a = 1;"), None);
    }
}
