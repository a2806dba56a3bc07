//! The messages between a worker and its supervisor, and from the supervisor to whoever watches the search.
//!
//! One JSON object a line. A worker talks over its standard input, which is a connected Unix socket; it sends a
//! [`Request`] and waits for one [`Reply`]. The supervisor writes [`Event`]s to its standard output.

use crate::given::Given;
use crate::record::{Ending, TrialRecord, metrics_by_step};
use crate::space::{Distribution, Value};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The environment variable that carries the path of the shared data into a worker.
pub const SHARED_VARIABLE: &str = "FERROTUNE_SHARED";

/// The name of a trial's checkpoint of a generation, in the trial's folder.
pub fn checkpoint_file(generation: u64) -> String {
    format!("checkpoint-{generation:06}.safetensors")
}

/// The generation of a checkpoint, if this is the name of one.
pub fn checkpoint_generation(file: &str) -> Option<u64> {
    generation_in(file, ".safetensors")
}

/// Whether this is the name of a checkpoint that is being written, copied or linked.
pub fn is_partial_checkpoint(file: &str) -> bool {
    [".partial", ".safetensors.partial", ".link"].iter().any(|ending| generation_in(file, ending).is_some())
}

fn generation_in(file: &str, ending: &str) -> Option<u64> {
    let digits = file.strip_prefix("checkpoint-")?.strip_suffix(ending)?;
    // A name of the user's own may look much like it.
    digits.parse().ok().filter(|generation| format!("{generation:06}") == digits)
}

/// What a worker asks or tells, each answered by one [`Reply`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum Request {
    /// The objective's entry point has been reached. Answered by [`Reply::Assignment`].
    Hello,
    /// The value of a parameter. Answered by [`Reply::Value`].
    Suggest {
        /// The parameter's name.
        name: String,
        /// Its range.
        distribution: Distribution,
        /// The value to try first, if the objective names one.
        default: Option<Value>,
        /// Where in the objective's source it is asked for.
        #[serde(default)]
        place: String,
    },
    /// Which epochs to run, of `total`. Answered by [`Reply::Epochs`].
    Epochs {
        /// The number of epochs of a whole training.
        total: u64,
        /// The first epoch that no checkpoint covers.
        resume_at: u64,
    },
    /// Metrics of a step (an epoch, by habit). Answered by [`Reply::Verdict`].
    Report {
        /// The step, counted from 0.
        step: u64,
        /// The metrics; a value that is not finite travels as null.
        metrics: BTreeMap<String, Option<f64>>,
    },
    /// A checkpoint is on disk. Answered by [`Reply::Done`].
    Checkpoint {
        /// The last step that the checkpoint covers.
        step: u64,
        /// File name inside the trial's folder.
        file: String,
    },
    /// The objective returned. Answered by [`Reply::Done`].
    Finish {
        /// What it returned: a value for each of the study's objectives, null where that is not finite, or none at all
        /// if its reports are to tell. A lone value may stand for a list of one, as earlier workers send it.
        #[serde(alias = "value", deserialize_with = "one_or_several")]
        values: Vec<Option<f64>>,
    },
    /// Something that the trial needs cannot be read now: it goes on another time, and keeps all that it has. Answered by
    /// [`Reply::Done`].
    Postpone {
        /// What cannot be read, and the system's reason.
        reason: String,
    },
    /// A checkpoint cannot be written, for the disk is full. No fault of the trial's: the search ends, and the trial goes on
    /// from its last checkpoint another time. Answered by [`Reply::Done`].
    DiskFull {
        /// One line: the file, and the system's reason.
        reason: String,
    },
    /// The objective returned an error or panicked. Answered by [`Reply::Done`].
    Fail {
        /// `Failed` or `Panicked`.
        ending: Ending,
    },
}

