//! The magic `%%tune`, with the field of [`StudySpec`] that each option sets.

use super::search::{BACKGROUND, search};
use crate::magic::{Argument, Invocation, Magic, MagicOption, Values};

use crate::action::{Action, Tune};
use crate::arguments::Arguments;
use crate::call;
use crate::error::{MagicError, Problem};
use crate::quantity::{bytes, seconds};
use crate::values::{self, constraint, count, list, number, objective, parameter, quoted_list, settings};
use ferrotune_space::spec::{Placement, PublishTo, StudySpec};

pub(super) const TUNE: Magic = Magic {
    forms: &["%tune", "%%tune"],
    usage: "%tune status|wait|stop [--project NAME] [--directory FOLDER], or on the first line of a cell \
            %%tune {options}, and a closure |trial| { … } below",
    summary: "search for the parameters with which a closure does best",
    help: "The cell is a closure that asks the trial for parameters, trains, and reports metrics. Each trial runs\n\
           in a process of its own, and every fact is on disk the moment it is known: the same cell with the same\n\
           --project goes on where it stopped. A TIME is 90s, 10m, 2h or 1d; a SIZE is 512MiB, 4GiB or 4GB.\n\
           Of a search that runs, here or in another notebook, %tune status shows where it stands, %tune wait\n\
           follows it to its end, and %tune stop stops it after the current step of each trial.\n\
           A trial's value is the best report of the metric, the last or the mean with NAME:max:last or NAME:max:mean.\n\
           With --storage several notebooks, programs and hosts work on one study at a time, and Optuna with them:\n\
           all that have the same --project and --storage, each with a --directory of its own. With --on an engine\n\
           runs the trials, as in --on slurm:partition=gpu --workers 16 --cpus 4 --memory 8GiB --gpus 1.\n\
           Several objectives, as in --objective accuracy:max,size:min, are searched for their trade-offs.\n\
           \n\
           Settings of oracles, as in --oracle \"hyperband:factor=4,iterations=2,min=1\":\n  \
           hyperband, bohb, successive_halving  factor, min (epochs of the shortest trainings), iterations\n  \
           asha    factor, min (grace period), brackets\n  \
           pbt     population, interval, quantile, perturbation, resample, discrete=true\n  \
           pb2     population, interval, quantile\n  \
           tpe     startup, candidates, gamma\n  \
           cmaes   sigma0, population, separable=true\n  \
           gp      noise (0 to 1)\n  \
           nsga2   population\n  \
           nsga3   population, divisions\n  \
           grid    values of parameters, as in \"grid:lr=0.001|0.01,units=32|64\"\n\
           \n\
           Example\n  %tune status --project digits\n\n  %%tune --oracle hyperband --objective val_accuracy:max --max-trials 30 --project digits\n  \
           |trial| {\n      let units = trial.int(\"units\", 32..=512).step(32).get()?;\n      \
           let lr = trial.float(\"lr\", 1e-4..=1e-1).log().get()?;\n      \
           let mut model = Mlp::new(units, trial.device()?)?;\n      for epoch in trial.epochs(20) {\n          \
           let accuracy = fit_one_epoch(&mut model, lr)?;\n          \
           trial.report(epoch, [(\"val_accuracy\", accuracy)])?;\n      }\n      trial.best(\"val_accuracy\")\n  }",
    arguments: &[Argument::new("status|wait|stop", Values::Words(&["status", "wait", "stop"]))],
    options: &OPTIONS,
    runs_line: false,
    build: tune,
};

/// An option of the cell magic, and the function that sets its value in the specification of the search.
struct Row {
    option: MagicOption,
    set: Set,
}

type Set = fn(&mut StudySpec, &str) -> Result<(), String>;

impl Row {
    const fn of(option: MagicOption, set: Set) -> Row {
        Row { option, set }
    }

