//! The magics that list the notebook's variables.

use crate::action::{Action, Who, WhoStyle};
use crate::arguments::Arguments;
use crate::error::MagicError;
use crate::magic::{Argument, Invocation, Magic, Values};
use crate::values::text;

pub(super) const WHO: Magic = Magic {
    forms: &["%who"],
    usage: "%who [TYPE]",
    summary: "list the variables by name",
    help: "With a TYPE, those whose type has this word in it.\n\nExample\n  %who Tensor",
    arguments: &[Argument::new("TYPE", Values::Any)],
    options: &[],
    runs_line: false,
    build: who,
};

pub(super) const WHOS: Magic = Magic {
    forms: &["%whos"],
    usage: "%whos [TYPE]",
    summary: "list the variables with types, sizes and values",
    help: "The size is what a variable holds itself and, of tensors, strings and vectors, what they point to. Shows\n\
           shape, dtype and device of a tensor, the length of a vector, and the beginning of any other value that is\n\
           Debug. With a TYPE, only variables whose type has this word in it.\n\
           \n\
           Example\n  %whos Tensor",
    arguments: &[Argument::new("TYPE", Values::Any)],
    options: &[],
    runs_line: false,
    build: whos,
};

fn who(invocation: &Invocation<'_>) -> Result<Action, MagicError> {
    listed(invocation, WhoStyle::Names)
}

fn whos(invocation: &Invocation<'_>) -> Result<Action, MagicError> {
    listed(invocation, WhoStyle::Table)
}

fn listed(invocation: &Invocation<'_>, style: WhoStyle) -> Result<Action, MagicError> {
    Ok(Action::Who(Who { style, type_name: Arguments::read(invocation)?.first(text)? }))
}
