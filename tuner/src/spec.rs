//! A search as its user describes it: the objectives, the oracle, the limits, and how the trials are run. No IO.

use crate::given::Given;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use std::path::PathBuf;

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

pub(crate) fn one_or_several<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
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
