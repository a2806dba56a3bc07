//! The magics that show the results of a search.

use crate::action::{Action, Best, Export, Plot, Study, Trials};
use crate::arguments::Arguments;
use crate::error::MagicError;
use crate::magic::{Argument, Invocation, Magic, MagicOption, Values};
use crate::values::{count, number, project, text};

pub(super) const PROJECT: MagicOption =
    MagicOption::new("--project", "NAME", "the study; without it the notebook's last one").taking(Values::Study);
pub(super) const DIRECTORY: MagicOption =
    MagicOption::new("--directory", "FOLDER", "the folder that holds the study").taking(Values::Path);
const PARAMS: MagicOption =
    MagicOption::new("--params", "NAMES", "the parameters, as in lr,units; without it the most important ones");
const OBJECTIVE: MagicOption = MagicOption::new(
    "--objective",
    "NAME",
    "the objective by its metric, and of intermediate any metric; without it the first objective",
);
const EVALUATOR: MagicOption = MagicOption::new(
    "--evaluator",
    "NAME",
    "how importance is measured: ped_anova, or fanova for shares of the variance, also of pairs",
)
.taking(Values::Words(&["ped_anova", "fanova"]))
.or(|| "ped_anova".to_owned());
const SORT: MagicOption =
    MagicOption::new("--sort", "COLUMN", "sort by it, the largest first with :desc behind it; without it by number");
const WHERE: MagicOption =
    MagicOption::new("--where", "CONDITION", "only the trials for which it holds, as in val_accuracy>0.9");
const COLUMNS: MagicOption = MagicOption::new("--columns", "NAMES", "the columns, as in trial,lr,val_accuracy");
const LIMIT: MagicOption = MagicOption::new("--limit", "N", "how many trials to show").or(|| MOST_TRIALS.to_string());

const INSERT: MagicOption =
    MagicOption::flag("--insert", "put the best trial and its parameters into the next cell, as variables");

const MOST_TRIALS: u64 = 200;
/// The file of `%export model` if the magic names no file.
const MODEL_FILE: &str = "model.safetensors";

pub(super) const BEST: Magic = Magic {
    forms: &["%best"],
    usage: "%best [COUNT] {options}",
    summary: "show the best trials of a study, and how to use them",
    help: "COUNT trials, one if it is left out, best first: their parameters and values, where their weights are, and\n\
           the Rust that makes the parameters of the best one variables again and loads its weights. Of several\n\
           objectives, the trials that no other one beats in all of them.\n\
           --insert puts `let best = ferrotune::best(\"NAME\")?;`, with the model of the best one, and a line\n\
           `let NAME = VALUE;` for each of its parameters into a new cell below.\n\
           \n\
           Example\n  %best 3 --project digits\n  %best --insert",
    arguments: &[Argument::new("COUNT", Values::Any)],
    options: &[INSERT, PROJECT, DIRECTORY],
    runs_line: false,
    build: best,
};

pub(super) const EXPORT: Magic = Magic {
    forms: &["%export"],
    usage: "%export FORMAT FILE {options}",
    summary: "write a study to a file that other programs read",
    help: "FORMAT is csv, json, parquet, html (a page with the table and the plots, which needs no network) or\n\
           tensorboard, whose FILE is a folder for `tensorboard --logdir FOLDER`. Written again while the search goes\n\
           on, TensorBoard's files grow, and an open TensorBoard shows what is new.\n\
           model is the best trial's model as safetensors, with the trial's parameters as metadata; without FILE it is\n\
           model.safetensors.\n\
           \n\
           Example\n  %export csv digits.csv --project digits\n  %export model",
    arguments: &[Argument::new("FORMAT", Values::Format), Argument::new("FILE", Values::Path)],
    options: &[PROJECT, DIRECTORY],
    runs_line: false,
    build: export,
};

pub(super) const PLOT: Magic = Magic {
    forms: &["%plot"],
    usage: "%plot KIND {options}",
    summary: "draw what a search has found",
    help: "KIND is history, parallel, slice, contour, importance, intermediate, pareto, edf, timeline, rank,\n\
           hypervolume, terminator or model. All but model show what Optuna's plots of the same names do: Vega-Lite where the front\n\
           end draws it, else a picture, else text.\n\
           \n\
           Example\n  %plot contour --params lr,units --project digits\n  %plot importance --evaluator fanova",
    arguments: &[Argument::new("KIND", Values::Plot)],
    options: &[PARAMS, OBJECTIVE, EVALUATOR, PROJECT, DIRECTORY],
    runs_line: false,
    build: plot,
};

