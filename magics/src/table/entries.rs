//! The magics themselves, and how each one's arguments become an [`Action`].

use super::memory::{checkpoint, checkpoints, gc, memory, restore, undo};
use super::{Kind, Magic, MagicOption, find, nearest, results};
use crate::action::{Action, Resume, Search, SearchVerb, SelfTest, Time, TpuCheck, TpuConnect, Tune};
use crate::arguments::{Arguments, Invocation};
use crate::cell::refuse_magics_inside;
use crate::error::MagicError;
use crate::lists;
use crate::scan::Scanner;

/// Every magic, by name.
pub fn table() -> &'static [Magic] {
    TABLE
}

pub(super) const PROJECT: MagicOption = MagicOption {
    name: "--project",
    value: Some("NAME"),
    default: None,
    summary: "the study; without it the notebook's last one",
};
pub(super) const DIRECTORY: MagicOption = MagicOption {
    name: "--directory",
    value: Some("FOLDER"),
    default: None,
    summary: "the folder that holds the study",
};

const BACKGROUND: MagicOption = MagicOption {
    name: "--background",
    value: None,
    default: None,
    summary: "give the notebook back at once; the search goes on without it",
};

static TABLE: &[Magic] = &[
    results::BEST,
    Magic {
        name: "checkpoint",
        kind: Kind::Line,
        forms: &["%checkpoint"],
        usage: "%checkpoint NAME",
        summary: "keep the variables as they are now",
        help: "%restore NAME brings them back, as often as you like, with all that was defined then. Costs the memory of\n\
               what changes afterwards, which %checkpoints shows. A NAME that is taken is given anew.\n\
               \n\
               Example\n  %checkpoint trained",
        positional: Some("NAME"),
        options: &[],
        build: checkpoint,
    },
    Magic {
        name: "checkpoints",
        kind: Kind::Line,
        forms: &["%checkpoints"],
        usage: "%checkpoints",
        summary: "list the states that can be gone back to",
        help: "Those with a name and those for %undo, with their age and the memory that each one costs by itself.\n\
               \n\
               Example\n  %checkpoints",
        positional: None,
        options: &[],
        build: checkpoints,
    },
    Magic {
        name: "device",
        kind: Kind::Line,
        forms: &["%device"],
        usage: "%device",
        summary: "show the device in use",
        help: "The device that cells and trials compute on. %tpu_connect chooses it.\n\nExample\n  %device",
        positional: None,
        options: &[],
        build: device,
    },
    Magic {
        name: "devices",
        kind: Kind::Line,
        forms: &["%devices"],
        usage: "%devices",
        summary: "list the CPU, the CUDA devices and the TPU of this machine",
        help: "With cores, vector units and memory, as far as this process may use them. No device is opened.\n\
               \n\
               Example\n  %devices",
        positional: None,
        options: &[],
        build: devices,
    },
    results::EXPORT,
    Magic {
        name: "gc",
        kind: Kind::Line,
        forms: &["%gc"],
        usage: "%gc [all]",
        summary: "give memory that cells have freed back to the machine, and say how much that was",
        help: "Rust frees a value when its variable goes; the allocator keeps some of that for later, and so do the\n\
               snapshots for %undo, as long as they are kept. %gc all forgets those, too: no cell can be undone then.\n\
               \n\
               Example\n  %gc",
        positional: Some("all"),
        options: &[],
        build: gc,
    },
    Magic {
        name: "lsmagic",
        kind: Kind::Line,
        forms: &["%lsmagic"],
        usage: "%lsmagic [NAME]",
        summary: "list the magics",
        help: "With a NAME, the help of that magic, as NAME? shows it.\n\nExample\n  %lsmagic tune",
        positional: Some("NAME"),
        options: &[],
        build: lsmagic,
    },
    Magic {
        name: "memory",
        kind: Kind::Line,
        forms: &["%memory"],
        usage: "%memory, %memory watch, or %memory limit SIZE|none",
        summary: "show who holds how much memory, or limit what a cell may hold",
        help: "Shows the process of the cells, its snapshots, running trials, the kernel, the limit that applies, and\n\
               what the last trials of the notebook's study took of the machine's memory and gave back.\n\
               %memory watch keeps the table up to date once a second until the next %memory.\n\
               %memory limit stops a cell that holds more than SIZE, and brings the variables back to what they were\n\
               before it. Without a limit that happens when the machine or the container is about to run out.\n\
               \n\
               Example\n  %memory limit 6GiB",
        positional: Some("watch|limit SIZE"),
        options: &[],
        build: memory,
    },
    results::PLOT,
    Magic {
        name: "restore",
        kind: Kind::Line,
        forms: &["%restore"],
        usage: "%restore NAME",
        summary: "bring back the variables of a checkpoint",
        help: "Variables and definitions are then as they were when %checkpoint NAME ran; %undo takes the return back.\n\
               Threads that were running then are not.\n\
               \n\
               Example\n  %restore trained",
        positional: Some("NAME"),
        options: &[],
        build: restore,
    },
    Magic {
        name: "resume",
        kind: Kind::Line,
        forms: &["%resume"],
        usage: "%resume [NAME] [--max-trials N] [--timeout TIME] [--trust] [--background] [--directory FOLDER]",
        summary: "go on with a study that was stopped, as it was begun",
        help: "The study's folder has all that its trials need: the objective, the variables that it captured, and what\n\
               it was linked with. The cell that began it need not be run again, nor any other. Trials that ran when\n\
               it stopped go on from their last checkpoints. `ferrotune resume FOLDER` does the same without a notebook.\n\
               A folder from somebody else has their code, which can do whatever you can: it runs only with --trust,\n\
               which is remembered for that code.\n\
               \n\
               Example\n  %resume digits --max-trials 50",
        positional: Some("NAME"),
        options: &[
            MagicOption {
                name: "--max-trials",
                value: Some("N"),
                default: None,
                summary: "how many trials to run in all; without it as many as before",
            },
            MagicOption {
                name: "--timeout",
                value: Some("TIME"),
                default: None,
                summary: "end the search after this time",
            },
            MagicOption {
                name: "--trust",
                value: None,
                default: None,
                summary: "run the study's code although this user did not compile it",
            },
            BACKGROUND,
            DIRECTORY,
        ],
        build: resume,
    },
    results::SPACE,
    results::STUDIES,
    Magic {
        name: "time",
        kind: Kind::Both,
        forms: &["%time", "%%time"],
        usage: "%time STATEMENT, or %%time on the first line of a cell",
        summary: "run a statement or a cell and say how long it took",
        help: "%time runs the rest of its line; %%time runs the cell below it. Compiling is not counted.\n\
               \n\
               Example\n  %time data.sum_all()?\n\n  %%time\n  for epoch in 0..10 {\n      fit(&mut model)?;\n  }",
        positional: Some("STATEMENT"),
        options: &[],
        build: time,
    },
    Magic {
        name: "tpu_check",
        kind: Kind::Line,
        forms: &["%tpu_check"],
        usage: "%tpu_check --tpu TYPE FILE",
        summary: "compile a program for a TPU that need not be there, and say whether it fits",
        help: "FILE holds a StableHLO module, as text or bytecode. It is compiled by libtpu, which must be installed\n\
               (pip install libtpu), for a TYPE such as v5e:2x2, v6e:2x4 or v4:2x2x1: generation and chips. Shown are\n\
               its memory against that of a device, its operations and its traffic.\n\
               \n\
               Example\n  %tpu_check --tpu v5e:2x2 step.mlir",
        positional: Some("FILE"),
        options: &[MagicOption {
            name: "--tpu",
            value: Some("TYPE"),
            default: None,
            summary: "the TPU to compile for, such as v5e:2x2; always needed",
        }],
        build: tpu_check,
    },
    Magic {
        name: "tpu_connect",
        kind: Kind::Line,
        forms: &["%tpu_connect"],
        usage: "%tpu_connect [--tpu NAME|local] [--require] [--selftest] [--plugin FILE]",
        summary: "pick a TPU, else CUDA, else the CPU, and say why",
        help: "Shows what was found on this machine and what it means, then connects the best device that can be\n\
               driven. A TPU is opened once, in a process of its own, to say what it is. With --selftest, that process\n\
               also computes on it, and the result is what to paste into a bug report.\n\
               \n\
               Example\n  %tpu_connect --require",
        positional: None,
        options: &[
            MagicOption {
                name: "--tpu",
                value: Some("NAME|local"),
                default: None,
                summary: "the TPU to use; local means one attached to this machine",
            },
            MagicOption {
                name: "--require",
                value: None,
                default: None,
                summary: "fail rather than fall back to CUDA or the CPU",
            },
            MagicOption {
                name: "--selftest",
                value: None,
                default: None,
                summary: "compute on the device and compare with plain arithmetic",
            },
            MagicOption {
                name: "--plugin",
                value: Some("FILE"),
                default: None,
                summary: "with --selftest: the PJRT plugin to test instead of libtpu",
            },
        ],
        build: tpu_connect,
    },
    results::TRIALS,
    Magic {
        name: "tune",
        kind: Kind::Both,
        forms: &["%tune", "%%tune"],
        usage: "%tune status|wait|stop [--project NAME] [--directory FOLDER], or on the first line of a cell \
                %%tune --objective NAME:max|min,… [--constraint NAME<=NUMBER,…] [--oracle NAME] [--pruner RULE] [--terminator RULE] [--max-trials N] [--executions N] \
                [--fix NAME=VALUE,…] [--enqueue NAME=VALUE,…;…] [--tune-only NAME,…] [--seed N] [--project NAME] \
                [--directory FOLDER] [--timeout TIME] [--trial-timeout TIME] [--memory SIZE] [--concurrency N] \
                [--threads N] [--retries N] [--max-consecutive-failures N] [--keep-best N] [--mirror FOLDER] \
                [--background] [--overwrite], and a closure |trial| { … } below",
        summary: "search for the parameters with which a closure does best",
        help: "The cell is a closure that asks the trial for parameters, trains, and reports metrics. Each trial runs\n\
               in a process of its own, and every fact is on disk the moment it is known: the same cell with the same\n\
               --project goes on where it stopped. A TIME is 90s, 10m, 2h or 1d; a SIZE is 512MiB, 4GiB or 4GB.\n\
               Of a search that runs, here or in another notebook, %tune status shows where it stands, %tune wait\n\
               follows it to its end, and %tune stop stops it after the current step of each trial.\n\
               A trial's value is the best report of the metric, the last or the mean with NAME:max:last or NAME:max:mean.\n\
               Several objectives, as in --objective accuracy:max,size:min, are searched for their trade-offs.\n\
               \n\
               Example\n  %tune status --project digits\n\n  %%tune --oracle hyperband --objective val_accuracy:max --max-trials 30 --project digits\n  \
               |trial| {\n      let units = trial.int(\"units\", 32..=512).step(32).get()?;\n      \
               let lr = trial.float(\"lr\", 1e-4..=1e-1).log().get()?;\n      \
               let mut model = Mlp::new(units, trial.device()?)?;\n      for epoch in trial.epochs(20) {\n          \
               let accuracy = fit_one_epoch(&mut model, lr)?;\n          \
               trial.report(epoch, [(\"val_accuracy\", accuracy)])?;\n      }\n      trial.best(\"val_accuracy\")\n  }",
        positional: Some("status|wait|stop"),
        options: TUNE,
        build: tune,
    },
    Magic {
        name: "undo",
        kind: Kind::Line,
        forms: &["%undo"],
        usage: "%undo [COUNT]",
        summary: "go back to the state before the last cells",
        help: "COUNT cells, one if it is left out; the last 5 cells that ran can be undone, fewer where memory is short.\n\
               Variables and definitions are then as they were before. What a cell did outside of its process, to files\n\
               for example, stays done.\n\
               \n\
               Example\n  %undo 2",
        positional: Some("COUNT"),
        options: &[],
        build: undo,
    },
];

