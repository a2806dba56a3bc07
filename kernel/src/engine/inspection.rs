//! Completion and documentation: magics and `:commands` from their tables, Rust from evcxr, which asks rust-analyzer.
//! Runs nothing.

use super::commands;
use super::evaluator::Evaluator;
use crate::execution::{Completion, Completions};
use ferrotune_display::Bundle;
use serde_json::{Map, Value};

/// What may stand at the cursor.
pub(super) fn complete(evaluator: &mut Evaluator, code: &str, cursor: usize) -> Completions {
    let line_start = line_start(code, cursor);
    let typed = &code[line_start..cursor];
    if typed.starts_with('%') {
        return of_names(line_start, cursor, ferrotune_magics::complete(typed));
    }
    if let Some((start, names)) = commands::complete(code, cursor) {
        return of_names(start, cursor, names);
    }
    match evaluator.completions(&commands::blanked(code), cursor) {
        Ok(found) => {
            let matches = found.completions.into_iter();
            let matches = matches.map(|found| Completion { text: found.code, kind: found.kind.to_owned() });
            Completions { start: found.start_offset, end: found.end_offset, matches: matches.collect() }
        }
        Err(error) => {
            tracing::debug!("no completions: {error}");
            Completions::none(cursor)
        }
    }
}

fn of_names(start: usize, end: usize, names: Vec<&str>) -> Completions {
    let matches = names.into_iter().map(|name| Completion { text: name.to_owned(), kind: "magic".to_owned() });
    Completions { start, end, matches: matches.collect() }
}

/// Documentation of what is at the cursor, as a MIME bundle; empty if there is none.
pub(super) fn inspect(evaluator: &mut Evaluator, code: &str, cursor: usize) -> Map<String, Value> {
    let line = code[line_start(code, cursor)..].lines().next().unwrap_or_default();
    if let Some(magic) = line.strip_prefix('%') {
        let name = magic.trim_start_matches('%').split(|c| !is_of_name(c)).next().unwrap_or_default();
        return ferrotune_magics::help(name).map(|help| Bundle::text(help).data).unwrap_or_default();
    }
    let end = code[cursor..].find(|c| !is_of_name(c)).map_or(code.len(), |length| cursor + length);
    match evaluator.hover(&commands::blanked(code), end) {
        Ok((text, _)) if text == "No documentation found" => Map::new(),
        Ok((text, html)) => Bundle::text(text).with("text/html", html).data,
        Err(error) => {
            tracing::debug!("nothing to inspect: {error}");
            Map::new()
        }
    }
}

fn line_start(code: &str, cursor: usize) -> usize {
    code[..cursor].rfind('\n').map_or(0, |newline| newline + 1)
}

fn is_of_name(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}