    const fn taking(self, values: Values) -> Row {
        Row { option: self.option.taking(values), set: self.set }
    }

    const fn or(self, default: fn() -> String) -> Row {
        Row { option: self.option.or(default), set: self.set }
    }
}

const fn row(name: &'static str, value: &'static str, summary: &'static str, set: Set) -> Row {
    Row::of(MagicOption::new(name, value, summary), set)
}

/// Reads a time in seconds, rounded up.
fn whole_seconds(text: &str) -> Result<u64, String> {
    Ok(seconds(text)?.ceil() as u64)
}

fn set<T>(field: &mut T, value: Result<T, String>) -> Result<(), String> {
    *field = value?;
    Ok(())
}

fn placed(spec: &mut StudySpec) -> &mut Placement {
    spec.placement.get_or_insert_default()
}

fn default() -> StudySpec {
    StudySpec::default()
}

const OBJECTIVE: MagicOption =
    MagicOption::new("--objective", "NAME:max|min,…", "the metrics to optimise and their directions").required();
const PUBLISH: MagicOption = MagicOption::with_or_without(
    "--publish",
    "URL",
    "with --storage, give `ferrotune worker` on other hosts all that it runs: in the database, or below s3://BUCKET/PREFIX, gs://…, az://… or file:///FOLDER",
);
const STORAGE: MagicOption = MagicOption::new(
    "--storage",
    "URL",
    "keep the study in this database, with Optuna's tables: postgresql://USER@HOST/DATABASE or sqlite:///FILE",
);
const ON: MagicOption = MagicOption::new(
    "--on",
    "LAUNCHER",
    "with --storage, have workers run the trials: local, slurm:partition=NAME, ray:http://HOST:8265 or kubernetes:image=NAME",
);
const DEBUG_NANS: MagicOption = MagicOption::flag(
    "--debug-nans",
    "end a trial at the first operation that makes a NaN or an infinity, and name it",
);
const PROJECT: MagicOption = MagicOption::new(
    "--project",
    "NAME",
    "the study's name; without it the cell has a study of its own, named by a hash of the objective and how it is searched",
)
.taking(Values::Study);
const CONTINUE: MagicOption =
    MagicOption::flag("--continue", "keep the trials so far although the objective's code has changed");
const OVERWRITE: MagicOption = MagicOption::flag("--overwrite", "delete an earlier study of that name first");

/// Options that need another option, each with that other option.
const NEEDS: [(&str, MagicOption); 5] =
    [("--publish", STORAGE), ("--on", STORAGE), ("--workers", ON), ("--cpus", ON), ("--gpus", ON)];

