//! The magics that show what a search has found, and how they read their arguments.

use super::entries::{DIRECTORY, PROJECT};
use super::{Kind, Magic, MagicOption};
use crate::action::{Action, Best, Export, Plot, Study, Trials};
use crate::arguments::{Arguments, Invocation};
use crate::error::MagicError;

pub(super) const BEST: Magic = Magic {
    name: "best",
    kind: Kind::Line,
    forms: &["%best"],
    usage: "%best [COUNT] [--project NAME] [--directory FOLDER]",
    summary: "show the best trials of a study, and how to use them",
    help: "COUNT trials, one if it is left out, best first: their parameters and values, where their weights are, and\n\
           the Rust that makes the parameters of the best one variables again and loads its weights. Of several\n\
           objectives, the trials that no other one beats in all of them.\n\
           \n\
           Example\n  %best 3 --project digits",
    positional: Some("COUNT"),
    options: &[PROJECT, DIRECTORY],
    build: best,
};

pub(super) const EXPORT: Magic = Magic {
    name: "export",
    kind: Kind::Line,
    forms: &["%export"],
    usage: "%export FORMAT FILE [--project NAME] [--directory FOLDER]",
    summary: "write a study to a file that other programs read",
    help: "FORMAT is csv, json, parquet, html (a page with the table and the plots, which needs no network) or\n\
           tensorboard, whose FILE is a folder for `tensorboard --logdir FOLDER`. Written again while the search goes\n\
           on, TensorBoard's files grow, and an open TensorBoard shows what is new.\n\
           \n\
           Example\n  %export csv digits.csv --project digits",
    positional: Some("FORMAT FILE"),
    options: &[PROJECT, DIRECTORY],
    build: export,
};

pub(super) const PLOT: Magic = Magic {
    name: "plot",
    kind: Kind::Line,
    forms: &["%plot"],
    usage: "%plot KIND [--params NAMES] [--objective NAME] [--project NAME] [--directory FOLDER]",
    summary: "draw what a search has found",
    help: "KIND is history, parallel, slice, contour, importance, intermediate, pareto, edf or timeline. They show what\n\
           Optuna's plots of the same names do: Vega-Lite where the front end draws it, else a picture, else text.\n\
           \n\
           Example\n  %plot contour --params lr,units --project digits",
    positional: Some("KIND"),
    options: &[
        MagicOption {
            name: "--params",
            value: Some("NAMES"),
            default: None,
            summary: "the parameters, as in lr,units; without it the most important ones",
        },
        MagicOption {
            name: "--objective",
            value: Some("NAME"),
            default: None,
            summary: "the objective by its metric, and of intermediate any metric; without it the first objective",
        },
        PROJECT,
        DIRECTORY,
    ],
    build: plot,
};

pub(super) const SPACE: Magic = Magic {
    name: "space",
    kind: Kind::Line,
    forms: &["%space"],
    usage: "%space [NAME] [--directory FOLDER]",
    summary: "show the search space of a study, as its trials have shown it",
    help: "Name, kind, range, scale, default, condition and values so far of every parameter. An objective asks for\n\
           its parameters as it runs, so that there is nothing to show before the first trial.\n\
           \n\
           Example\n  %space digits",
    positional: Some("NAME"),
    options: &[DIRECTORY],
    build: space,
};

pub(super) const STUDIES: Magic = Magic {
    name: "studies",
    kind: Kind::Line,
    forms: &["%studies"],
    usage: "%studies [--directory FOLDER]",
    summary: "list the studies of a folder",
    help: "Their objectives and oracles, how many trials they have and how these went, the best value, whether a search\n\
           runs, and when something changed last.\n\
           \n\
           Example\n  %studies --directory studies",
    positional: None,
    options: &[DIRECTORY],
    build: studies,
};

