//! `is_complete_request`: whether Return in a console should run the cell or open another line. Brackets and literals
//! come from the same tokens by which a cell is split, the rest is a real parse of Rust. Whether the cell compiles is not
//! known here.

use ferrotune_magics::{Action, Ending, PartKind, Step, cell_magic, parse, split};
use syn::Block;
use syn::parse::Parser;

use crate::execution::Completeness;

const INDENT: &str = "    ";

/// Beyond these, brackets alone decide: the parser calls itself for each level.
const MAX_PARSED_BYTES: usize = 32 << 10;
const MAX_PARSED_DEPTH: usize = 128;
const PARSER_STACK_BYTES: usize = 256 << 20;

/// A cell that fails to parse but parses with one of these behind it has only been begun.
const CONTINUATIONS: [&str; 12] =
    [";", "0", "0;", "{}", "{};", "x", "x;", "x {}", "x {};", "x() {}", "x in x {}", "struct X;"];

/// Whether a cell can be run as it stands.
pub(crate) fn check(code: &str) -> Completeness {
    if let Some((_, body)) = cell_magic(code) {
        return check_cell_magic(code, body);
    }
    if matches!(parse(code).as_deref(), Ok([Step::Action(Action::Inspect(_))])) {
        return Completeness::Complete;
    }
    let split = split(code);
    // A doc comment is blank to magics, and what it documents is still to come.
    let is_rust = |kind| matches!(kind, PartKind::Rust | PartKind::Blank);
    let rust: String = split.parts.iter().map(|part| if is_rust(part.kind) { part.text } else { "\n" }).collect();
    match split.ending {
        Ending::Mismatch => Completeness::Invalid,
        Ending::InLiteral => Completeness::Incomplete { indent: String::new() },
        Ending::Open { depth } => Completeness::Incomplete { indent: INDENT.repeat(depth.min(MAX_PARSED_DEPTH)) },
        Ending::Closed if split.max_depth > MAX_PARSED_DEPTH || rust.len() > MAX_PARSED_BYTES => Completeness::Complete,
        Ending::Closed => check_on_large_stack(rust),
    }
}

/// As in IPython: a cell magic takes lines until an empty one.
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

fn check_on_large_stack(rust: String) -> Completeness {
    let thread = std::thread::Builder::new()
        .name("completeness".into())
        .stack_size(PARSER_STACK_BYTES)
        .spawn(move || check_rust(&rust));
    match thread.map(std::thread::JoinHandle::join) {
        Ok(Ok(completeness)) => completeness,
        Ok(Err(_)) | Err(_) => {
            tracing::warn!("cell could not be parsed for its completeness; it counts as complete");
            Completeness::Complete
        }
    }
}

fn check_rust(rust: &str) -> Completeness {
    let parses = |text: &str| Block::parse_within.parse_str(text).is_ok();
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