/// The supervisor's answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum Reply {
    /// What this worker is to run.
    Assignment(Assignment),
    /// The value of the parameter that was asked for.
    Value {
        /// The value, of the parameter's own type.
        value: Value,
    },
    /// The epochs `start..stop` are to be run now.
    Epochs {
        /// First epoch.
        start: u64,
        /// One past the last epoch.
        stop: u64,
    },
    /// Whether to go on.
    Verdict {
        /// The decision.
        verdict: Verdict,
    },
    /// Recorded.
    Done,
    /// The request was wrong; the objective's call fails with this text.
    Refused {
        /// One line: what is wrong and what to do.
        reason: String,
    },
}

/// What a worker needs to know before it runs the objective.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Assignment {
    /// The trial's number, counted from 0.
    pub trial: u64,
    /// The trial's own folder (absolute), for checkpoints.
    pub folder: PathBuf,
    /// The device that was connected when the search began: `cpu`, `cuda:0`, …
    pub device: String,
    /// Name of the checkpoint to resume from, if one is there.
    pub checkpoint: Option<String>,
    /// A seed of the trial's own, and of the execution's, derived from the study's.
    pub seed: u64,
    /// Which execution of the trial this is, counted from 0.
    #[serde(default)]
    pub execution: u64,
    /// The metrics that earlier workers of this trial have reported, by step.
    #[serde(deserialize_with = "metrics_by_step")]
    pub reported: BTreeMap<u64, BTreeMap<String, Option<f64>>>,
    /// The study's objectives, of which the worker tells the best value so far; never empty.
    pub objectives: Vec<Objective>,
    /// The first of them, for the workers of studies that were begun before there could be several.
    pub objective: Objective,
}

/// Whether a trial goes on after a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Go on.
    Continue,
    /// The oracle gives up on this trial.
    Prune,
    /// The search is being stopped; checkpoint and return.
    Stop,
}

/// A metric that the search optimises.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Objective {
    /// The metric's name, as the objective reports it.
    pub metric: String,
    /// Whether small or large is good.
    pub direction: Direction,
    /// What the reports of several steps come to.
    #[serde(default)]
    pub summary: Summary,
}

impl Objective {
    /// The best report of a metric.
    pub fn new(metric: impl Into<String>, direction: Direction) -> Objective {
        Objective { metric: metric.into(), direction, summary: Summary::Best }
    }
}

/// How the reports of a trial's steps become one value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Summary {
    /// The best of them; those that are not finite do not count.
    #[default]
    Best,
    /// The last one; no value where that is not finite.
    Last,
    /// Their mean; no value where one is not finite.
    Mean,
}

/// Whether an objective is to become small or large.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// Smaller is better.
    Min,
    /// Larger is better.
    Max,
}

/// A bound that the last reported value of a metric must keep to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Constraint {
    /// The metric's name, as the objective reports it.
    pub metric: String,
    /// On which side of the bound it must stay: `Min` keeps it at or below, `Max` at or above.
    pub direction: Direction,
    /// The bound.
    pub bound: f64,
}

/// A search, as the kernel hands it to the supervisor (a JSON file named on its command line).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StudySpec {
    /// The project's name; the study's folder is `directory/project`.
    pub project: String,
    /// The folder of all studies.
    pub directory: PathBuf,
    /// What to optimise; never empty. Trials with several are compared by Pareto's rule. A lone objective may stand for
    /// a list of one, as earlier studies have it.
    #[serde(alias = "objective", deserialize_with = "one_or_more")]
    pub objectives: Vec<Objective>,
    /// What a trial's metrics must keep to for its values to count.
    #[serde(default)]
    pub constraints: Vec<Constraint>,
    /// Name of the oracle: `auto`, `gp`, `hyperband`, …
    pub oracle: String,
    /// When a trial is ended for what it reports, as the module `pruner` reads it: `median`, `patience:steps=5`, …
    #[serde(default)]
    pub pruner: Option<String>,
    /// When the search is ended before `max_trials`, as the module `terminator` reads it: `stagnation:trials=30`, …
    #[serde(default)]
    pub terminator: Option<String>,
    /// What the user has decided about parameters beforehand.
    #[serde(default)]
    pub given: Given,
    /// How often each trial runs, each time with another seed; its values are the means. At least 1.
    #[serde(default = "once")]
    pub executions: u64,
    /// Stop after this many trials.
    pub max_trials: u64,
    /// Seed of the oracle and, through it, of the trials.
    pub seed: Option<u64>,
    /// Stop the whole search after this many seconds.
    pub timeout_s: Option<f64>,
    /// End a trial after this many seconds.
    pub trial_timeout_s: Option<f64>,
    /// End a trial that holds more memory than this, in bytes.
    pub memory_budget_bytes: Option<u64>,
    /// Delete an earlier study of this name first.
    pub overwrite: bool,
    /// Shared object with the objective.
    pub library: PathBuf,
    /// Its entry point: `extern "C" fn() -> i32`.
    pub symbol: String,
    /// File (often under `/proc/PID/fd`) with the captured variables in safetensors layout, if any were captured.
    pub shared: Option<PathBuf>,
    /// Device for the trials: `cpu`, `cuda:0`, …
    pub device: String,
    /// How its trials are run.
    #[serde(default)]
    pub supervision: Supervision,
}

