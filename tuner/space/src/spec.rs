//! The one description of a search, from `%%tune`'s line or a program's builder to the journal:
//! the objectives, the oracle, the limits, and how the trials are run. No IO.

use crate::given::Given;
use crate::objective::{Constraint, Objective};
use crate::warm_start::WarmStart;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use std::path::PathBuf;

/// A search: what `%%tune` and the Rust builder fill, what the supervisor is started with (as a JSON file), and what the
/// journal keeps, but for that which [applies to one call](StudySpec::without_call).
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
    /// Name of the oracle, with its settings: `auto`, `gp`, `hyperband:factor=4,min=2`, …
    pub oracle: String,
    /// The rule by which a trial is ended for what it reports: `median`, `patience:steps=5`, …
    #[serde(default)]
    pub pruner: Option<String>,
    /// The rule by which the search ends before `max_trials`: `stagnation:trials=30`, …
    #[serde(default)]
    pub terminator: Option<String>,
    /// What the user has decided about parameters beforehand.
    #[serde(default)]
    pub given: Given,
    /// Another study to learn from: the name of a project in `directory`, or a folder, which has a slash. Applies to one
    /// call; the journal has what was taken from it.
    #[serde(default)]
    pub from: Option<String>,
    /// What was taken from another study.
    #[serde(default)]
    pub warm_start: Option<WarmStart>,
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
    /// Delete an earlier study of this name first. Applies to one call; the journal has `false`.
    pub overwrite: bool,
    /// Shared object with the objective.
    pub library: PathBuf,
    /// Its entry point: `extern "C" fn() -> i32`.
    pub symbol: String,
    /// Hash of the objective's source and of the items that it uses, without comments and spaces; none where the source is not
    /// known, as in a program.
    #[serde(default)]
    pub source_hash: Option<String>,
    /// Keep the trials of an objective whose source was another one. Applies to one call; the journal has `false`.
    #[serde(default)]
    pub keeps_trials: bool,
    /// File (often under `/proc/PID/fd`) with the captured variables in safetensors layout, if any were captured.
    pub shared: Option<PathBuf>,
    /// Device for the trials: `cpu`, `cuda:0`, …
    pub device: String,
    /// The address of the database that the study is in; none means a journal in the study's folder. Applies to one call;
    /// no study has it, for there may be a password in it.
    #[serde(default)]
    pub storage: Option<String>,
    /// Workers on an engine run the trials, and this process only follows them. Applies to one call.
    #[serde(default)]
    pub placement: Option<Placement>,
    /// How its trials are run.
    #[serde(default)]
    pub supervision: Supervision,
}

impl Default for StudySpec {
    /// Ten trials by the oracle `auto` on the CPU, in `studies/untitled_project`, without limits. The objectives, of which
    /// a search has at least one, and the objective's library are still to come.
    fn default() -> StudySpec {
        StudySpec {
            project: "untitled_project".to_owned(),
            directory: "studies".into(),
            objectives: Vec::new(),
            constraints: Vec::new(),
            oracle: "auto".to_owned(),
            pruner: None,
            terminator: None,
            given: Given::default(),
            from: None,
            warm_start: None,
            executions: 1,
            max_trials: 10,
            seed: None,
            timeout_s: None,
            trial_timeout_s: None,
            memory_budget_bytes: None,
            overwrite: false,
            library: PathBuf::new(),
            symbol: String::new(),
            source_hash: None,
            keeps_trials: false,
            shared: None,
            device: "cpu".to_owned(),
            storage: None,
            placement: None,
            supervision: Supervision::default(),
        }
    }
}

impl StudySpec {
    /// A search for the best of `objectives`, of which there is at least one.
    pub fn new(project: impl Into<String>, objectives: Vec<Objective>) -> StudySpec {
        StudySpec { project: project.into(), objectives, ..StudySpec::default() }
    }

    /// The search without what applies to one call only: `overwrite`, `keeps_trials`, `storage`, `placement`, `from`, `background`,
    /// `publish`, `leaves_trials`, TensorBoard's folder and the queue of trials to try first. A journal does not keep these, and one from
    /// somebody else cannot ask for them.
    pub fn without_call(self) -> StudySpec {
        StudySpec {
            overwrite: false,
            keeps_trials: false,
            storage: None,
            placement: None,
            from: None,
            given: Given { enqueued: Vec::new(), ..self.given },
            supervision: Supervision {
                background: false,
                tensorboard: None,
                publish: None,
                leaves_trials: false,
                ..self.supervision
            },
            ..self
        }
    }

    /// Whether its trials run one after another in a worker that stays: see [`takes_one_process`].
    pub fn has_staying_worker(&self) -> bool {
        takes_one_process(&self.device)
    }

    /// The first objective, by which trials are compared where there can be only one.
    pub fn objective(&self) -> &Objective {
        &self.objectives[0]
    }
}

