//! The magics `%%profile`, which profiles a cell, and `%profile`, which shows the profile of a trial.

use super::results::{DIRECTORY, PROJECT, study};
use crate::magic::{Argument, Invocation, Magic, MagicOption, Values};

use crate::action::{Action, Profile, TrialProfile};
use crate::arguments::Arguments;
use crate::call;
use crate::error::MagicError;
use crate::values::{count, number, text};

const STEPS_OPTION: MagicOption =
    MagicOption::new("--steps", "N", "of a cell: how many steps to record").or(|| STEPS.to_string());
const TRACE: MagicOption =
    MagicOption::new("--trace", "FILE", "of a cell: write what was recorded to this file").taking(Values::Path);
const TENSORBOARD: MagicOption =
    MagicOption::new("--tensorboard", "FOLDER", "of a cell: write the connected device's own profile to this folder")
        .taking(Values::Path);
const FLAME: MagicOption =
    MagicOption::flag("--flame", "of a cell: also show on which lines and functions the CPU spends its time");

const STEPS: u64 = 10_000;

pub(super) const PROFILE: Magic = Magic {
    forms: &["%profile", "%%profile"],
    usage: "%profile [TRIAL] [--project NAME] [--directory FOLDER], or %%profile [--flame] [--steps N] [--trace FILE] \
            [--tensorboard FOLDER] on the first line of a cell",
    summary: "show what the steps of a training spend their time on",
    help: "%%profile runs the cell below it. Then it shows for each loop over a dataset how long a step waits for its input,\n\
           copies to the device, compiles, reads back and computes, whether input or arithmetic limits it, and what to\n\
           change; below that, when this was in the last steps. A step goes from the request for a batch to the next\n\
           request. In other loops, call ferrotune::profile::step() where a step begins.\n\
           %profile shows the same of a trial that was searched for with %%tune --profile N: of TRIAL, or of the best one.\n\
           %%profile --flame shows a flame graph of any cell, with or without steps: the lines of the notebook and the functions\n\
           that they call, as wide as the CPU time that they take, of all threads. A sample is taken after each 10 ms of it.\n\
           FILE is a trace that https://ui.perfetto.dev opens; that of a trial is profile.json in its folder.\n\
           With FOLDER, a TPU also records its own operations: `tensorboard --logdir FOLDER` shows them on its page Profile, which\n\
           needs the Python package tensorboard-plugin-profile.\n\
           \n\
           Example\n  %profile 3\n\n  %%profile\n  for batch in &train {\n      step(&batch?)?;\n  }",
    arguments: &[Argument::new("TRIAL", Values::Any)],
    options: &[FLAME, STEPS_OPTION, TRACE, TENSORBOARD, PROJECT, DIRECTORY],
    runs_line: false,
    build: profile,
};

fn profile(invocation: &Invocation<'_>) -> Result<Action, MagicError> {
    let arguments = Arguments::read(invocation)?;
    let Some(body) = invocation.body else {
        refuse(
            invocation,
            &arguments,
            &[FLAME, STEPS_OPTION, TRACE, TENSORBOARD],
            "belongs to %%profile, on the first line of a cell",
        )?;
        let trial = arguments.first(number)?;
        return Ok(Action::TrialProfile(TrialProfile { study: study(&arguments)?, trial }));
    };
    refuse(invocation, &arguments, &[PROJECT, DIRECTORY], "belongs to %profile, which shows a trial")?;
    if let Some(argument) = arguments.first(text)? {
        return Err(invocation.unexpected(&argument));
    }
    let first_line = invocation.line + 1;
    if call::body(invocation, body, first_line)?.is_blank {
        return Err(invocation.nothing_to_run());
    }
    let steps = arguments.option(&STEPS_OPTION, count)?.unwrap_or(STEPS);
    let trace = arguments.option(&TRACE, text)?;
    let tensorboard = arguments.option(&TENSORBOARD, text)?;
    let (source, flame) = (body.to_owned(), arguments.has(&FLAME));
    Ok(Action::Profile(Profile { source, first_line, steps, flame, trace, tensorboard }))
}

fn refuse(
    invocation: &Invocation<'_>,
    arguments: &Arguments<'_>,
    options: &[MagicOption],
    problem: &'static str,
) -> Result<(), MagicError> {
    match options.iter().find(|option| arguments.has(option)) {
        Some(option) => Err(invocation.bad_value("option", option.name, problem)),
        None => Ok(()),
    }
}
