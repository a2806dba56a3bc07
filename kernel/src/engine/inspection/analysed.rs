//! A cell as Rust that rust-analyzer understands: its magics are gone, its brackets are closed, and the closure of `%%tune` is
//! called with a trial.

use crate::engine::evaluate::commands;
use ferrotune_magics::{Ending, PartKind, cell_magic, split};

/// The text before and the text after the body of `%%tune`. The call gives rust-analyzer the type of the closure's argument.
const OBJECTIVE: (&str, &str) = ("let _ = ::ferrotune::tune::objective(::std::todo!(),\n", "\n);");

/// A cell rewritten as Rust for rust-analyzer.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Analysed {
    pub(super) source: String,
    /// Offset of the cell's cursor in the source.
    pub(super) cursor: usize,
    /// The length of the removed text at the start, and the length of the text in its place.
    replaced: (usize, usize),
}

impl Analysed {
    /// Rewrites a cell. The cursor must not be in the line of `%%tune`.
    pub(super) fn of(code: &str, cursor: usize) -> Analysed {
        match cell_magic(code) {
            Some((line, body)) if line.text.trim_start().starts_with("%%tune") => {
                let replaced = (code.len() - body.len(), OBJECTIVE.0.len());
                let body = closed(body, cursor.saturating_sub(replaced.0));
                let source = format!("{}{body}{}", OBJECTIVE.0, OBJECTIVE.1);
                let cursor = (cursor + replaced.1).saturating_sub(replaced.0).min(source.len());
                Analysed { source, cursor, replaced }
            }
            _ => {
                let source = closed(&commands::blanked(&without_magics(code)), cursor);
                Analysed { source, cursor, replaced: (0, 0) }
            }
        }
    }

    /// The offset in the cell that belongs to an offset in the source.
    pub(super) fn in_cell(&self, place: usize) -> usize {
        (place + self.replaced.0).saturating_sub(self.replaced.1)
    }
}

/// The cell with spaces in place of its magics; the Rust behind `%time` and `%timeit` stays.
fn without_magics(code: &str) -> String {
    let mut source = String::with_capacity(code.len());
    for part in split(code).parts {
        match part.kind {
            PartKind::Magic | PartKind::Shell => source.extend(blanked(part.text)),
            _ => source.push_str(part.text),
        }
    }
    source
}

/// The Rust with its open brackets closed behind the cursor: rust-analyzer finds nothing in a macro call without a closing bracket.
fn closed(rust: &str, cursor: usize) -> String {
    let mut source = rust.to_owned();
    if !matches!(split(rust).ending, Ending::Open { .. } | Ending::Mismatch { .. }) {
        return source;
    }
    let line_start = rust[..cursor].rfind('\n').map_or(0, |newline| newline + 1);
    let mut line_end = rust[cursor..].find('\n').map_or(rust.len(), |newline| cursor + newline);
    while let Some(bracket) = missing(&source[..line_end], line_start) {
        source.insert(line_end, bracket);
        line_end += bracket.len_utf8();
    }
    while let Some(bracket) = missing(&source, 0) {
        source.push(bracket);
    }
    source
}

/// The closing bracket for the innermost open bracket, if the open bracket is at or behind `after`.
fn missing(rust: &str, after: usize) -> Option<char> {
    match split(rust).ending {
        Ending::Open { at, .. } if at >= after => match rust.as_bytes()[at] {
            b'(' => Some(')'),
            b'[' => Some(']'),
            _ => Some('}'),
        },
        _ => None,
    }
}

/// A line of a magic with blanks in place of the magic, of the same length in bytes.
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
    fn brackets_are_closed_behind_the_cursor() {
        let source = |code: &str| {
            let cursor = code.find('|').unwrap();
            Analysed::of(&code.replacen('|', "", 1), cursor).source
        };
        assert_eq!(source("f(g[1, a|"), "f(g[1, a])");
        assert_eq!(
            source("for x in y {\n    println!(\"{}\", a|\n}\nb"),
            "for x in y {\n    println!(\"{}\", a)\n}\nb"
        );
        assert_eq!(source("f(\n    a|,\n    b\n"), "f(\n    a,\n    b\n)");
        assert_eq!(source("f(a|, b)"), "f(a, b)");
        assert_eq!(source("f(\"a|"), "f(\"a");
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