/// Whether only one process at a time can use the device of this name: a TPU, by its name `tpu` or by its library, which is
/// a plugin's file whose name begins with `libtpu`.
pub fn takes_one_process(device: &str) -> bool {
    match device.split_once(':').unwrap_or((device, "")) {
        ("tpu", _) => true,
        ("xla", plugin) => plugin != "cpu" && plugin.rsplit('/').next().is_some_and(|name| name.starts_with("libtpu")),
        _ => false,
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

/// Workers that an engine runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    /// The engine, as in `ferrotune worker --on`: `local`, `slurm:partition=gpu`, `ray:http://HOST:8265`,
    /// `kubernetes:image=NAME`.
    pub engine: String,
    /// How many workers; the engine decides when each one starts. 1 where it is not given.
    pub workers: Option<u64>,
    /// Processors of each worker.
    pub cpus: Option<u64>,
    /// Graphics processors of each worker.
    pub gpus: Option<u64>,
}

/// Where what workers on other hosts run is put.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PublishTo {
    /// The study's database.
    Database,
    /// A store of objects, below this address, such as `s3://BUCKET/PREFIX`.
    Store(String),
}

/// Lines of an objective's source that are lines of an earlier cell of its notebook.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ItemLines {
    /// The first one, counted from 1.
    pub line: u32,
    /// How many there are, at least 1.
    pub count: u32,
    /// The number that Jupyter shows beside the cell, if it shows one.
    pub cell: Option<u32>,
    /// The cell's line that is the first of them, counted from 1.
    pub cell_line: u32,
}

impl ItemLines {
    /// A line of the source as users find it: `In [3] line 2`.
    pub fn place(&self, line: u32) -> Option<String> {
        let offset = line.checked_sub(self.line).filter(|offset| *offset < self.count)?;
        let line = self.cell_line + offset;
        Some(match self.cell {
            Some(cell) => format!("In [{cell}] line {line}"),
            None => format!("line {line} of an earlier cell"),
        })
    }
}

/// How the trials of a search are run: side by side, with what share of the machine, how often again, and what is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Supervision {
    /// Trials that run side by side, at least 1.
    pub concurrency: u64,
    /// Threads of each trial; the machine's, shared between the trials, if it is not given.
    pub threads: Option<u64>,
    /// How often a trial is tried again that ended by a signal or without a result, which may be chance.
    pub retries: u64,
    /// End the search after this many failures in a row, of any kind. Without it, the search ends only if each of the
    /// first three trials ends with an error or a panic.
    pub max_consecutive_failures: Option<u64>,
    /// How many trials keep their checkpoints once they have ended: those with the best values.
    pub keep_best: u64,
    /// A folder to which the study is copied as it grows, such as one of Google Drive.
    pub mirror: Option<PathBuf>,
    /// A folder for TensorBoard's files, which grow while the search runs. Only the program `ferrotune` writes
    /// them. Applies to one call; the journal has none.
    pub tensorboard: Option<PathBuf>,
    /// How many steps each worker profiles, at least 1; none means that nothing is profiled.
    pub profile: Option<u64>,
    /// Let the operation that makes the first NaN or infinity end its trial, with an error that names it.
    pub debug_nans: bool,
    /// Go on when the process that started the search is gone. Applies to one call; the journal has `false`.
    pub background: bool,
    /// Libraries that the objective was linked with, for a machine that does not have them.
    pub libraries: Vec<PathBuf>,
    /// Where in the objective's source items of the notebook's earlier cells are.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub items: Vec<ItemLines>,
    /// After so many trials a worker that stays is replaced by a new one, at least 1.
    pub worker_trials: u64,
    /// How long a worker that stays may take to leave before it is killed, in seconds.
    pub grace_s: u64,
    /// How often a study in a database is told that this search lives, in seconds. Another one takes it for dead
    /// after twice that time, and its trials with it. 0 means never: nobody takes it for dead then.
    pub heartbeat_s: u64,
    /// How long the search waits for a device that another process uses, in seconds.
    pub device_wait_s: u64,
    /// Put what workers on other hosts run there. Applies to one call; the journal has none.
    pub publish: Option<PublishTo>,
    /// When the search ends, its open trials are for others, since it does not come back. Applies to one call.
    pub leaves_trials: bool,
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
            tensorboard: None,
            profile: None,
            debug_nans: false,
            background: false,
            libraries: Vec::new(),
            items: Vec::new(),
            worker_trials: 50,
            grace_s: 20,
            heartbeat_s: 30,
            device_wait_s: 60,
            publish: None,
            leaves_trials: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::takes_one_process;

    #[test]
    fn a_tpu_takes_one_process_by_its_name_and_by_its_library() {
        for device in ["tpu", "tpu:0", "xla:/opt/lib/libtpu.so", "xla:/home/me/libtpu-nightly.so"] {
            assert!(takes_one_process(device), "{device}");
        }
        for device in ["cpu", "cuda:0", "xla:cpu", "xla:/opt/libtpu/plugin.so", "xla:/opt/plugin.so", "tpus"] {
            assert!(!takes_one_process(device), "{device}");
        }
    }
}