impl StudySpec {
    /// A search for the best of `objectives`, of which there is at least one: ten trials by the oracle `auto` on the CPU,
    /// in the folder `studies`, without limits and without an objective's library.
    pub fn new(project: impl Into<String>, objectives: Vec<Objective>) -> StudySpec {
        StudySpec {
            project: project.into(),
            directory: "studies".into(),
            objectives,
            constraints: Vec::new(),
            oracle: "auto".to_owned(),
            pruner: None,
            terminator: None,
            given: Given::default(),
            executions: 1,
            max_trials: 10,
            seed: None,
            timeout_s: None,
            trial_timeout_s: None,
            memory_budget_bytes: None,
            overwrite: false,
            library: PathBuf::new(),
            symbol: String::new(),
            shared: None,
            device: "cpu".to_owned(),
            supervision: Supervision::default(),
        }
    }

    /// The first objective, by which trials are compared where there can be only one.
    pub fn objective(&self) -> &Objective {
        &self.objectives[0]
    }
}

fn once() -> u64 {
    1
}

fn one_or_several<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Vec<T>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum OneOrSeveral<T> {
        Several(Vec<T>),
        One(T),
    }
    Ok(match OneOrSeveral::deserialize(deserializer)? {
        OneOrSeveral::Several(several) => several,
        OneOrSeveral::One(one) => vec![one],
    })
}

fn one_or_more<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Objective>, D::Error> {
    let objectives: Vec<Objective> = one_or_several(deserializer)?;
    if objectives.is_empty() { Err(D::Error::custom("a search has at least one objective")) } else { Ok(objectives) }
}

/// How the trials of a search are run: side by side, with what share of the machine, how often again, and what is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Supervision {
    /// Trials that run side by side, at least 1.
    pub concurrency: u64,
    /// Threads of each trial; the machine's, shared between the trials, if it is not given.
    pub threads: Option<u64>,
    /// How often a trial is tried again whose end may be chance: a signal, or an exit without a result.
    pub retries: u64,
    /// End the search after so many failures in a row, of whatever kind. Without it three errors or panics of the
    /// first three trials end it.
    pub max_consecutive_failures: Option<u64>,
    /// Trials whose checkpoints are kept once they have ended: those with the best values.
    pub keep_best: u64,
    /// A folder to which the study is copied as it grows, such as one of Google Drive.
    pub mirror: Option<PathBuf>,
    /// Go on without a watcher. Like `overwrite` a deed of the call that asks for it.
    pub background: bool,
    /// Libraries that the objective was linked with, for a machine that has not got them.
    pub libraries: Vec<PathBuf>,
}

impl Default for Supervision {
    /// One trial after the other, none tried again, the checkpoints of three kept.
    fn default() -> Supervision {
        Supervision {
            concurrency: 1,
            threads: None,
            retries: 0,
            max_consecutive_failures: None,
            keep_best: 3,
            mirror: None,
            background: false,
            libraries: Vec::new(),
        }
    }
}