pub(super) const TRIALS: Magic = Magic {
    name: "trials",
    kind: Kind::Line,
    forms: &["%trials"],
    usage: "%trials [ID] [--sort COLUMN] [--where CONDITION] [--columns NAMES] [--limit N] [--project NAME] \
            [--directory FOLDER]",
    summary: "list the trials of a study, or show one",
    help: "With ID, one trial in full: parameters, metrics, what it took, how it ended, and its output. Columns are the\n\
           objectives, parameters and metrics by name, and trial, state, seconds, peak memory, epochs, started, ended\n\
           and ending. A condition compares by = != < > <= >= or ~ (contains); several are joined by ` and `.\n\
           \n\
           Example\n  %trials --where \"state=finished and lr<0.01\" --sort val_accuracy:desc\n  %trials 7 --project digits",
    positional: Some("ID"),
    options: &[
        MagicOption {
            name: "--sort",
            value: Some("COLUMN"),
            default: None,
            summary: "sort by it, the largest first with :desc behind it; without it by number",
        },
        MagicOption {
            name: "--where",
            value: Some("CONDITION"),
            default: None,
            summary: "only the trials for which it holds, as in val_accuracy>0.9",
        },
        MagicOption {
            name: "--columns",
            value: Some("NAMES"),
            default: None,
            summary: "the columns, as in trial,lr,val_accuracy",
        },
        MagicOption { name: "--limit", value: Some("N"), default: Some("200"), summary: "how many trials to show" },
        PROJECT,
        DIRECTORY,
    ],
    build: trials,
};

fn best(invocation: &Invocation<'_>) -> Result<Action, MagicError> {
    let arguments = Arguments::read(invocation)?;
    let count = arguments.positional_number("COUNT")?;
    if count == Some(0) {
        return Err(invocation.bad_value("COUNT", "0", "give at least 1"));
    }
    Ok(Action::Best(Best { count, study: study(&arguments)? }))
}

fn export(invocation: &Invocation<'_>) -> Result<Action, MagicError> {
    let arguments = Arguments::read(invocation)?;
    let format = arguments.required_positional("FORMAT", "such as csv")?;
    let target = arguments.required_positional("FILE", "to write to")?;
    Ok(Action::Export(Export { format, target, study: study(&arguments)? }))
}

fn plot(invocation: &Invocation<'_>) -> Result<Action, MagicError> {
    let arguments = Arguments::read(invocation)?;
    Ok(Action::Plot(Plot {
        kind: arguments.required_positional("KIND", "such as history")?,
        parameters: arguments.text("--params")?,
        objective: arguments.text("--objective")?,
        study: study(&arguments)?,
    }))
}

fn space(invocation: &Invocation<'_>) -> Result<Action, MagicError> {
    let arguments = Arguments::read(invocation)?;
    let (project, directory) = (arguments.project_argument("NAME")?, arguments.text("--directory")?);
    Ok(Action::Space(Study { project, directory }))
}

fn studies(invocation: &Invocation<'_>) -> Result<Action, MagicError> {
    Ok(Action::Studies { directory: Arguments::read(invocation)?.text("--directory")? })
}

fn trials(invocation: &Invocation<'_>) -> Result<Action, MagicError> {
    let arguments = Arguments::read(invocation)?;
    let of_lists = ["--sort", "--where", "--columns", "--limit"];
    if let (Some(id), true) = (arguments.positional(), of_lists.iter().any(|option| arguments.flag(option))) {
        return Err(invocation.bad_value("ID", id, "shows one trial; leave it out to sort and choose"));
    }
    Ok(Action::Trials(Trials {
        id: arguments.positional_number("ID")?,
        sort: arguments.text("--sort")?,
        filter: arguments.text("--where")?,
        columns: arguments.text("--columns")?,
        limit: arguments.count("--limit")?,
        study: study(&arguments)?,
    }))
}

fn study(arguments: &Arguments<'_>) -> Result<Study, MagicError> {
    Ok(Study { project: arguments.project("--project")?, directory: arguments.text("--directory")? })
}
