//! The magics for an existing search: `%resume`, and the line magic `%tune`.

use super::results::{DIRECTORY, PROJECT, study};
use crate::magic::{Argument, Invocation, Magic, MagicOption, Values};

use crate::action::{Action, Resume, Search, SearchVerb, Study};
use crate::arguments::Arguments;
use crate::error::{MagicError, Problem};
use crate::quantity::seconds;
use crate::values::{count, project, text};

pub(super) const BACKGROUND: MagicOption =
    MagicOption::flag("--background", "give the notebook back at once; the search goes on without it");
const MAX_TRIALS: MagicOption =
    MagicOption::new("--max-trials", "N", "how many trials to run in all; without it as many as before");
const TIMEOUT: MagicOption = MagicOption::new("--timeout", "TIME", "end the search after this time");
const TRUST: MagicOption = MagicOption::flag("--trust", "run the study's code although this user did not compile it");

pub(super) const RESUME: Magic = Magic {
    forms: &["%resume"],
    usage: "%resume [NAME] {options}",
    summary: "go on with a study that was stopped, as it was begun",
    help: "The study's folder has all that its trials need: the objective, the variables that it captured, and what\n\
           it was linked with. The cell that began it need not be run again, nor any other. Trials that ran when\n\
           it stopped go on from their last checkpoints. `ferrotune resume FOLDER` does the same without a notebook.\n\
           A folder from somebody else has their code, which can do whatever you can: it runs only with --trust,\n\
           which is remembered for that code.\n\
           \n\
           Example\n  %resume digits --max-trials 50",
    arguments: &[Argument::new("NAME", Values::Study)],
    options: &[MAX_TRIALS, TIMEOUT, TRUST, BACKGROUND, DIRECTORY],
    runs_line: false,
    build: resume,
};

fn resume(invocation: &Invocation<'_>) -> Result<Action, MagicError> {
    let arguments = Arguments::read(invocation)?;
    Ok(Action::Resume(Resume {
        study: Study { project: arguments.first(project)?, directory: arguments.option(&DIRECTORY, text)? },
        max_trials: arguments.option(&MAX_TRIALS, count)?,
        timeout_s: arguments.option(&TIMEOUT, seconds)?,
        trust: arguments.has(&TRUST),
        background: arguments.has(&BACKGROUND),
    }))
}

/// The action of `%tune status|wait|stop`.
pub(super) fn search(invocation: &Invocation<'_>, arguments: &Arguments<'_>) -> Result<Action, MagicError> {
    // Any other option belongs to the cell magic `%%tune`, so the user means that magic.
    let is_of_cell = |option: &'static MagicOption| ![PROJECT.name, DIRECTORY.name].contains(&option.name);
    if arguments.given().any(is_of_cell) {
        let problem = Problem::CellMagicOnLine { magic: invocation.typed() };
        return Err(MagicError { line: invocation.line, problem, usage: None });
    }
    let verb = match arguments.first(text)?.as_deref() {
        Some("status") => SearchVerb::Status,
        Some("wait") => SearchVerb::Wait,
        Some("stop") => SearchVerb::Stop,
        Some(other) => return Err(invocation.bad_value("%tune", other, "choose status, wait or stop")),
        None => return Err(invocation.nothing_to_run()),
    };
    Ok(Action::Search(Search { verb, study: study(arguments)? }))
}
