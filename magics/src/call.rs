//! Lines that begin with a magic or a shell command, before the table is asked for the magic, and the Rust that a magic runs.

use crate::error::{MagicError, Problem};
use crate::magic::Invocation;
use crate::split::{Ending, Part, PartKind, split};

/// Facts about the Rust that a magic is to run as a whole.
pub(crate) struct Body {
    pub(crate) is_blank: bool,
    /// Whether the Rust continues below, because a bracket or a literal is open.
    pub(crate) is_open: bool,
}

/// Reads the Rust that a magic is to run, which begins on `first_line`. Refuses Rust with a line that is a magic or a shell
/// command, so that no such line reaches the compiler.
pub(crate) fn body(invocation: &Invocation<'_>, body: &str, first_line: usize) -> Result<Body, MagicError> {
    let split = split(body);
    if let Some(part) = split.parts.iter().find(|part| part.kind == PartKind::Magic) {
        let call = Call::read(Part { first_line: first_line + part.first_line - 1, ..*part })?;
        return Err(call.error(Problem::Inside { magic: call.typed(), outer: invocation.typed() }));
    }
    if let Some(part) = split.parts.iter().find(|part| part.kind == PartKind::Shell) {
        let problem = Problem::Inside { magic: shell_name(part), outer: invocation.typed() };
        return Err(MagicError { line: first_line + part.first_line - 1, problem, usage: None });
    }
    let is_blank = split.parts.iter().all(|part| part.kind == PartKind::Blank);
    Ok(Body { is_blank, is_open: matches!(split.ending, Ending::Open { .. } | Ending::InLiteral { .. }) })
}

/// A line that begins with a magic.
pub(crate) struct Call<'a> {
    pub(crate) line: usize,
    /// The signs before the name, `%` or `%%`.
    pub(crate) sigil: &'static str,
    pub(crate) name: &'a str,
    pub(crate) wants_help: bool,
    pub(crate) rest: &'a str,
    pub(crate) column: usize,
}

impl<'a> Call<'a> {
    /// Reads a line that begins with a magic. Fails if no name follows the `%`.
    pub(crate) fn read(part: Part<'a>) -> Result<Call<'a>, MagicError> {
        let line = part.text.trim_end_matches(['\r', '\n']);
        let text = line.trim_start();
        let (is_asked, text) = text.strip_prefix('?').map_or((false, text), |behind| (true, behind));
        let sigil = if text.starts_with("%%") { "%%" } else { "%" };
        let behind = &text[sigil.len()..];
        let rest = behind.trim_start_matches(|c: char| c.is_alphanumeric() || c == '_' || c == '-');
        let name = &behind[..behind.len() - rest.len()];
        if !name.starts_with(char::is_alphabetic) {
            return Err(MagicError { line: part.first_line, problem: Problem::Nameless { sigil }, usage: None });
        }
        let arguments = rest.trim_start_matches('?');
        let column = line[..line.len() - arguments.len()].chars().count();
        let wants_help = is_asked || arguments.len() < rest.len();
        Ok(Call { line: part.first_line, sigil, name, wants_help, rest: arguments, column })
    }

    pub(crate) fn typed(&self) -> String {
        format!("{}{}", self.sigil, self.name)
    }

    pub(crate) fn error(&self, problem: Problem) -> MagicError {
        MagicError { line: self.line, problem, usage: None }
    }
}

/// The name in error messages of a line that begins with `!`.
pub(crate) fn shell_name(part: &Part<'_>) -> String {
    format!("!{}", shell_command(part).lines().next().unwrap_or_default())
}

/// The command of a line that begins with `!`.
pub(crate) fn shell_command<'a>(part: &Part<'a>) -> &'a str {
    let text = part.text.trim();
    text.strip_prefix('!').unwrap_or(text).trim()
}
