//! Syntax errors that do not depend on the rest of the cell. They are reported before anything runs: evcxr would run the lines above
//! the error, or put its own code inside the cell's brackets. The compiler reports all other errors.

use crate::engine::evaluate::place;
use crate::engine::evaluate::report::marked;
use crate::failure::{ErrorName, Failure, PLAIN, RED};
use ferrotune_magics::Ending;

/// The message of rust-analyzer's parser for a missing operand. The compiler would use evcxr's code as the operand.
const NO_EXPRESSION: &str = "expected expression";

/// Fails if the cell has an unclosed or unmatched bracket, or an unclosed string or comment.
pub(in crate::engine) fn check_brackets(cell: &str, ending: &Ending) -> Result<(), Failure> {
    let (at, message): (usize, fn(char) -> String) = match *ending {
        Ending::Closed => return Ok(()),
        Ending::Open { at, .. } => (at, |bracket| format!("this `{bracket}` is never closed")),
        Ending::Mismatch { at } => (at, |bracket| format!("this `{bracket}` closes no bracket that is open")),
        Ending::InLiteral { at } => (at, |first| match first {
            '/' => "this comment is never closed".to_owned(),
            _ => "this text is never closed".to_owned(),
        }),
    };
    Err(failure(cell, at, &message(cell[at..].chars().next().unwrap_or_default())))
}

/// Fails if a cell that is not Rust has a missing operand, or ends within a statement.
pub(in crate::engine) fn check_operands(cell: &str) -> Result<(), Failure> {
    match place::first_error(cell) {
        Some((at, message)) if message == NO_EXPRESSION => Err(failure(cell, at, NO_EXPRESSION)),
        // evcxr adds a missing semicolon.
        Some((at, message)) if at >= cell.trim_end().len() && !message.contains("SEMICOLON") => {
            let end = cell.trim_end().len();
            Err(failure(cell, end, &format!("the cell ends within a statement: {message}")))
        }
        _ => Ok(()),
    }
}

/// The failure for the first line of Python in a cell that does not compile; none if the cell has no such line.
pub(in crate::engine) fn of_python(cell: &str) -> Option<Failure> {
    let mut start = 0;
    for line in cell.split_inclusive('\n') {
        let text = line.trim();
        if let Some(cure) = cure_of_python(text) {
            let at = start + line.len() - line.trim_start().len();
            return Some(failure(cell, at, &format!("this line is Python, and cells are Rust; {cure}")));
        }
        start += line.len();
    }
    None
}

fn cure_of_python(line: &str) -> Option<&'static str> {
    let is_import = line.starts_with("import ") || line.starts_with("from ") && line.contains(" import ");
    if is_import && !line.ends_with(';') {
        return Some("`use path::Name;` brings a name, `:dep NAME` adds a crate, and arrays are candle_core::Tensor");
    }
    let first = line.split([' ', ':', '(']).next().unwrap_or_default();
    match first {
        _ if !line.ends_with(':') => None,
        "def" => Some("a function is `fn name(x: f64) -> f64 { … }`"),
        "class" => Some("a class is a struct with an `impl`"),
        "for" | "while" | "if" | "elif" | "else" | "with" | "try" | "except" => {
            Some("a block stands in braces, as in `for i in 0..3 { … }`")
        }
        _ => None,
    }
}

fn failure(cell: &str, at: usize, message: &str) -> Failure {
    let (above, rest) = cell.split_at(at);
    let head = format!("error: {message}");
    let line = above.split('\n').count();
    let before = above.rsplit('\n').next().unwrap_or_default();
    let column = before.chars().count() + 1;
    let text = format!("{before}{}", rest.lines().next().unwrap_or_default());
    let mut traceback = vec![format!("{RED}{head}{PLAIN}")];
    traceback.extend(marked(line, &text, column, &format!("{RED}^{PLAIN}")));
    let text = format!("{head} (line {line}, column {column})");
    Failure { name: ErrorName::CompilationError, text, traceback }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_open_or_closes_nothing_has_its_place() {
        for (cell, expected) in [
            ("let ä = 1;\nfoo(", "error: this `(` is never closed (line 2, column 4)"),
            ("let a = (1;", "error: this `(` is never closed (line 1, column 9)"),
            ("f();\n}\ng(", "error: this `}` closes no bracket that is open (line 2, column 1)"),
            ("f(]", "error: this `]` closes no bracket that is open (line 1, column 3)"),
            ("let ö = \"never;\n\n", "error: this text is never closed (line 1, column 9)"),
            ("1 /* never", "error: this comment is never closed (line 1, column 3)"),
        ] {
            let failure = check_brackets(cell, &ferrotune_magics::split(cell).ending).unwrap_err();
            assert_eq!(failure.text, expected);
        }
        assert_eq!(check_brackets("f(\"(\")", &ferrotune_magics::split("f(\"(\")").ending), Ok(()));
    }

    #[test]
    fn python_is_told_from_rust() {
        for (cell, expected) in [
            ("import numpy as np", "(line 1, column 1)"),
            ("let a = 1;\nfrom numpy import array", "(line 2, column 1)"),
            ("let ä = 1;\n  def f(x):\n    return x", "(line 2, column 3)"),
            ("for i in range(3):\n    print(i)", "(line 1, column 1)"),
        ] {
            let text = of_python(cell).unwrap().text;
            assert!(text.starts_with("error: this line is Python") && text.ends_with(expected), "{text}");
        }
        for rust in
            ["'outer: for i in 0..3 {\n}", "let import = 1;", "match x {\n  1 =>\n    2,\n}", "struct S { a: u8 }"]
        {
            assert!(of_python(rust).is_none(), "{rust}");
        }
    }

    #[test]
    fn a_missing_operand_has_its_place() {
        for (cell, expected) in [
            ("1 +", "error: expected expression (line 1, column 4)"),
            ("// text\nlet a = 1;\nlet ä = a *", "error: expected expression (line 3, column 12)"),
            ("let a = ;", "error: expected expression (line 1, column 9)"),
        ] {
            assert_eq!(check_operands(cell).unwrap_err().text, expected);
        }
        for cell in ["let a = std::", "vec![1].", "if true { 1 } else", "fn", "use", "let", "use std::", "struct A"] {
            let text = check_operands(cell).unwrap_err().text;
            assert!(text.starts_with("error: the cell ends within a statement: "), "{text}");
        }
        assert_eq!(check_operands("let a = 1"), Ok(()));
        assert_eq!(check_operands("f() g()"), Ok(()));
    }
}