const ROWS: [Row; 40] = [
    Row::of(OBJECTIVE, |spec, text| set(&mut spec.objectives, list(text, ',', objective))),
    row("--constraint", "NAME<=NUMBER,…", "bounds of metrics, <= or >=, that a trial must keep to", |spec, text| {
        set(&mut spec.constraints, list(text, ',', constraint))
    }),
    row(
        "--oracle",
        "NAME",
        "how to search: auto, gp, tpe, cmaes, nsga2, nsga3, qmc, grid, random, hyperband, asha, bohb, …; settings below",
        |spec, text| set(&mut spec.oracle, values::text(text)),
    )
    .taking(Values::Oracle)
    .or(|| default().oracle),
    row(
        "--pruner",
        "RULE",
        "give up trials that do badly: median, percentile, forecast, wilcoxon, patience or threshold",
        |spec, text| set(&mut spec.pruner, values::text(text).map(Some)),
    )
    .taking(Values::Pruner),
    row("--terminator", "RULE", "end the search when no more is to be expected: stagnation or regret", |spec, text| {
        set(&mut spec.terminator, values::text(text).map(Some))
    })
    .taking(Values::Terminator),
    row("--max-trials", "N", "how many trials to run", |spec, text| set(&mut spec.max_trials, count(text)))
        .or(|| default().max_trials.to_string()),
    row("--executions", "N", "how often to run each trial, with other seeds; its value is the mean", |spec, text| {
        set(&mut spec.executions, count(text))
    })
    .or(|| default().executions.to_string()),
    row("--fix", "NAME=VALUE,…", "give parameters these values in every trial", |spec, text| {
        set(&mut spec.given.fixed, settings(text))
    }),
    row(
        "--enqueue",
        "NAME=VALUE,…;…",
        "try these values first, a trial for each part between semicolons",
        |spec, text| set(&mut spec.given.enqueued, quoted_list(text, ';', settings)),
    ),
    row(
        "--tune-only",
        "NAME,…",
        "tune these parameters; any other keeps its default, or its lowest value",
        |spec, text| set(&mut spec.given.tune_only, list(text, ',', parameter)),
    ),
    row(
        "--from",
        "STUDY,…",
        "learn from the trials of other studies, and try the best one of each first; a folder has a slash",
        |spec, text| set(&mut spec.from, list(text, ',', parameter)),
    )
    .taking(Values::Study),
    row("--seed", "N", "draw the same parameters on every run", |spec, text| {
        set(&mut spec.seed, number(text).map(Some))
    }),
    Row::of(PROJECT, |spec, text| set(&mut spec.project, values::project(text))),
    row("--directory", "FOLDER", "the folder that holds the study", |spec, text| {
        set(&mut spec.directory, Ok(text.into()))
    })
    .taking(Values::Path)
    .or(|| default().directory.display().to_string()),
    Row::of(STORAGE, |spec, text| set(&mut spec.storage, values::text(text).map(Some))),
    row(
        "--heartbeat",
        "TIME",
        "with --storage, how often other searches are told that this one lives",
        |spec, text| set(&mut spec.supervision.heartbeat_s, whole_seconds(text)),
    )
    .or(|| format!("{}s", default().supervision.heartbeat_s)),
    Row::of(PUBLISH, |spec, text| set(&mut spec.supervision.publish, values::publish_to(text).map(Some))),
    Row::of(ON, |spec, text| {
        spec.supervision.publish.get_or_insert(PublishTo::Database);
        set(&mut placed(spec).engine, values::text(text))
    }),
    row("--workers", "N", "with --on, how many workers to place", |spec, text| {
        set(&mut placed(spec).workers, count(text).map(Some))
    })
    .or(|| "1".to_owned()),
    row("--cpus", "N", "with --on, processors of each worker", |spec, text| {
        set(&mut placed(spec).cpus, count(text).map(Some))
    }),
    row("--gpus", "N", "with --on, graphics processors of each worker", |spec, text| {
        set(&mut placed(spec).gpus, count(text).map(Some))
    }),
    row("--timeout", "TIME", "end the search after this time", |spec, text| {
        set(&mut spec.timeout_s, seconds(text).map(Some))
    }),
    row("--trial-timeout", "TIME", "end a trial after this time", |spec, text| {
        set(&mut spec.trial_timeout_s, seconds(text).map(Some))
    }),
    row("--memory", "SIZE", "end a trial that takes more memory; with --on, the memory of each worker", |spec, text| {
        set(&mut spec.memory_budget_bytes, bytes(text).map(Some))
    }),
    row("--concurrency", "N", "trials that run side by side and share cores and memory", |spec, text| {
        set(&mut spec.supervision.concurrency, count(text))
    })
    .or(|| default().supervision.concurrency.to_string()),
    row("--threads", "N", "threads of each trial; without it its share of the cores", |spec, text| {
        set(&mut spec.supervision.threads, count(text).map(Some))
    }),
    row("--retries", "N", "try a trial again that a signal ended, or that left without a result", |spec, text| {
        set(&mut spec.supervision.retries, number(text))
    })
    .or(|| default().supervision.retries.to_string()),
    row("--max-consecutive-failures", "N", "end the search after this many failures in a row", |spec, text| {
        set(&mut spec.supervision.max_consecutive_failures, count(text).map(Some))
    }),
    row("--keep-best", "N", "how many trials keep their checkpoints", |spec, text| {
        set(&mut spec.supervision.keep_best, number(text))
    })
    .or(|| default().supervision.keep_best.to_string()),
    row(
        "--worker-trials",
        "N",
        "on the file of a TPU's plugin, trials that one process runs before another one takes its place",
        |spec, text| set(&mut spec.supervision.worker_trials, count(text)),
    )
    .or(|| default().supervision.worker_trials.to_string()),
    row("--grace", "TIME", "on the file of a TPU's plugin, how long a process may take to leave before it is killed", |spec, text| {
        set(&mut spec.supervision.grace_s, whole_seconds(text))
    })
    .or(|| format!("{}s", default().supervision.grace_s)),
    row("--device-memory", "SIZE", "the memory of a shared card or TPU that a trial may use", |spec, text| {
        set(&mut spec.supervision.device_memory_bytes, bytes(text).map(Some))
    })
    .or(|| "an equal part of what is free".to_owned()),
    row("--device-wait", "TIME", "on a TPU, how long to wait while another process uses it", |spec, text| {
        set(&mut spec.supervision.device_wait_s, whole_seconds(text))
    })
    .or(|| format!("{}s", default().supervision.device_wait_s)),
    row("--mirror", "FOLDER", "copy the study to this folder as it grows, and go on from there", |spec, text| {
        set(&mut spec.supervision.mirror, Ok(Some(text.into())))
    })
    .taking(Values::Path),
    row("--tensorboard", "FOLDER", "write files for TensorBoard there while the search runs", |spec, text| {
        set(&mut spec.supervision.tensorboard, Ok(Some(text.into())))
    })
    .taking(Values::Path),
    row("--profile", "N", "each trial records what its first N steps wait for; see %profile", |spec, text| {
        set(&mut spec.supervision.profile, count(text).map(Some))
    }),
    Row::of(DEBUG_NANS, |spec, _| set(&mut spec.supervision.debug_nans, Ok(true))),
    Row::of(BACKGROUND, |spec, _| set(&mut spec.supervision.background, Ok(true))),
    Row::of(CONTINUE, |spec, _| set(&mut spec.keeps_trials, Ok(true))),
    Row::of(OVERWRITE, |spec, _| set(&mut spec.overwrite, Ok(true))),
];