const TUNE: &[MagicOption] = &[
    MagicOption {
        name: "--objective",
        value: Some("NAME:max|min,…"),
        default: None,
        summary: "the metrics to optimise and their directions; always needed",
    },
    MagicOption {
        name: "--constraint",
        value: Some("NAME<=NUMBER,…"),
        default: None,
        summary: "bounds of metrics, <= or >=, that a trial must keep to",
    },
    MagicOption {
        name: "--oracle",
        value: Some("NAME"),
        default: Some("auto"),
        summary: "how to search: auto, gp, tpe, cmaes, nsga2, qmc, grid, random, hyperband, asha, bohb, …",
    },
    MagicOption {
        name: "--pruner",
        value: Some("RULE"),
        default: None,
        summary: "give up trials that do badly: median, percentile, wilcoxon, patience or threshold",
    },
    MagicOption {
        name: "--terminator",
        value: Some("RULE"),
        default: None,
        summary: "end the search when no more is to be expected: stagnation or regret",
    },
    MagicOption { name: "--max-trials", value: Some("N"), default: Some("10"), summary: "how many trials to run" },
    MagicOption {
        name: "--executions",
        value: Some("N"),
        default: Some("1"),
        summary: "run each trial so often, with other seeds; its value is the mean",
    },
    MagicOption {
        name: "--fix",
        value: Some("NAME=VALUE,…"),
        default: None,
        summary: "give parameters these values in every trial",
    },
    MagicOption {
        name: "--enqueue",
        value: Some("NAME=VALUE,…;…"),
        default: None,
        summary: "try these values first, a trial for each part between semicolons",
    },
    MagicOption {
        name: "--tune-only",
        value: Some("NAME,…"),
        default: None,
        summary: "tune these parameters; any other keeps its default, or its lowest value",
    },
    MagicOption { name: "--seed", value: Some("N"), default: None, summary: "draw the same parameters on every run" },
    MagicOption {
        name: "--project",
        value: Some("NAME"),
        default: Some("untitled_project"),
        summary: "the study's name",
    },
    MagicOption {
        name: "--directory",
        value: Some("FOLDER"),
        default: Some("studies"),
        summary: "the folder that holds the study",
    },
    MagicOption { name: "--timeout", value: Some("TIME"), default: None, summary: "end the search after this time" },
    MagicOption { name: "--trial-timeout", value: Some("TIME"), default: None, summary: "end a trial after this time" },
    MagicOption { name: "--memory", value: Some("SIZE"), default: None, summary: "end a trial that takes more memory" },
    MagicOption {
        name: "--concurrency",
        value: Some("N"),
        default: Some("1"),
        summary: "trials that run side by side and share cores and memory",
    },
    MagicOption {
        name: "--threads",
        value: Some("N"),
        default: None,
        summary: "threads of each trial; without it its share of the cores",
    },
    MagicOption {
        name: "--retries",
        value: Some("N"),
        default: Some("0"),
        summary: "try a trial again that a signal ended, or that left without a result",
    },
    MagicOption {
        name: "--max-consecutive-failures",
        value: Some("N"),
        default: None,
        summary: "end the search after so many failures in a row",
    },
    MagicOption {
        name: "--keep-best",
        value: Some("N"),
        default: Some("3"),
        summary: "keep the checkpoints of so many trials",
    },
    MagicOption {
        name: "--mirror",
        value: Some("FOLDER"),
        default: None,
        summary: "copy the study to this folder as it grows, and go on from there",
    },
    BACKGROUND,
    MagicOption {
        name: "--overwrite",
        value: None,
        default: None,
        summary: "delete an earlier study of that name first",
    },
];

