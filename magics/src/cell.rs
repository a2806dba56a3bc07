//! The parser of a cell, which reads the cell's magics by the table, and the Rust between the magics.

use crate::action::{Action, Step};
use crate::arguments::Invocation;
use crate::error::{MagicError, Problem};
use crate::question::question;
use crate::split::{Ending, Part, PartKind, cell_magic, split};
use crate::table::{find, shell, unknown};

/// Splits a cell into steps, which run in order. A cell without magics is one step. A cell of blanks and comments has no
/// step.
///
/// # Errors
///
/// The error of the first magic that is unknown or that is written wrongly. No line of the cell may then run.
pub fn parse(cell: &str) -> Result<Vec<Step>, MagicError> {
    if let Some((first_line, body)) = cell_magic(cell) {
        return Ok(vec![Step::Action(cell_action(&Call::read(first_line)?, body)?)]);
    }
    if let Some(inspect) = question(cell) {
        return Ok(vec![Step::Action(Action::Inspect(inspect))]);
    }
    let parts = split(cell).parts;
    let stands_alone = |part: &Part<'_>| matches!(part.kind, PartKind::Magic | PartKind::Shell);
    let chunks = parts.chunk_by(|first, second| !stands_alone(first) && !stands_alone(second));
    chunks.filter_map(|chunk| step(chunk).transpose()).collect()
}

/// The step of a magic, or of parts of Rust that follow each other.
fn step(parts: &[Part<'_>]) -> Result<Option<Step>, MagicError> {
    match parts {
        [part @ Part { kind: PartKind::Magic, .. }] => {
            return Ok(Some(Step::Action(line_action(&Call::read(*part)?)?)));
        }
        [part @ Part { kind: PartKind::Shell, .. }] => return Ok(Some(Step::Action(shell::line(part)?))),
        _ => {}
    }
    // Blanks and comments are no step, since their compilation would be useless.
    if parts.iter().all(|part| part.kind == PartKind::Blank) {
        return Ok(None);
    }
    let source: String = parts.iter().map(|part| part.text).collect();
    let code = source.trim_start();
    let blank_lines = source[..source.len() - code.len()].rfind('\n').map_or(0, |end| end + 1);
    let first_line = parts[0].first_line + source[..blank_lines].matches('\n').count();
    Ok(Some(Step::Code { source: source[blank_lines..].to_owned(), first_line }))
}

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
        let problem = Problem::Inside { magic: shell::name(part), outer: invocation.typed() };
        return Err(MagicError { line: first_line + part.first_line - 1, problem, usage: None });
    }
    let is_blank = split.parts.iter().all(|part| part.kind == PartKind::Blank);
    Ok(Body { is_blank, is_open: matches!(split.ending, Ending::Open { .. } | Ending::InLiteral { .. }) })
}

/// A line that begins with a magic.
struct Call<'a> {
    line: usize,
    /// The signs before the name, `%` or `%%`.
    sigil: &'static str,
    name: &'a str,
    wants_help: bool,
    rest: &'a str,
    column: usize,
}

impl<'a> Call<'a> {
    /// Reads a line that begins with a magic. Fails if no name follows the `%`.
    fn read(part: Part<'a>) -> Result<Call<'a>, MagicError> {
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

    fn typed(&self) -> String {
        format!("{}{}", self.sigil, self.name)
    }

    fn error(&self, problem: Problem) -> MagicError {
        MagicError { line: self.line, problem, usage: None }
    }

    /// The magic that the call names, and the action that shows its help if the call has a question mark.
    fn resolve(&self) -> Result<(Invocation<'a>, Option<Action>), MagicError> {
        let magic = find(self.name).ok_or_else(|| unknown(self.line, &self.typed()))?;
        let invocation = Invocation { magic, line: self.line, rest: self.rest, column: self.column, body: None };
        let (takes_nothing, is_apart) = (self.wants_help, self.rest.starts_with(char::is_whitespace));
        if !self.rest.trim().is_empty() && takes_nothing || !self.rest.is_empty() && !is_apart {
            return Err(invocation.unexpected(self.rest.trim()));
        }
        let help = self.wants_help.then(|| Action::Help { name: magic.name().to_owned() });
        Ok((invocation, help))
    }
}

fn line_action(call: &Call<'_>) -> Result<Action, MagicError> {
    let (invocation, help) = call.resolve()?;
    if let Some(help) = help {
        return Ok(help);
    }
    match (call.sigil, invocation.magic.has_cell_form()) {
        ("%%", false) => Err(call.error(Problem::LineMagicOnCell { form: invocation.magic.forms[0] })),
        ("%%", true) => Err(call.error(Problem::NotFirst { magic: call.typed() })),
        _ if !invocation.magic.has_line_form() => Err(call.error(Problem::CellMagicOnLine { magic: call.typed() })),
        _ => (invocation.magic.build)(&invocation),
    }
}

/// The action of a cell magic with `body` below its line.
fn cell_action(call: &Call<'_>, body: &str) -> Result<Action, MagicError> {
    let (invocation, help) = call.resolve()?;
    match help {
        Some(help) => Ok(help),
        None if !invocation.magic.has_cell_form() => {
            Err(call.error(Problem::LineMagicOnCell { form: invocation.magic.forms[0] }))
        }
        None => (invocation.magic.build)(&Invocation { body: Some(body), ..invocation }),
    }
}
