//! The description of a search, from `%%tune`'s line or a program's builder to the journal:
//! the objectives, the oracle, the limits, and how the trials are run. No IO.

use crate::given::Given;
use crate::objective::{Constraint, Objective};
use crate::warm_start::WarmStart;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use std::path::PathBuf;

/// The description of a search. `%%tune` and the Rust builder fill it, the supervisor reads it from a JSON file, and the
/// journal keeps it without the fields that [apply to one call](StudySpec::without_call).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StudySpec {
    /// The project's name; the study's folder is `directory/project`.
    pub project: String,
    /// The folder of all studies.
    pub directory: PathBuf,
    /// The objectives; never empty. Trials with several objectives are compared by Pareto dominance. Earlier studies have a single
    /// objective in place of the list.
    #[serde(alias = "objective", deserialize_with = "one_or_more")]
    pub objectives: Vec<Objective>,
    /// Bounds on a trial's metrics.
    #[serde(default)]
    pub constraints: Vec<Constraint>,
    /// Name of the oracle, with its settings: `auto`, `gp`, `hyperband:factor=4,min=2`, …
    pub oracle: String,
    /// The pruner, which ends a trial because of its reports: `median`, `patience:steps=5`, …
    #[serde(default)]
    pub pruner: Option<String>,
    /// The terminator, which ends the search before `max_trials`: `stagnation:trials=30`, …
    #[serde(default)]
    pub terminator: Option<String>,
    /// The user's settings for parameters, made before the search.
    #[serde(default)]
    pub given: Given,
    /// The studies for a warm start: each the name of a project in `directory` or in the search's database, or the path of a folder, which
    /// has a slash. Applies to one call; the journal has the trials that were copied from those studies.
    #[serde(default, deserialize_with = "none_or_more")]
    pub from: Vec<String>,
    /// The trials that were copied from other studies. Earlier journals have a single warm start, or none, in place of the list.
    #[serde(default, alias = "warm_start", deserialize_with = "none_or_more")]
    pub warm_starts: Vec<WarmStart>,
    /// How often each trial runs, each time with another seed; the trial's values are the means. At least 1.
    #[serde(default = "once")]
    pub executions: u64,
    /// The number of trials after which the search ends.
    pub max_trials: u64,
    /// Seed of the oracle and, through it, of the trials.
    pub seed: Option<u64>,
    /// The time limit of the whole search, in seconds.
    pub timeout_s: Option<f64>,
    /// The time limit of one trial, in seconds.
    pub trial_timeout_s: Option<f64>,
    /// The largest memory of one trial, in bytes; a trial that exceeds it is ended.
    pub memory_budget_bytes: Option<u64>,
    /// Whether to delete an earlier study of this name first. Applies to one call; the journal has `false`.
    pub overwrite: bool,
    /// The path of the shared object with the objective.
    pub library: PathBuf,
    /// The objective's entry point in the library: `extern "C" fn() -> i32`.
    pub symbol: String,
    /// Hash of the objective's source and of the items that it uses, without comments and spaces; none if the source is unknown, as in
    /// a program.
    #[serde(default)]
    pub source_hash: Option<String>,
    /// Whether to keep the trials of an earlier objective with another source. Applies to one call; the journal has `false`.
    #[serde(default)]
    pub keeps_trials: bool,
    /// File (often under `/proc/PID/fd`) with the captured variables in safetensors layout, if any were captured.
    pub shared: Option<PathBuf>,
    /// Device for the trials: `cpu`, `cuda`, …
    pub device: String,
    /// The address of the study's database; none means a journal in the study's folder. Applies to one call; the journal does not keep
    /// the address, because it may contain a password.
    #[serde(default)]
    pub storage: Option<String>,
    /// The engine whose workers run the trials, while this process only shows their progress. Applies to one call.
    #[serde(default)]
    pub placement: Option<Placement>,
    /// How the supervisor runs the trials.
    #[serde(default)]
    pub supervision: Supervision,
}