pub(super) const SPACE: Magic = Magic {
    forms: &["%space"],
    usage: "%space [NAME] {options}",
    summary: "show the search space of a study, as its trials have shown it",
    help: "Name, kind, range, scale, default, condition and values so far of every parameter. An objective asks for\n\
           its parameters as it runs, so that there is nothing to show before the first trial.\n\
           \n\
           Example\n  %space digits",
    arguments: &[Argument::new("NAME", Values::Study)],
    options: &[DIRECTORY],
    runs_line: false,
    build: space,
};

pub(super) const STUDIES: Magic = Magic {
    forms: &["%studies"],
    usage: "%studies {options}",
    summary: "list the studies of a folder",
    help: "Their objectives and oracles, how many trials they have and how these went, the best value, whether a search\n\
           runs, and when something changed last.\n\
           \n\
           Example\n  %studies --directory studies",
    arguments: &[],
    options: &[DIRECTORY],
    runs_line: false,
    build: studies,
};

pub(super) const TRIALS: Magic = Magic {
    forms: &["%trials"],
    usage: "%trials [ID] {options}",
    summary: "list the trials of a study, or show one",
    help: "With ID, one trial in full: parameters, metrics, what it took, how it ended, and its output. Columns are the\n\
           objectives, parameters and metrics by name, and trial, state, seconds, peak memory, epochs, started, ended\n\
           and ending. A condition compares by = != < > <= >= or ~ (contains); several are joined by ` and `.\n\
           \n\
           Example\n  %trials --where \"state=finished and lr<0.01\" --sort val_accuracy:desc\n  %trials 7 --project digits",
    arguments: &[Argument::new("ID", Values::Any)],
    options: &[SORT, WHERE, COLUMNS, LIMIT, PROJECT, DIRECTORY],
    runs_line: false,
    build: trials,
};

fn best(invocation: &Invocation<'_>) -> Result<Action, MagicError> {
    let arguments = Arguments::read(invocation)?;
    Ok(Action::Best(Best { count: arguments.first(count)?, insert: arguments.has(&INSERT), study: study(&arguments)? }))
}

fn export(invocation: &Invocation<'_>) -> Result<Action, MagicError> {
    let arguments = Arguments::read(invocation)?;
    let [format, target] = match arguments.only() {
        Some("model") => ["model", MODEL_FILE].map(str::to_owned),
        _ => arguments.all(["such as csv", "to write to"])?,
    };
    Ok(Action::Export(Export { format, target, study: study(&arguments)? }))
}

fn plot(invocation: &Invocation<'_>) -> Result<Action, MagicError> {
    let arguments = Arguments::read(invocation)?;
    let [kind] = arguments.all(["such as history"])?;
    Ok(Action::Plot(Plot {
        kind,
        parameters: arguments.option(&PARAMS, text)?,
        objective: arguments.option(&OBJECTIVE, text)?,
        evaluator: arguments.option(&EVALUATOR, text)?,
        study: study(&arguments)?,
    }))
}

fn space(invocation: &Invocation<'_>) -> Result<Action, MagicError> {
    let arguments = Arguments::read(invocation)?;
    let (project, directory) = (arguments.first(project)?, arguments.option(&DIRECTORY, text)?);
    Ok(Action::Space(Study { project, directory }))
}

fn studies(invocation: &Invocation<'_>) -> Result<Action, MagicError> {
    Ok(Action::Studies { directory: Arguments::read(invocation)?.option(&DIRECTORY, text)? })
}

fn trials(invocation: &Invocation<'_>) -> Result<Action, MagicError> {
    let arguments = Arguments::read(invocation)?;
    let id = arguments.first(number)?;
    if let (Some(id), true) = (id, [SORT, WHERE, COLUMNS, LIMIT].iter().any(|option| arguments.has(option))) {
        let problem = "shows one trial; leave it out to sort and choose";
        return Err(invocation.bad_value("ID", &id.to_string(), problem));
    }
    Ok(Action::Trials(Trials {
        id,
        sort: arguments.option(&SORT, text)?,
        filter: arguments.option(&WHERE, text)?,
        columns: arguments.option(&COLUMNS, text)?,
        limit: arguments.option(&LIMIT, count)?.unwrap_or(MOST_TRIALS),
        study: study(&arguments)?,
    }))
}

pub(super) fn study(arguments: &Arguments<'_>) -> Result<Study, MagicError> {
    Ok(Study { project: arguments.option(&PROJECT, project)?, directory: arguments.option(&DIRECTORY, text)? })
}
