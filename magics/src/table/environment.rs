//! The magics for the working folder and for environment variables.

use crate::action::{Action, Env, Folder};
use crate::arguments::Arguments;
use crate::error::MagicError;
use crate::magic::{Argument, Invocation, Magic, Values};
use crate::values::text;

pub(super) const CD: Magic = Magic {
    forms: &["%cd"],
    usage: "%cd [FOLDER|-]",
    summary: "go to another folder, with cells, trials and the kernel",
    help: "Without a FOLDER, to your own one; with - to the folder before the last %cd. The folder stays after a crash,\n\
           %undo and :clear.\n\
           \n\
           Example\n  %cd ~/data",
    arguments: &[Argument::new("FOLDER", Values::Path)],
    options: &[],
    runs_line: false,
    build: cd,
};

pub(super) const ENV: Magic = Magic {
    forms: &["%env"],
    usage: "%env, %env NAME, or %env NAME=VALUE",
    summary: "list, show or set environment variables of cells, trials and cargo",
    help: "A list hides values whose names speak of keys, tokens, secrets and passwords. What is set stays after a crash,\n\
           %undo and :clear. Searches see it that begin afterwards.\n\
           \n\
           Example\n  %env HTTPS_PROXY=http://proxy:3128",
    arguments: &[Argument::new("NAME", Values::Any)],
    options: &[],
    runs_line: false,
    build: env,
};

fn cd(invocation: &Invocation<'_>) -> Result<Action, MagicError> {
    Ok(Action::Cd(match Arguments::read(invocation)?.first(text)? {
        None => Folder::Home,
        Some(dash) if dash == "-" => Folder::Previous,
        Some(path) => Folder::Path(path),
    }))
}

fn env(invocation: &Invocation<'_>) -> Result<Action, MagicError> {
    let rest = invocation.rest.trim();
    if rest.is_empty() {
        return Ok(Action::Env(Env::List));
    }
    let end = rest.find(|c: char| c == '=' || c.is_whitespace()).unwrap_or(rest.len());
    let (name, behind) = rest.split_at(end);
    let is_name = |name: &str| !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if !is_name(name) || behind.contains('\0') {
        return Err(invocation.bad_value("NAME", name, "a name has letters, digits and _, as in %env KEY=value"));
    }
    let name = name.to_owned();
    if behind.is_empty() {
        return Ok(Action::Env(Env::Show { name }));
    }
    let value = unquoted(behind.strip_prefix('=').unwrap_or(behind).trim()).to_owned();
    Ok(Action::Env(Env::Set { name, value }))
}

/// A value without the quotation marks around it.
fn unquoted(value: &str) -> &str {
    let inner = |quote: char| value.strip_prefix(quote)?.strip_suffix(quote);
    inner('"').or_else(|| inner('\'')).unwrap_or(value)
}
