//! The parser of a cell, which reads the cell's magics by the table, and the Rust between the magics.

use crate::action::{Action, Step};
use crate::call::Call;
use crate::error::{MagicError, Problem};
use crate::magic::Invocation;
use crate::question::question;
use crate::split::{Part, PartKind, cell_magic, split};
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

/// The magic that the call names, and the action that shows its help if the call has a question mark.
fn resolve<'a>(call: &Call<'a>) -> Result<(Invocation<'a>, Option<Action>), MagicError> {
    let magic = find(call.name).ok_or_else(|| unknown(call.line, &call.typed()))?;
    let invocation = Invocation { magic, line: call.line, rest: call.rest, column: call.column, body: None };
    let (takes_nothing, is_apart) = (call.wants_help, call.rest.starts_with(char::is_whitespace));
    if !call.rest.trim().is_empty() && takes_nothing || !call.rest.is_empty() && !is_apart {
        return Err(invocation.unexpected(call.rest.trim()));
    }
    let help = call.wants_help.then(|| Action::Help { name: magic.name().to_owned() });
    Ok((invocation, help))
}

fn line_action(call: &Call<'_>) -> Result<Action, MagicError> {
    let (invocation, help) = resolve(call)?;
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
    let (invocation, help) = resolve(call)?;
    match help {
        Some(help) => Ok(help),
        None if !invocation.magic.has_cell_form() => {
            Err(call.error(Problem::LineMagicOnCell { form: invocation.magic.forms[0] }))
        }
        None => (invocation.magic.build)(&Invocation { body: Some(body), ..invocation }),
    }
}