const OPTIONS: [MagicOption; ROWS.len()] = {
    let mut options = [ROWS[0].option; ROWS.len()];
    let mut index = 1;
    while index < ROWS.len() {
        options[index] = ROWS[index].option;
        index += 1;
    }
    options
};

fn tune(invocation: &Invocation<'_>) -> Result<Action, MagicError> {
    let arguments = Arguments::read(invocation)?;
    let Some(body) = invocation.body else {
        return search(invocation, &arguments);
    };
    if let Some(argument) = arguments.first(values::text)? {
        return Err(invocation.unexpected(&argument));
    }
    arguments.required(&OBJECTIVE)?;
    let mut spec = default();
    for row in &ROWS {
        arguments.option(&row.option, |text| (row.set)(&mut spec, text))?;
    }
    for (option, needed) in NEEDS {
        if arguments.given().any(|given| given.name == option) && !arguments.has(&needed) {
            let (magic, value) = (option.to_owned(), needed.value.unwrap_or_default());
            return Err(invocation.error(Problem::Missing { magic, argument: needed.name, value }));
        }
    }
    let body_line = invocation.line + 1;
    if call::body(invocation, body, body_line)?.is_blank {
        return Err(invocation.nothing_to_run());
    }
    let is_named = arguments.has(&PROJECT);
    Ok(Action::Tune(Box::new(Tune { spec, is_named, body: body.to_owned(), body_line })))
}
