//! The magics for the compiler: crates, optimisation and documentation.

use crate::action::{Action, Dep};
use crate::arguments::Arguments;
use crate::error::MagicError;
use crate::magic::{Argument, Invocation, Magic, MagicOption, Values};
use crate::values::text;

const FEATURES: MagicOption =
    MagicOption::new("--features", "NAME,…", "features of the crate, beside its default ones");

/// The optimisation levels of rustc.
const LEVELS: &[&str] = &["0", "1", "2", "3"];

pub(super) const DEP: Magic = Magic {
    forms: &["%dep"],
    usage: "%dep NAME[@VERSION] {options}",
    summary: "add a crate in the newest version that this toolchain can build",
    help: "Asks cargo which version that is, and adds it as :dep does. Shows the line with :dep, which you can put in\n\
           place of this one, so that the notebook always gets the same version.\n\
           \n\
           Example\n  %dep serde --features derive",
    arguments: &[Argument::new("NAME", Values::Any)],
    options: &[FEATURES],
    runs_line: false,
    build: dep,
};

pub(super) const DOC: Magic = Magic {
    forms: &["%doc"],
    usage: "%doc NAME",
    summary: "show the documentation of a name",
    help: "Below the cell; NAME? shows it in the pager.\n\nExample\n  %doc Vec::push",
    arguments: &[Argument::new("NAME", Values::Any)],
    options: &[],
    runs_line: false,
    build: doc,
};

pub(super) const OPT: Magic = Magic {
    forms: &["%opt"],
    usage: "%opt 0|1|2|3",
    summary: "choose how far cells are optimised",
    help: "2 at first. With 0 cells compile faster and run slower. Crates of :dep are always optimised.\n\
           \n\
           Example\n  %opt 3",
    arguments: &[Argument::new("LEVEL", Values::Words(LEVELS))],
    options: &[],
    runs_line: false,
    build: opt,
};

fn dep(invocation: &Invocation<'_>) -> Result<Action, MagicError> {
    let arguments = Arguments::read(invocation)?;
    let [package] = arguments.all(["of the crate"])?;
    let name = package.split('@').next().unwrap_or_default();
    let is_name = |name: &str| name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_');
    if name.is_empty() || !is_name(name) {
        return Err(invocation.bad_value(
            "NAME",
            &package,
            "write the crate's name, as in %dep serde or %dep serde@1.0",
        ));
    }
    Ok(Action::Dep(Dep { package, features: arguments.option(&FEATURES, text)? }))
}

fn doc(invocation: &Invocation<'_>) -> Result<Action, MagicError> {
    let [name] = Arguments::read(invocation)?.all(["of what is documented"])?;
    Ok(Action::Doc { name })
}

fn opt(invocation: &Invocation<'_>) -> Result<Action, MagicError> {
    let [level] = Arguments::read(invocation)?.all(["of optimisation, from 0 to 3"])?;
    if !LEVELS.contains(&level.as_str()) {
        return Err(invocation.bad_value("LEVEL", &level, "choose 0, 1, 2 or 3"));
    }
    Ok(Action::Opt { level })
}
