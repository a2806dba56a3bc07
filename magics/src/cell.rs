//! A cell, split into Rust and magics.

use crate::action::{Action, Step};
use crate::arguments::Invocation;
use crate::error::{MagicError, Problem};
use crate::scan::Scanner;
use crate::table::{find, unknown};

/// Splits a cell into steps, which run in order. A cell without magics is one step, a cell of blanks and comments
/// none.
///
/// # Errors
///
/// The first magic that is unknown or that cannot be carried out as it is written; nothing of the cell may run then.
pub fn parse(cell: &str) -> Result<Vec<Step>, MagicError> {
    if let Some(action) = cell_magic(cell)? {
        return Ok(vec![Step::Action(action)]);
    }
    let mut steps = Vec::new();
    let mut scanner = Scanner::new();
    let mut code = Code::default();
    for (index, line) in cell.split_inclusive('\n').enumerate() {
        let line_number = index + 1;
        if !scanner.statement_may_begin() {
            scanner.line(line);
            code.push(line, line_number);
        } else if is_evcxr_command(line) {
            // Such a line is not Rust, and ends where it ends.
            code.push(line, line_number);
            code.has_command = true;
        } else if let Some(call) = Call::read(line, line_number)? {
            steps.extend(code.take(&scanner));
            steps.push(Step::Action(line_action(&call)?));
            scanner = Scanner::new();
        } else {
            scanner.line(line);
            code.push(line, line_number);
        }
    }
    steps.extend(code.take(&scanner));
    Ok(steps)
}

/// What the body of a cell magic turned out to be.
pub(crate) struct Body {
    pub(crate) is_blank: bool,
}

/// Refuses a body in which a line is a magic, so that no magic reaches the compiler.
pub(crate) fn refuse_magics_inside(invocation: &Invocation<'_>, body: &str) -> Result<Body, MagicError> {
    let mut scanner = Scanner::new();
    for (index, line) in body.split_inclusive('\n').enumerate() {
        let line_number = invocation.line + 1 + index;
        if scanner.statement_may_begin()
            && let Some(call) = Call::read(line, line_number)?
        {
            return Err(call.error(Problem::Inside { magic: call.typed(), cell_magic: invocation.typed() }));
        }
        scanner.line(line);
    }
    Ok(Body { is_blank: !scanner.has_tokens() })
}

/// Lines of Rust that belong together.
#[derive(Default)]
struct Code {
    source: String,
    first_line: usize,
    has_command: bool,
}

impl Code {
    fn push(&mut self, line: &str, line_number: usize) {
        if self.source.is_empty() {
            if line.trim().is_empty() {
                return;
            }
            self.first_line = line_number;
        }
        self.source.push_str(line);
    }

    /// The step, unless there are only blanks and comments, which would cost a compilation for nothing.
    fn take(&mut self, scanner: &Scanner) -> Option<Step> {
        let Code { source, first_line, has_command } = std::mem::take(self);
        // An unclosed comment has no tokens either, but the compiler has to report it.
        let matters = scanner.has_tokens() || scanner.is_open() || has_command;
        matters.then_some(Step::Code { source, first_line })
    }
}

/// A line that begins with a magic.
struct Call<'a> {
    line: usize,
    /// `%` or `%%`.
    sigil: &'static str,
    name: &'a str,
    wants_help: bool,
    rest: &'a str,
    column: usize,
}

impl<'a> Call<'a> {
    /// None if the line begins with no `%`; an error if no name follows it.
    fn read(line: &'a str, line_number: usize) -> Result<Option<Call<'a>>, MagicError> {
        let line = line.strip_suffix('\n').unwrap_or(line);
        let line = line.strip_suffix('\r').unwrap_or(line);
        let text = line.trim_start();
        let (asked, text) = match text.strip_prefix('?') {
            Some(behind) => (true, behind),
            None => (false, text),
        };
        let (sigil, behind) = match (text.strip_prefix("%%"), text.strip_prefix('%')) {
            (Some(behind), _) => ("%%", behind),
            (None, Some(behind)) => ("%", behind),
            (None, None) => return Ok(None),
        };
        let rest = behind.trim_start_matches(|c: char| c.is_alphanumeric() || c == '_' || c == '-');
        let name = &behind[..behind.len() - rest.len()];
        if !name.starts_with(char::is_alphabetic) {
            return Err(MagicError { line: line_number, problem: Problem::Nameless { sigil }, usage: None });
        }
        let arguments = rest.trim_start_matches('?');
        let column = line[..line.len() - arguments.len()].chars().count();
        let wants_help = asked || arguments.len() < rest.len();
        Ok(Some(Call { line: line_number, sigil, name, wants_help, rest: arguments, column }))
    }

    fn typed(&self) -> String {
        format!("{}{}", self.sigil, self.name)
    }

    fn error(&self, problem: Problem) -> MagicError {
        MagicError { line: self.line, problem, usage: None }
    }

    /// The magic that the call names, and its help if that is what is asked for.
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
        _ => (invocation.magic.build)(&invocation),
    }
}

/// The action of a cell whose first line that is not blank begins with `%%`.
fn cell_magic(cell: &str) -> Result<Option<Action>, MagicError> {
    let mut body = cell;
    for (index, line) in cell.split_inclusive('\n').enumerate() {
        body = &body[line.len()..];
        if line.trim().is_empty() {
            continue;
        }
        if !line.trim_start().starts_with("%%") {
            return Ok(None);
        }
        let Some(call) = Call::read(line, index + 1)? else {
            return Ok(None);
        };
        let (mut invocation, help) = call.resolve()?;
        if help.is_some() {
            return Ok(help);
        }
        if !invocation.magic.has_cell_form() {
            return Err(call.error(Problem::LineMagicOnCell { form: invocation.magic.forms[0] }));
        }
        invocation.body = Some(body);
        return (invocation.magic.build)(&invocation).map(Some);
    }
    Ok(None)
}

/// `:dep`, `:vars` and so on; `::path` is Rust.
fn is_evcxr_command(line: &str) -> bool {
    line.trim_start().strip_prefix(':').is_some_and(|name| name.starts_with(char::is_alphabetic))
}
