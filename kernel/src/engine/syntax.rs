//! What is no Rust, whatever stands around it. The user learns it before anything runs: evcxr would run what stands above the place,
//! or put its own code inside of the cell's brackets. All other errors are the compiler's.

use super::place;
use super::report::marked;
use crate::failure::{ErrorName, Failure, PLAIN, RED};
use ferrotune_magics::Ending;

/// What rust-analyzer's parser says where an operand is missing. The compiler would take evcxr's code for the operand.
const NO_EXPRESSION: &str = "expected expression";

/// The error of brackets and literals that do not fit together, if there is one.
pub(super) fn check_brackets(cell: &str, ending: &Ending) -> Result<(), Failure> {
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

/// The error of a missing operand in a cell that is not Rust, if there is one.
pub(super) fn check_operands(cell: &str) -> Result<(), Failure> {
    match place::first_error(cell) {
        Some((at, message)) if message == NO_EXPRESSION => Err(failure(cell, at, NO_EXPRESSION)),
        _ => Ok(()),
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
    fn a_missing_operand_has_its_place() {
        for (cell, expected) in [
            ("1 +", "error: expected expression (line 1, column 4)"),
            ("// text\nlet a = 1;\nlet ä = a *", "error: expected expression (line 3, column 12)"),
            ("let a = ;", "error: expected expression (line 1, column 9)"),
        ] {
            assert_eq!(check_operands(cell).unwrap_err().text, expected);
        }
        assert_eq!(check_operands("let a = 1"), Ok(()));
        assert_eq!(check_operands("f() g()"), Ok(()));
    }
}
