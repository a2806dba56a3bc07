//! The magics for the session: help and time.

use super::{Argument, Magic, Values, find, unknown};
use crate::action::{Action, Time};
use crate::arguments::{Arguments, Invocation};
use crate::cell;
use crate::error::{MagicError, Problem};
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

pub(super) const TIME: Magic = Magic {
    forms: &["%time", "%%time"],
    usage: "%time STATEMENT, or %%time on the first line of a cell",
    summary: "run a statement or a cell and say how long it took",
    help: "%time runs the rest of its line; %%time runs the cell below it. Compiling is not counted.\n\
           \n\
           Example\n  %time data.sum_all()?\n\n  %%time\n  for epoch in 0..10 {\n      fit(&mut model)?;\n  }",
    arguments: &[],
    options: &[],
    runs_line: true,
    build: time,
};

fn lsmagic(invocation: &Invocation<'_>) -> Result<Action, MagicError> {
    let Some(name) = Arguments::read(invocation)?.first(text)? else {
        return Ok(Action::Lsmagic);
    };
    match find(&name) {
        Some(magic) => Ok(Action::Help { name: magic.name().to_owned() }),
        None => Err(unknown(invocation.line, &name)),
    }
}

fn time(invocation: &Invocation<'_>) -> Result<Action, MagicError> {
    let rest = invocation.rest;
    let (source, first_line) = match invocation.body {
        Some(_) if !rest.trim().is_empty() => return Err(invocation.unexpected(rest.trim())),
        Some(body) => (body.to_owned(), invocation.line + 1),
        None => (format!("{}{rest}", " ".repeat(invocation.column)), invocation.line),
    };
    let body = cell::body(invocation, &source, first_line)?;
    if body.is_blank {
        return Err(invocation.nothing_to_run());
    }
    if invocation.body.is_none() && body.is_open {
        return Err(MagicError { line: invocation.line, problem: Problem::Unfinished, usage: None });
    }
    Ok(Action::Time(Time { source, first_line }))
}