impl Default for StudySpec {
    /// A search of ten trials by the oracle `auto` on the CPU, in `studies/untitled_project`, without limits. The caller must add the
    /// objectives, at least one, and the objective's library.
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
            from: Vec::new(),
            warm_starts: Vec::new(),
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
    /// A search that optimises `objectives`, of which there is at least one.
    pub fn new(project: impl Into<String>, objectives: Vec<Objective>) -> StudySpec {
        StudySpec { project: project.into(), objectives, ..StudySpec::default() }
    }

    /// The search without the fields that apply to one call only: `overwrite`, `keeps_trials`, `storage`, `placement`, `from`,
    /// `background`, `publish`, `leaves_trials`, TensorBoard's folder and the queue of trials to try first. A journal does not keep these
    /// fields, and a journal from another user cannot set them.
    pub fn without_call(self) -> StudySpec {
        StudySpec {
            overwrite: false,
            keeps_trials: false,
            storage: None,
            placement: None,
            from: Vec::new(),
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

    /// Whether only one process at a time can use the search's device: see [`takes_one_process`].
    pub fn takes_one_process(&self) -> bool {
        takes_one_process(&self.device)
    }

    /// The first objective, by which trials are compared if only one objective can be used.
    pub fn objective(&self) -> &Objective {
        &self.objectives[0]
    }
}

/// Whether only one process at a time can use the device of this name: true for a TPU, named `tpu` or by its library, which is
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

/// A list, or its only element.
#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrSeveral<T> {
    Several(Vec<T>),
    One(T),
}

impl<T> From<OneOrSeveral<T>> for Vec<T> {
    fn from(found: OneOrSeveral<T>) -> Vec<T> {
        match found {
            OneOrSeveral::Several(several) => several,
            OneOrSeveral::One(one) => vec![one],
        }
    }
}

pub(crate) fn one_or_several<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    OneOrSeveral::deserialize(deserializer).map(Vec::from)
}

fn one_or_more<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Objective>, D::Error> {
    let objectives: Vec<Objective> = one_or_several(deserializer)?;
    if objectives.is_empty() { Err(D::Error::custom("a search has at least one objective")) } else { Ok(objectives) }
}

fn none_or_more<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Vec<T>, D::Error> {
    let found = Option::<OneOrSeveral<T>>::deserialize(deserializer)?;
    Ok(found.map(Vec::from).unwrap_or_default())
}

/// The workers that an engine runs for a search.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    /// The engine, as in `ferrotune worker --on`: `local`, `slurm:partition=gpu`, `ray:http://HOST:8265`,
    /// `kubernetes:image=NAME`.
    pub engine: String,
    /// The number of workers, 1 if not given; the engine decides when each worker starts.
    pub workers: Option<u64>,
    /// The number of processors of each worker.
    pub cpus: Option<u64>,
    /// The number of graphics processors of each worker.
    pub gpus: Option<u64>,
}

/// The place where the files that workers on other hosts need are published.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PublishTo {
    /// The study's database.
    Database,
    /// An object store, below this address, such as `s3://BUCKET/PREFIX`.
    Store(String),
}

/// Lines of an objective's source that are lines of an earlier cell of its notebook.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ItemLines {
    /// The first of these lines in the objective's source, counted from 1.
    pub line: u32,
    /// The number of these lines, at least 1.
    pub count: u32,
    /// The number that Jupyter shows next to the cell, if there is one.
    pub cell: Option<u32>,
    /// The line in the cell that corresponds to the first of these lines, counted from 1.
    pub cell_line: u32,
}

impl ItemLines {
    /// The place in the notebook of a line of the source: `In [3] line 2`.
    pub fn place(&self, line: u32) -> Option<String> {
        let offset = line.checked_sub(self.line).filter(|offset| *offset < self.count)?;
        let line = self.cell_line + offset;
        Some(match self.cell {
            Some(cell) => format!("In [{cell}] line {line}"),
            None => format!("line {line} of an earlier cell"),
        })
    }
}

