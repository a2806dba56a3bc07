//! `is_complete_request`: decides whether Return in a console runs the cell or opens another line. Brackets and literals
//! come from the same tokens by which a cell is split; everything else is a real parse of Rust. Whether the cell compiles is
//! not checked.

use ferrotune_magics::{Action, Ending, Part, PartKind, Step, cell_magic, parse, split};

use crate::execution::Completeness;
use crate::statements::{self, MAX_PARSED_BYTES, MAX_PARSED_DEPTH};

const INDENT: &str = "    ";

/// The texts that complete a cell: a cell that parses only with one of them behind it is incomplete.
const CONTINUATIONS: [&str; 12] =
    [";", "0", "0;", "{}", "{};", "x", "x;", "x {}", "x {};", "x() {}", "x in x {}", "struct X;"];

/// Whether a cell can be run in its present form.
pub(crate) fn check(code: &str) -> Completeness {
    if let Some((_, body)) = cell_magic(code) {
        return check_cell_magic(code, body);
    }
    if matches!(parse(code).as_deref(), Ok([Step::Action(Action::Inspect(_))])) {
        return Completeness::Complete;
    }
    let split = split(code);
    // The splitter treats a doc comment as blank, but the item that the comment documents is still missing.
    let is_rust = |kind| matches!(kind, PartKind::Rust | PartKind::Blank);
    let rust: String = split.parts.iter().map(|part| if is_rust(part.kind) { part.text } else { "\n" }).collect();
    match split.ending {
        Ending::Mismatch { .. } => Completeness::Invalid,
        Ending::InLiteral { .. } => Completeness::Incomplete { indent: String::new() },
        Ending::Open { depth, .. } => Completeness::Incomplete { indent: INDENT.repeat(depth.min(MAX_PARSED_DEPTH)) },
        Ending::Closed if split.parts.last().is_some_and(Part::goes_on) => {
            Completeness::Incomplete { indent: String::new() }
        }
        Ending::Closed if split.max_depth > MAX_PARSED_DEPTH || rust.len() > MAX_PARSED_BYTES => Completeness::Complete,
        // A cell that cannot be parsed is for the compiler to judge.
        Ending::Closed => statements::on_large_stack(move || check_rust(&rust)).unwrap_or(Completeness::Complete),
    }
}

/// Checks a cell magic, which takes lines until an empty line, as in IPython.
fn check_cell_magic(cell: &str, body: &str) -> Completeness {
    if matches!(parse(cell).as_deref(), Ok([Step::Action(Action::Help { .. })])) {
        return Completeness::Complete;
    }
    let ended = body.rsplit_once('\n').is_some_and(|(_, last)| last.trim().is_empty());
    if !body.trim().is_empty() && ended {
        Completeness::Complete
    } else {
        Completeness::Incomplete { indent: String::new() }
    }
}

fn check_rust(rust: &str) -> Completeness {
    let parses = |text: &str| text.parse().ok().and_then(statements::parse).is_some();
    if parses(rust) {
        Completeness::Complete
    } else if CONTINUATIONS.iter().any(|continuation| parses(&format!("{rust}\n{continuation}"))) {
        let indent = if rust.trim_end().ends_with(']') { "" } else { INDENT };
        Completeness::Incomplete { indent: indent.into() }
    } else {
        Completeness::Invalid
    }
}

#[cfg(test)]
mod tests;
