//! The list of the magics.

use super::{Argument, Magic, Values, find, unknown};
use crate::action::Action;
use crate::arguments::{Arguments, Invocation};
use crate::error::MagicError;
use crate::values::text;

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

fn lsmagic(invocation: &Invocation<'_>) -> Result<Action, MagicError> {
    let Some(name) = Arguments::read(invocation)?.first(text)? else {
        return Ok(Action::Lsmagic { name: None });
    };
    match find(&name) {
        Some(magic) => Ok(Action::Lsmagic { name: Some(magic.name().to_owned()) }),
        None => Err(unknown(invocation.line, &name)),
    }
}
