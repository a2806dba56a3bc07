//! How the magics for memory and for going back read their arguments.

use crate::action::{Action, Memory};
use crate::arguments::{Arguments, Invocation};
use crate::error::MagicError;
use crate::quantity;

pub(super) fn undo(invocation: &Invocation<'_>) -> Result<Action, MagicError> {
    let arguments = Arguments::read(invocation)?;
    match arguments.positional_number("COUNT")?.unwrap_or(1) {
        0 => Err(invocation.bad_value("COUNT", "0", "give at least 1")),
        count => Ok(Action::Undo { count }),
    }
}

pub(super) fn checkpoint(invocation: &Invocation<'_>) -> Result<Action, MagicError> {
    Ok(Action::Checkpoint { name: name(invocation)? })
}

pub(super) fn restore(invocation: &Invocation<'_>) -> Result<Action, MagicError> {
    Ok(Action::Restore { name: name(invocation)? })
}

fn name(invocation: &Invocation<'_>) -> Result<String, MagicError> {
    let arguments = Arguments::read(invocation)?;
    let name = arguments.positional().unwrap_or_default();
    if name.is_empty() {
        return Err(invocation.bad_value("NAME", name, "give the checkpoint a name"));
    }
    Ok(name.to_owned())
}

pub(super) fn checkpoints(invocation: &Invocation<'_>) -> Result<Action, MagicError> {
    Arguments::read(invocation)?;
    Ok(Action::Checkpoints)
}

pub(super) fn gc(invocation: &Invocation<'_>) -> Result<Action, MagicError> {
    match Arguments::read(invocation)?.positional() {
        None => Ok(Action::Gc { all: false }),
        Some("all") => Ok(Action::Gc { all: true }),
        Some(other) => Err(invocation.bad_value("%gc", other, "write %gc or %gc all")),
    }
}

pub(super) fn memory(invocation: &Invocation<'_>) -> Result<Action, MagicError> {
    let words: Vec<&str> = invocation.rest.split_whitespace().collect();
    let bad = |argument: &'static str, cure: &str| Err(invocation.bad_value(argument, invocation.rest.trim(), cure));
    let memory = match words[..] {
        [] => Memory::Show,
        ["watch"] => Memory::Watch,
        ["limit", "none"] => Memory::Limit { bytes: None },
        ["limit", size] => match quantity::bytes(size) {
            Ok(bytes) => Memory::Limit { bytes: Some(bytes) },
            Err(cure) => return Err(invocation.bad_value("SIZE", size, cure)),
        },
        ["limit"] => return bad("limit", "give a size such as 6GiB, or none"),
        _ => return bad("%memory", "write %memory, %memory watch, %memory limit 6GiB or %memory limit none"),
    };
    Ok(Action::Memory(memory))
}