/// What the supervisor tells its watcher.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// The study is open.
    Opened {
        /// The study's folder.
        folder: PathBuf,
        /// Trials found there from before.
        earlier_trials: u64,
    },
    /// A trial begins, or goes on in a new worker.
    TrialStarted {
        /// The trial's number.
        trial: u64,
        /// Which of its executions this is, counted from 0.
        #[serde(default)]
        execution: u64,
        /// The worker's process id.
        pid: u32,
    },
    /// An execution of a trial is over, and another one follows.
    Executed {
        /// The trial's number.
        trial: u64,
        /// Which execution, counted from 0.
        execution: u64,
        /// Its values, one for each objective.
        values: Vec<f64>,
    },
    /// A trial has reported, and the report is on disk. Told to a program that searches by itself, for its callbacks.
    Reported {
        /// The trial's number.
        trial: u64,
        /// The step.
        step: u64,
        /// Its metrics; null for a value that is not finite.
        metrics: BTreeMap<String, Option<f64>>,
    },
    /// Where the search stands; sent at most five times a second, and after each trial.
    Progress(Progress),
    /// A trial has ended and its record is on disk.
    TrialEnded {
        /// Its record, without what it has reported: [`Event::Reported`] and the journal have that.
        record: TrialRecord,
    },
    /// The search is over.
    Finished {
        /// Why.
        reason: Finish,
    },
    /// The search cannot go on, or could not begin.
    Error {
        /// One line: what is wrong and what to do.
        message: String,
    },
}

/// Why a search ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Finish {
    /// `max_trials` trials are done.
    MaxTrials,
    /// The oracle has nothing more to try.
    Exhausted,
    /// The search's time is over.
    Timeout,
    /// The user stopped it.
    Interrupted,
}

/// A picture of a running search.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// Trials that have ended, however they did.
    pub done: u64,
    /// Of those, the ones without a value (all endings but finished and pruned).
    pub failed: u64,
    /// Of those, pruned.
    pub pruned: u64,
    /// The trials asked for.
    pub max_trials: u64,
    /// The best trial so far, without what it has reported; none where there are several objectives, or no trial keeps the
    /// constraints.
    pub best: Option<TrialRecord>,
    /// The trade-offs so far, where there are several objectives.
    #[serde(default)]
    pub front: Option<Front>,
    /// Parameters that the user has decided something about, and that no trial so far has asked for.
    #[serde(default)]
    pub unasked: Vec<String>,
    /// Of the finished trials, those that break a constraint.
    #[serde(default)]
    pub infeasible: u64,
    /// The trials that run, in the order in which they began.
    pub running: Vec<Running>,
    /// Whether the search is being stopped and waits for the steps that its trials are in.
    pub stopping: bool,
    /// Seconds since the search began, in this supervisor.
    pub elapsed_s: f64,
    /// Seconds to go, estimated from the mean duration of the trials done.
    pub eta_s: Option<f64>,
    /// The supervisor's own resident memory in bytes.
    pub supervisor_bytes: u64,
}

/// The trials that no other one beats in every objective: Pareto's front.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Front {
    /// How many they are.
    pub trials: u64,
    /// For each objective the best and the worst value among them.
    pub ranges: Vec<(f64, f64)>,
}

/// The last word on a search, for those who were not there to hear it. What a search that was killed said last may be
/// old: whether one runs, its study's lock tells.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Where it stands, or stood at its end.
    pub progress: Progress,
    /// Why it ended, if it did.
    pub finish: Option<Finish>,
    /// The error that it ended with.
    pub error: Option<String>,
}

/// A running trial, for [`Progress`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Running {
    /// The trial's number.
    pub trial: u64,
    /// The parameters that it has asked for.
    pub parameters: BTreeMap<String, Value>,
    /// Last reported step, counted from 0.
    pub step: Option<u64>,
    /// Epochs of a whole training, if the objective said.
    pub epochs: Option<u64>,
    /// Which execution of the trial it is, counted from 0.
    #[serde(default)]
    pub execution: u64,
    /// Its own memory (resident less shared) in bytes, over its process tree.
    pub memory_bytes: u64,
}
