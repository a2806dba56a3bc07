//! Knowledge of the notebook for completion and documentation: magics and `:commands` from their tables, Rust from evcxr's
//! rust-analyzer. The engine collects this knowledge after each cell. Runs nothing.

use super::analysed::Analysed;
use super::rust::Rust;
use super::{callee, crates, is_of_name, values};
use crate::allocator;
use crate::engine::Engine;
use crate::engine::evaluate::commands;
use crate::engine::handlers::current_studies::CurrentStudies;
use crate::execution::{Completion, Completions};
use anyhow::Result;
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
    /// No knowledge of Rust, because cells cannot run.
    Nothing,
    Known(Box<Rust>),
}

impl Engine {
    pub(in crate::engine) fn knowledge(&self) -> Knowledge {
        let items = || self.evaluator.item_names().into_iter().map(str::to_owned).collect();
        let rust = match self.evaluator.analysis() {
            Some((analyzer, state)) => RustKnowledge::Known(Box::new(Rust { analyzer, state, items: items() })),
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

    /// Makes rust-analyzer read its sources before the user asks it, and returns the memory that this has freed to the system.
    pub(super) fn prepare(&self) -> Result<()> {
        let RustKnowledge::Known(rust) = &self.rust else { return Ok(()) };
        // At the second source rust-analyzer frees the data of the first source.
        for source in ["let number = 1;\nnumb", "numb"] {
            rust.complete(source, source.len())?;
        }
        allocator::return_freed_memory();
        Ok(())
    }

    /// Completions for the cursor.
    pub(super) fn complete(&self, code: &str, cursor: usize) -> Completions {
        let line_start = line_start(code, cursor);
        let line = &code[line_start..cursor];
        if let Some(found) = crates::complete(line) {
            return Completions { start: line_start + found.start, end: cursor, ..found };
        }
        if is_magic(line.trim_start()) {
            let found = ferrotune_magics::complete(line);
            let (start, word) = (line_start + found.start, &line[found.start..]);
            match found.matches {
                Matches::Names(names) => return of_names(start, cursor, names),
                Matches::Of(values) => return of_names(start, cursor, self.values(values, word)),
                Matches::Rust => {}
            }
        }
        if is_shell(code, line) {
            let word = line.rsplit(char::is_whitespace).next().unwrap_or(line);
            return of_names(cursor - word.len(), cursor, self.values(Values::Path, word));
        }
        if let Some((start, names)) = commands::complete(code, cursor) {
            return of_names(start, cursor, names);
        }
        if let Some(found) = path_in_string(code, cursor) {
            return found;
        }
        let RustKnowledge::Known(rust) = &self.rust else { return Completions::none(cursor) };
        let analysed = Analysed::of(code, cursor);
        match rust.complete(&analysed.source, analysed.cursor) {
            Ok(Completions { start, end, matches }) => {
                Completions { start: analysed.in_cell(start), end: analysed.in_cell(end), matches }
            }
            Err(error) => {
                tracing::debug!("no completions: {error}");
                Completions::none(cursor)
            }
        }
    }

    fn values(&self, values: Values, word: &str) -> Vec<String> {
        values::of(values, word, &self.checkpoints, &self.current_studies)
    }

    /// Documentation of the name at the cursor, as a MIME bundle; an empty bundle if there is no documentation.
    pub(in crate::engine) fn inspect(&self, code: &str, cursor: usize) -> Result<Map<String, Value>> {
        let line = code[line_start(code, cursor)..].lines().next().unwrap_or_default();
        if let Some(magic) = line.strip_prefix('%') {
            let name = magic.trim_start_matches('%').split(|c| !is_of_name(c)).next().unwrap_or_default();
            return Ok(ferrotune_magics::help(name).map(|help| Bundle::text(help).data).unwrap_or_default());
        }
        let RustKnowledge::Known(rust) = &self.rust else { return Ok(Map::new()) };
        let end = code[cursor..].find(|c| !is_of_name(c)).map_or(code.len(), |length| cursor + length);
        let mut analysed = Analysed::of(code, end);
        analysed.cursor = callee::around(&analysed.source, analysed.cursor).unwrap_or(analysed.cursor);
        rust.inspect(&analysed.source, analysed.cursor)
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
