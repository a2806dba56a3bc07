//! A cell as Rust that rust-analyzer understands: its magics are gone, and the closure of `%%tune` is called with a trial.

use crate::engine::commands;
use ferrotune_magics::{PartKind, cell_magic, split};

/// What stands before and behind the body of `%%tune`. The call tells rust-analyzer the type of the closure's argument.
const OBJECTIVE: (&str, &str) = ("let _ = ::ferrotune::tune::objective(::std::todo!(),\n", "\n);");

/// Rust in place of a cell.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Analysed {
    pub(super) source: String,
    /// Where the cell's cursor is in it.
    pub(super) cursor: usize,
    /// The length of what was taken out at the start, and of what is there instead.
    replaced: (usize, usize),
}

impl Analysed {
    /// The Rust of a cell with a cursor that is not in the line of `%%tune`.
    pub(super) fn of(code: &str, cursor: usize) -> Analysed {
        match cell_magic(code) {
            Some((line, body)) if line.text.trim_start().starts_with("%%tune") => {
                let replaced = (code.len() - body.len(), OBJECTIVE.0.len());
                let source = format!("{}{body}{}", OBJECTIVE.0, OBJECTIVE.1);
                let cursor = (cursor + replaced.1).saturating_sub(replaced.0).min(source.len());
                Analysed { source, cursor, replaced }
            }
            _ => Analysed { source: commands::blanked(&without_magics(code)), cursor, replaced: (0, 0) },
        }
    }

    /// Where a place of the source is in the cell.
    pub(super) fn in_cell(&self, place: usize) -> usize {
        (place + self.replaced.0).saturating_sub(self.replaced.1)
    }
}

/// The cell with spaces in place of its magics; what `%time` and `%timeit` run stays.
fn without_magics(code: &str) -> String {
    let mut source = String::with_capacity(code.len());
    for part in split(code).parts {
        match part.kind {
            PartKind::Magic => source.extend(blanked(part.text)),
            _ => source.push_str(part.text),
        }
    }
    source
}

/// As many bytes.
fn blanked(line: &str) -> impl Iterator<Item = &str> {
    let kept = ferrotune_magics::rust_in(line).unwrap_or(line.len());
    let blank = |character: char| if character == '\n' { "\n" } else { &"    "[..character.len_utf8()] };
    line[..kept].chars().map(blank).chain(std::iter::once(&line[kept..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn magics_become_spaces_and_what_time_runs_stays() {
        let code = "let a = 1;\n%dévice\n%time a.max(2)\na";
        let analysed = Analysed::of(code, code.len());
        assert_eq!(analysed.source, "let a = 1;\n        \n      a.max(2)\na");
        assert_eq!((analysed.source.len(), analysed.cursor, analysed.in_cell(3)), (code.len(), code.len(), 3));
    }

    #[test]
    fn the_body_of_a_search_is_called_with_a_trial() {
        let code = "\n%%tune --objective loss:min\n|trial| trial.";
        let analysed = Analysed::of(code, code.len());
        assert_eq!(analysed.source, "let _ = ::ferrotune::tune::objective(::std::todo!(),\n|trial| trial.\n);");
        assert!(analysed.source[..analysed.cursor].ends_with("|trial| trial."));
        assert_eq!(analysed.in_cell(analysed.cursor), code.len());
        assert_eq!(Analysed::of("%%tune --objective loss:min", 5).cursor, OBJECTIVE.0.len().saturating_sub(22));
    }
}
