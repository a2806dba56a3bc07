//! Knowledge of the notebook for completion and documentation: magics and `:commands` from their tables, Rust from evcxr's
//! rust-analyzer. The engine collects this knowledge after each cell. Runs nothing.

use super::analysed::Analysed;
use super::rust::Rust;
use super::{callee, crates, is_of_name, values};
use crate::engine::Engine;
use crate::engine::evaluate::commands;
use crate::engine::handlers::current_studies::CurrentStudies;
use crate::execution::{Completion, Completions};
use ferrotune_display::Bundle;
use ferrotune_magics::{Ending, Matches, Values, cell_magic, split};
use serde_json::{Map, Value};

/// Knowledge of the notebook after the last cell.
pub(in crate::engine) struct Knowledge {
    rust: RustKnowledge,
    /// Names of the notebook's checkpoints.
    checkpoints: Vec<String>,
    /// The current studies, which magics without a study's name use.
    pub(super) current_studies: CurrentStudies,
}

/// Knowledge of the notebook's Rust.
enum RustKnowledge {
    /// No knowledge of Rust, because cells cannot run, or because rust-analyzer could not read its sources.
    Nothing,
    /// No knowledge of Rust yet: rust-analyzer reads its sources when the engine is idle for the first time.
    Later,
    Known(Box<Rust>),
}

impl Engine {
    pub(in crate::engine) fn knowledge(&self) -> Knowledge {
        let items = || self.evaluator.item_names().into_iter().map(str::to_owned).collect();
        let rust = match self.evaluator.analysis() {
            Some((analyzer, state)) => RustKnowledge::Known(Box::new(Rust { analyzer, state, items: items() })),
            None if self.will_analyse() || self.evaluator.is_half_prepared() => RustKnowledge::Later,
            None => RustKnowledge::Nothing,
        };
        Knowledge {
            rust,
            checkpoints: self.undo.names().map(str::to_owned).collect(),
            current_studies: self.notebook.current_studies.clone(),
        }
    }
}

impl Knowledge {
    /// Knowledge without Rust, for the time before cells can run or after they no longer can.
    pub(in crate::engine) fn without_rust() -> Self {
        Self { rust: RustKnowledge::Nothing, checkpoints: Vec::new(), current_studies: CurrentStudies::default() }
    }

    /// Completions for the cursor. None if only a later `Knowledge` can answer.
    pub(super) fn complete(&self, code: &str, cursor: usize) -> Option<Completions> {
        let line_start = line_start(code, cursor);
        let line = &code[line_start..cursor];
        if let Some(found) = crates::complete(line) {
            return Some(Completions { start: line_start + found.start, end: cursor, ..found });
        }
        if is_magic(line.trim_start()) {
            let found = ferrotune_magics::complete(line);
            let (start, word) = (line_start + found.start, &line[found.start..]);
            match found.matches {
                Matches::Names(names) => return Some(of_names(start, cursor, names)),
                Matches::Of(values) => return Some(of_names(start, cursor, self.values(values, word))),
                Matches::Rust => {}
            }
        }
        if is_shell(code, line) {
            let word = line.rsplit(char::is_whitespace).next().unwrap_or(line);
            return Some(of_names(cursor - word.len(), cursor, self.values(Values::Path, word)));
        }
        if let Some((start, names)) = commands::complete(code, cursor) {
            return Some(of_names(start, cursor, names));
        }
        if let Some(found) = path_in_string(code, cursor) {
            return Some(found);
        }
        let rust = match &self.rust {
            RustKnowledge::Known(rust) => rust,
            RustKnowledge::Later => return None,
            RustKnowledge::Nothing => return Some(Completions::none(cursor)),
        };
        let analysed = Analysed::of(code, cursor);
        Some(match rust.complete(&analysed.source, analysed.cursor) {
            Ok(Completions { start, end, matches }) => {
                Completions { start: analysed.in_cell(start), end: analysed.in_cell(end), matches }
            }
            Err(error) => {
                tracing::debug!("no completions: {error}");
                Completions::none(cursor)
            }
        })
    }

    fn values(&self, values: Values, word: &str) -> Vec<String> {
        values::of(values, word, &self.checkpoints, &self.current_studies)
    }

    /// Documentation of the name at the cursor, as a MIME bundle; an empty bundle if there is no documentation. None if only a later
    /// `Knowledge` can answer.
    pub(in crate::engine) fn inspect(&self, code: &str, cursor: usize) -> Option<Map<String, Value>> {
        let line = code[line_start(code, cursor)..].lines().next().unwrap_or_default();
        if let Some(magic) = line.strip_prefix('%') {
            let name = magic.trim_start_matches('%').split(|c| !is_of_name(c)).next().unwrap_or_default();
            return Some(ferrotune_magics::help(name).map(|help| Bundle::text(help).data).unwrap_or_default());
        }
        let rust = match &self.rust {
            RustKnowledge::Known(rust) => rust,
            RustKnowledge::Later => return None,
            RustKnowledge::Nothing => return Some(Map::new()),
        };
        let end = code[cursor..].find(|c| !is_of_name(c)).map_or(code.len(), |length| cursor + length);
        let mut analysed = Analysed::of(code, end);
        analysed.cursor = callee::around(&analysed.source, analysed.cursor).unwrap_or(analysed.cursor);
        Some(rust.inspect(&analysed.source, analysed.cursor).unwrap_or_else(|error| {
            tracing::debug!("nothing to inspect: {error}");
            Map::new()
        }))
    }
}

/// Completions of a file's path in the string at the cursor; none if there is no string or no such file.
fn path_in_string(code: &str, cursor: usize) -> Option<Completions> {
    let Ending::InLiteral { at } = split(&code[..cursor]).ending else { return None };
    let start = at + 1 + code[at..cursor].find('"')?;
    let mut paths = values::paths(&code[start..cursor]);
    paths.retain(|path| path.starts_with(&code[start..cursor]) && !path.contains(['"', '\\']));
    paths.sort_unstable();
    let completion = |text| Completion { text, kind: "path".to_owned(), signature: String::new() };
    let matches: Vec<Completion> = paths.into_iter().map(completion).collect();
    (!matches.is_empty()).then_some(Completions { start, end: cursor, matches })
}

fn of_names<N: Into<String>>(start: usize, end: usize, names: impl IntoIterator<Item = N>) -> Completions {
    let completion = |name: N| Completion { text: name.into(), kind: "magic".to_owned(), signature: String::new() };
    Completions { start, end, matches: names.into_iter().map(completion).collect() }
}

/// Whether a line begins with a magic, and not with Rust's remainder operator.
fn is_magic(line: &str) -> bool {
    line.strip_prefix('%').is_some_and(|rest| !rest.starts_with([' ', '=']))
}

/// Whether a line is a line of shell.
fn is_shell(code: &str, line: &str) -> bool {
    let is_script = cell_magic(code).is_some_and(|(magic, _)| magic.text.trim_start().starts_with("%%bash"));
    is_script || line.trim_start().starts_with('!')
}

fn line_start(code: &str, cursor: usize) -> usize {
    code[..cursor].rfind('\n').map_or(0, |newline| newline + 1)
}