fn device(invocation: &Invocation<'_>) -> Result<Action, MagicError> {
    Arguments::read(invocation)?;
    Ok(Action::Device)
}

fn devices(invocation: &Invocation<'_>) -> Result<Action, MagicError> {
    Arguments::read(invocation)?;
    Ok(Action::Devices)
}

fn lsmagic(invocation: &Invocation<'_>) -> Result<Action, MagicError> {
    let arguments = Arguments::read(invocation)?;
    let Some(name) = arguments.positional() else {
        return Ok(Action::Lsmagic);
    };
    match find(name) {
        Some(magic) => Ok(Action::Help { name: magic.name.to_owned() }),
        None => Err(unknown(invocation.line, name)),
    }
}

fn resume(invocation: &Invocation<'_>) -> Result<Action, MagicError> {
    let arguments = Arguments::read(invocation)?;
    Ok(Action::Resume(Resume {
        project: arguments.project_argument("NAME")?,
        directory: arguments.text("--directory")?,
        max_trials: arguments.count("--max-trials")?,
        timeout_s: arguments.seconds("--timeout")?,
        trust: arguments.flag("--trust"),
        background: arguments.flag("--background"),
    }))
}

fn time(invocation: &Invocation<'_>) -> Result<Action, MagicError> {
    let Some(body) = invocation.body else {
        return time_line(invocation);
    };
    if !invocation.rest.trim().is_empty() {
        let argument = invocation.rest.trim().to_owned();
        return Err(MagicError::Unexpected { line: invocation.line, argument, usage: invocation.magic.usage });
    }
    if refuse_magics_inside(invocation, body)?.is_blank {
        return Err(invocation.nothing_to_run());
    }
    Ok(Action::Time(Time { source: body.to_owned(), first_line: invocation.line + 1 }))
}

