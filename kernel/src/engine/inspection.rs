//! Completion and documentation: magics and `:commands` from their tables, Rust from evcxr, which asks rust-analyzer.
//! Runs nothing.

mod analysed;
mod hover;
mod values;

use super::{Engine, commands};
use crate::execution::{Completion, Completions};
use analysed::Analysed;
use ferrotune_display::Bundle;
use ferrotune_magics::Matches;
use serde_json::{Map, Value};
use std::collections::HashSet;

impl Engine {
    /// What may stand at the cursor.
    pub(super) fn complete(&mut self, code: &str, cursor: usize) -> Completions {
        let line_start = line_start(code, cursor);
        let line = &code[line_start..cursor];
        if is_magic(line.trim_start()) {
            let found = ferrotune_magics::complete(line);
            let (start, word) = (line_start + found.start, &line[found.start..]);
            match found.matches {
                Matches::Names(names) => return of_names(start, cursor, names),
                Matches::Of(values) => return of_names(start, cursor, self.values(values, word)),
                Matches::Rust => {}
            }
        }
        if let Some((start, names)) = commands::complete(code, cursor) {
            return of_names(start, cursor, names);
        }
        let analysed = Analysed::of(code, cursor);
        match self.evaluator.completions(&analysed.source, analysed.cursor) {
            Ok(found) => {
                let (start, end) = (analysed.in_cell(found.start_offset), analysed.in_cell(found.end_offset));
                let has_show = self.evaluator.item_names().any(|name| name == SHOW);
                let is_shown = |name: &str| !is_internal(name) && (name != SHOW || has_show);
                let matches = found.completions.into_iter().filter(|found| is_shown(&found.code));
                let matches = matches.map(|found| Completion { text: name(&found.code), kind: found.kind.to_owned() });
                let mut known = HashSet::new();
                let matches =
                    matches.filter(|found| known.insert(found.text.trim_end_matches("()").to_owned())).collect();
                Completions { start, end, matches }
            }
            Err(error) => {
                tracing::debug!("no completions: {error}");
                Completions::none(cursor)
            }
        }
    }

    /// Documentation of what is at the cursor, as a MIME bundle; empty if there is none.
    pub(super) fn inspect(&mut self, code: &str, cursor: usize) -> Map<String, Value> {
        let line = code[line_start(code, cursor)..].lines().next().unwrap_or_default();
        if let Some(magic) = line.strip_prefix('%') {
            let name = magic.trim_start_matches('%').split(|c| !is_of_name(c)).next().unwrap_or_default();
            return ferrotune_magics::help(name).map(|help| Bundle::text(help).data).unwrap_or_default();
        }
        let end = code[cursor..].find(|c| !is_of_name(c)).map_or(code.len(), |length| cursor + length);
        let analysed = Analysed::of(code, end);
        match self.evaluator.hover(&analysed.source, analysed.cursor) {
            Ok((text, _)) if text == "No documentation found" => Map::new(),
            Ok((text, html)) => Bundle::text(hover::text(&text)).with("text/html", hover::html(&html)).data,
            Err(error) => {
                tracing::debug!("nothing to inspect: {error}");
                Map::new()
            }
        }
    }
}

/// Whether a name is evcxr's or the kernel's own, which they write into every cell.
fn is_internal(name: &str) -> bool {
    ["evcxr_", "Evcxr", "run_user_code_", "ferrotune_shared", "ferrotune_impl_", "vars_ok"]
        .iter()
        .any(|internal| name.starts_with(internal))
}

/// The trait by which cells show values. A user's own one has the same name.
const SHOW: &str = "Show";

/// A completion without the arguments and fields that evcxr writes into it, and without the marks of a snippet. A call without
/// arguments stays one.
fn name(code: &str) -> String {
    let end = code.find(['(', '{', '$']).unwrap_or(code.len());
    match code[..end].trim_end() {
        "" => code.to_owned(),
        _ if &code[end..] == "()" => code.to_owned(),
        name => name.to_owned(),
    }
}

fn of_names<N: Into<String>>(start: usize, end: usize, names: impl IntoIterator<Item = N>) -> Completions {
    let matches = names.into_iter().map(|name| Completion { text: name.into(), kind: "magic".to_owned() });
    Completions { start, end, matches: matches.collect() }
}

/// Whether a line begins with a magic, and not with Rust's remainder operator.
fn is_magic(line: &str) -> bool {
    line.strip_prefix('%').is_some_and(|rest| !rest.starts_with([' ', '=']))
}

fn line_start(code: &str, cursor: usize) -> usize {
    code[..cursor].rfind('\n').map_or(0, |newline| newline + 1)
}

fn is_of_name(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}
