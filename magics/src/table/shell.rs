//! The magics that run a shell: `!command` lines, `%bash` and `%%bash`.

use crate::action::{Action, Shell};
use crate::call::{shell_command, shell_name};
use crate::error::{MagicError, Problem};
use crate::magic::{Invocation, Magic};
use crate::split::Part;

pub(super) const BASH: Magic = Magic {
    forms: &["%bash", "%%bash"],
    usage: "%bash COMMAND, or %%bash on the first line of a cell",
    summary: "run a shell command or a script, and show what it writes at once",
    help: "%bash runs the rest of its line; %%bash runs the cell below it. A line that begins with ! is run by sh.\n\
           The command has the working folder and the environment of the notebook, and an empty standard input. An\n\
           exit status other than 0 is an error. An interrupt is a Ctrl-C for the command and for all that it has\n\
           started.\n\
           \n\
           Example\n  %bash nvidia-smi | head\n\n  %%bash\n  set -e\n  mkdir -p data\n  curl -LO https://example.org/digits.csv",
    arguments: &[],
    options: &[],
    runs_line: false,
    build: bash,
};

fn bash(invocation: &Invocation<'_>) -> Result<Action, MagicError> {
    let rest = invocation.rest.trim();
    let (source, first_line) = match invocation.body {
        Some(_) if !rest.is_empty() => return Err(invocation.unexpected(rest)),
        Some(body) => (body, invocation.line + 1),
        None => (rest, invocation.line),
    };
    if source.trim().is_empty() {
        return Err(invocation.nothing_to_run());
    }
    let name = match invocation.body {
        Some(_) => invocation.typed(),
        None => format!("{} {rest}", invocation.typed()),
    };
    Ok(Action::Shell(Shell { program: "bash", name, script: script(source, first_line) }))
}

/// The action of a line that begins with `!`.
pub(crate) fn line(part: &Part<'_>) -> Result<Action, MagicError> {
    let command = shell_command(part);
    if command.is_empty() {
        let problem = Problem::Empty { magic: "!".to_owned() };
        return Err(MagicError { line: part.first_line, problem, usage: Some("!COMMAND".to_owned()) });
    }
    let shell = Shell { program: "sh", name: shell_name(part), script: script(command, part.first_line) };
    Ok(Action::Shell(shell))
}

/// The source behind empty lines, so that its lines have the same numbers as in the cell.
fn script(source: &str, first_line: usize) -> String {
    format!("{}{source}", "\n".repeat(first_line.saturating_sub(1)))
}