fn time_line(invocation: &Invocation<'_>) -> Result<Action, MagicError> {
    let mut scanner = Scanner::new();
    scanner.line(invocation.rest);
    if !scanner.has_tokens() {
        return Err(invocation.nothing_to_run());
    }
    if scanner.is_open() {
        return Err(MagicError::Unfinished { line: invocation.line });
    }
    let source = format!("{}{}", " ".repeat(invocation.column), invocation.rest);
    Ok(Action::Time(Time { source, first_line: invocation.line }))
}

fn tpu_check(invocation: &Invocation<'_>) -> Result<Action, MagicError> {
    let arguments = Arguments::read(invocation)?;
    let tpu = arguments.required("--tpu")?;
    Ok(Action::TpuCheck(TpuCheck { tpu, file: arguments.required_positional("FILE", "with a StableHLO module")? }))
}

fn tpu_connect(invocation: &Invocation<'_>) -> Result<Action, MagicError> {
    let arguments = Arguments::read(invocation)?;
    let self_test = match (arguments.flag("--selftest"), arguments.text("--plugin")?) {
        (true, Some(plugin)) => SelfTest::Plugin(plugin),
        (true, None) => SelfTest::Tpu,
        (false, None) => SelfTest::Off,
        (false, Some(plugin)) => return Err(invocation.bad_value("--plugin", &plugin, "is for --selftest only")),
    };
    let (tpu, require) = (arguments.text("--tpu")?, arguments.flag("--require"));
    Ok(Action::TpuConnect(TpuConnect { tpu, require, self_test }))
}

