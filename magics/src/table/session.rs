//! The magics for the session: help, the history of cells, and the reset of the notebook.

use super::{find, unknown};
use crate::action::{Action, History};
use crate::arguments::Arguments;
use crate::error::MagicError;
use crate::magic::{Argument, Invocation, Magic, MagicOption, Values};
use crate::values::{lines, text};

pub(super) const LSMAGIC: Magic = Magic {
    forms: &["%lsmagic"],
    usage: "%lsmagic [NAME]",
    summary: "list the magics",
    help: "With a NAME, the help of that magic, as NAME? shows it.\n\nExample\n  %lsmagic tune",
    arguments: &[Argument::new("NAME", Values::Magic)],
    options: &[],
    runs_line: false,
    build: lsmagic,
};

const FILE: MagicOption = MagicOption::new("-f", "FILE", "write the cells to this new file").taking(Values::Path);
const NUMBERS: MagicOption = MagicOption::flag("-n", "with the cells' numbers");
const FORCE: MagicOption = MagicOption::flag("-f", "for those who know it from IPython; there is no question anyway");

pub(super) const HISTORY: Magic = Magic {
    forms: &["%history"],
    usage: "%history [FIRST-LAST] {options}",
    summary: "show the cells of this session",
    help: "FIRST-LAST are their numbers, as in 5-10, 5- or 5; all cells if they are left out.\n\
           \n\
           Example\n  %history 1-4 -f model.rs",
    arguments: &[Argument::new("FIRST-LAST", Values::Any)],
    options: &[NUMBERS, FILE],
    runs_line: false,
    build: history,
};

pub(super) const RESET: Magic = Magic {
    forms: &["%reset"],
    usage: "%reset {options}",
    summary: "forget all variables, definitions and crates",
    help: "As :clear does. It does not ask, because %undo takes it back.\n\nExample\n  %reset",
    arguments: &[],
    options: &[FORCE],
    runs_line: false,
    build: reset,
};

fn history(invocation: &Invocation<'_>) -> Result<Action, MagicError> {
    let arguments = Arguments::read(invocation)?;
    let (cells, file) = (arguments.first(lines)?, arguments.option(&FILE, text)?);
    Ok(Action::History(History { cells, numbered: arguments.has(&NUMBERS), file }))
}

fn reset(invocation: &Invocation<'_>) -> Result<Action, MagicError> {
    Arguments::read(invocation).map(|_| Action::Reset)
}

fn lsmagic(invocation: &Invocation<'_>) -> Result<Action, MagicError> {
    let Some(name) = Arguments::read(invocation)?.first(text)? else {
        return Ok(Action::Lsmagic { name: None });
    };
    match find(&name) {
        Some(magic) => Ok(Action::Lsmagic { name: Some(magic.name().to_owned()) }),
        None => Err(unknown(invocation.line, &name)),
    }
}