/// How a supervisor runs the trials of a search: how many at the same time, with which share of the machine, with how many
/// retries, and which checkpoints are kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Supervision {
    /// The number of trials that run at the same time, at least 1.
    pub concurrency: u64,
    /// Threads of each trial; if not given, the trials share the machine's processors.
    pub threads: Option<u64>,
    /// How often a trial is retried that ended by a signal or without a result, which may be due to chance.
    pub retries: u64,
    /// The number of failures in a row, of any kind, that ends the search. If not given, the search ends only if each of the
    /// first three trials ends with an error or a panic.
    pub max_consecutive_failures: Option<u64>,
    /// The number of ended trials that keep their checkpoints: the trials with the best values.
    pub keep_best: u64,
    /// A folder to which the study is copied as it grows, such as one of Google Drive.
    pub mirror: Option<PathBuf>,
    /// A folder for TensorBoard's files, which grow while the search runs. Only the program `ferrotune` writes
    /// them. Applies to one call; the journal has none.
    pub tensorboard: Option<PathBuf>,
    /// The number of steps that each worker profiles, at least 1; none means that nothing is profiled.
    pub profile: Option<u64>,
    /// Whether the operation that makes the first NaN or infinity ends its trial, with an error that names the operation.
    pub debug_nans: bool,
    /// Whether the search continues after the process that started it has ended. Applies to one call; the journal has `false`.
    pub background: bool,
    /// The libraries that the objective is linked with, for a machine that does not have them.
    pub libraries: Vec<PathBuf>,
    /// The lines of the objective's source that come from earlier cells of the notebook.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub items: Vec<ItemLines>,
    /// The number of trials after which a long-lived worker is replaced by a new one, at least 1.
    pub worker_trials: u64,
    /// The seconds that a long-lived worker may take to exit before it is killed.
    pub grace_s: u64,
    /// The interval of the search's heartbeats in the study's database, in seconds. Another search considers this search and its
    /// trials dead after twice that time. 0 means no heartbeats: then no search considers it dead.
    pub heartbeat_s: u64,
    /// The memory of a device that a trial may use where trials share the device with each other and with a notebook, in bytes; none
    /// for an equal part of what is free.
    pub device_memory_bytes: Option<u64>,
    /// How long the search waits for a device that another process uses, in seconds.
    pub device_wait_s: u64,
    /// The place where the files that workers on other hosts need are published. Applies to one call; the journal has none.
    pub publish: Option<PublishTo>,
    /// Whether other searches may take over the open trials when this search ends, since it does not resume. Applies to one call.
    pub leaves_trials: bool,
}

impl Default for Supervision {
    /// One trial at a time, no retries, and the checkpoints of three trials kept.
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
            device_memory_bytes: None,
            device_wait_s: 60,
            publish: None,
            leaves_trials: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{StudySpec, takes_one_process};
    use crate::objective::{Direction, Objective};
    use crate::warm_start::{SourceTrial, WarmStart};
    use serde_json::{Value, json};

    #[test]
    fn earlier_journals_have_one_study_to_learn_from_or_none() {
        let spec = StudySpec::new("here", vec![Objective::new("loss", Direction::Min)]);
        let trial =
            SourceTrial { number: 3, parameters: Default::default(), values: vec![0.5], metrics: Default::default() };
        let warm_start = WarmStart {
            study: "there".to_owned(),
            ranges: Default::default(),
            trials: vec![trial],
            best: Default::default(),
        };
        let read = |from: Value, one: Value| {
            let mut text = serde_json::to_value(&spec).unwrap();
            let fields = text.as_object_mut().unwrap();
            fields.remove("warm_starts");
            fields.extend([("from".to_owned(), from), ("warm_start".to_owned(), one)]);
            serde_json::from_value::<StudySpec>(text).unwrap()
        };
        assert_eq!(read(Value::Null, Value::Null), spec);
        let warm = StudySpec { from: vec!["there".to_owned()], warm_starts: vec![warm_start.clone()], ..spec.clone() };
        assert_eq!(read(json!("there"), json!(warm_start)), warm);
        assert_eq!(serde_json::from_value::<StudySpec>(json!(warm)).unwrap(), warm);
    }

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