fn tune(invocation: &Invocation<'_>) -> Result<Action, MagicError> {
    let arguments = Arguments::read(invocation)?;
    let Some(body) = invocation.body else {
        return search(invocation, &arguments);
    };
    if let Some(argument) = arguments.positional() {
        let (line, argument) = (invocation.line, argument.to_owned());
        return Err(MagicError::Unexpected { line, argument, usage: invocation.magic.usage });
    }
    let required = |option| arguments.required(option);
    // That it is there comes before what it says.
    required("--objective")?;
    let objectives = arguments.list("--objective", ',', lists::objective)?;
    let project = arguments.project("--project")?.unwrap_or_default();
    let tune = Tune {
        oracle: required("--oracle")?,
        pruner: arguments.text("--pruner")?,
        terminator: arguments.text("--terminator")?,
        objectives,
        constraints: arguments.list("--constraint", ',', lists::constraint)?,
        executions: arguments.count("--executions")?.unwrap_or(1),
        fixed: arguments.list("--fix", ',', lists::setting)?,
        enqueued: arguments.list("--enqueue", ';', lists::settings)?,
        tune_only: arguments.list("--tune-only", ',', lists::name)?,
        max_trials: arguments.count("--max-trials")?.unwrap_or(1),
        seed: arguments.number("--seed")?,
        project,
        directory: required("--directory")?,
        timeout_s: arguments.seconds("--timeout")?,
        trial_timeout_s: arguments.seconds("--trial-timeout")?,
        memory_bytes: arguments.bytes("--memory")?,
        concurrency: arguments.count("--concurrency")?.unwrap_or(1),
        threads: arguments.count("--threads")?,
        retries: arguments.number("--retries")?.unwrap_or_default(),
        max_consecutive_failures: arguments.count("--max-consecutive-failures")?,
        keep_best: arguments.number("--keep-best")?.unwrap_or_default(),
        mirror: arguments.text("--mirror")?,
        background: arguments.flag("--background"),
        overwrite: arguments.flag("--overwrite"),
        body: body.to_owned(),
        body_line: invocation.line + 1,
    };
    if refuse_magics_inside(invocation, body)?.is_blank {
        return Err(invocation.nothing_to_run());
    }
    Ok(Action::Tune(Box::new(tune)))
}

/// `%tune` on a line: about a search that runs.
fn search(invocation: &Invocation<'_>, arguments: &Arguments<'_>) -> Result<Action, MagicError> {
    let (line, name) = (invocation.line, invocation.magic.name);
    // Who gives other options means the cell magic.
    let wanted = |option: &&MagicOption| !["--project", "--directory"].contains(&option.name);
    if invocation.magic.options.iter().filter(wanted).any(|option| arguments.flag(option.name)) {
        return Err(MagicError::CellMagicOnLine { line, name });
    }
    let verb = match arguments.positional() {
        Some("status") => SearchVerb::Status,
        Some("wait") => SearchVerb::Wait,
        Some("stop") => SearchVerb::Stop,
        Some(other) => return Err(invocation.bad_value("%tune", other, "choose status, wait or stop")),
        None => return Err(invocation.nothing_to_run()),
    };
    let project = if arguments.flag("--project") { arguments.project("--project")? } else { None };
    let directory = if arguments.flag("--directory") { arguments.text("--directory")? } else { None };
    Ok(Action::Search(Search { verb, project, directory }))
}

/// The error for a name, typed with or without `%`, that no magic has.
pub(crate) fn unknown(line: usize, typed: &str) -> MagicError {
    let forms = table().iter().map(|magic| {
        let same_sigil = |form: &&&'static str| form.starts_with("%%") == typed.starts_with("%%");
        *magic.forms.iter().find(same_sigil).unwrap_or(&magic.forms[0])
    });
    let nearest = nearest(typed, forms).map(str::to_owned);
    let magic = if typed.starts_with('%') { typed.to_owned() } else { format!("%{typed}") };
    MagicError::Unknown { line, magic, nearest }
}
