//! A trial's record: what was tried, what came of it, how it ended. No storage, no processes.

mod ending;
mod value;

pub use ending::{Ending, signal_name};
pub use value::{mean, study_best};

use crate::Parameter;
use crate::given::Values;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;

/// The program that runs a trial.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Runner {
    /// A search of this program.
    #[default]
    Search,
    /// None yet: the trial waits in the journal until a program begins it.
    Nobody,
    /// Another program that writes the same journal, such as Optuna.
    Other,
}

/// One trial: one choice of hyper-parameters and what came of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TrialRecord {
    /// Number in the study, counted from 0.
    pub number: u64,
    /// The parameters that the objective asked for.
    pub parameters: BTreeMap<String, Parameter>,
    /// Reported metrics by step; `None` for a value that was not finite.
    #[serde(deserialize_with = "metrics_by_step")]
    pub metrics: BTreeMap<u64, BTreeMap<String, Option<f64>>>,
    /// A value for each of the study's objectives, or none at all. Of a pruned trial, the summary of its reports.
    #[serde(default)]
    pub values: Vec<f64>,
    /// How it ended; `None` while it runs, waits for more epochs, or where its supervisor died with it.
    pub ending: Option<Ending>,
    /// Name of its last checkpoint, inside the trial's folder.
    pub checkpoint: Option<String>,
    /// Largest memory seen (resident less shared), in bytes.
    pub peak_bytes: u64,
    /// Seconds that its workers ran, all together.
    pub seconds: f64,
    /// Epochs of a whole training, as the objective said.
    pub epochs: Option<u64>,
    /// The epoch (exclusive) up to which the oracle let it train when its last worker ended; `None` if that worker
    /// was not ended by the oracle's epoch limit, or if a worker runs.
    pub paused_at: Option<u64>,
    /// What `paused_at` was, while a worker runs that lets the trial go on from there.
    #[serde(default)]
    pub continued_from: Option<u64>,
    /// Endings after which it was tried again, being perhaps no more than chance.
    pub retried: Vec<Ending>,
    /// Workers of it in a row that began and whose end no supervisor has seen, since its last checkpoint.
    pub unended_workers: u64,
    /// The trial whose last checkpoint it began with.
    #[serde(default)]
    pub parent: Option<u64>,
    /// The values of each finished execution, where it runs several times; its reports and its checkpoint are those of the
    /// last one.
    #[serde(default)]
    pub executions: Vec<Vec<f64>>,
    /// The values that it was enqueued with; it asks for the parameters all the same.
    #[serde(default)]
    pub preset: Values,
    /// What the objective, or Optuna, has remarked on it, by name: Optuna's user attributes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub user_attributes: BTreeMap<String, serde_json::Value>,
    /// Which program runs it, or ran it.
    #[serde(default)]
    pub runner: Runner,
    /// What its last worker took of the machine's memory, and left behind.
    pub memory: Option<MemoryCheck>,
    /// The device that it ran on, if that was not the CPU.
    #[serde(default)]
    pub device: Option<DeviceUse>,
}

/// The device of a trial, as the trial's worker has found it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceUse {
    /// The name by which it was opened: `tpu`, `xla:cpu`, `cuda:0`, …
    pub name: String,
    /// What its plugin calls it, such as `TPU v5 lite`.
    pub kind: Option<String>,
    /// The first line of the version of its plugin's platform.
    pub version: Option<String>,
    /// Its memory in use before the trial, in bytes; none if it was not open then, or its plugin does not tell.
    pub before_bytes: Option<u64>,
    /// The same after the trial.
    pub after_bytes: Option<u64>,
}

/// The machine before a trial's worker and after it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryCheck {
    /// What the machine (or container) had left before, in bytes.
    pub before_bytes: u64,
    /// The same after it.
    pub after_bytes: u64,
    /// The supervisor's own memory after it, in bytes.
    pub supervisor_bytes: u64,
    /// What the trial left behind, and whether it could be removed, in words.
    pub left: Vec<String>,
}

/// Reads steps that JSON has made strings of: inside a tagged enum serde does not turn keys back into numbers.
pub(crate) fn metrics_by_step<'de, D: Deserializer<'de>, V: Deserialize<'de>>(
    deserializer: D,
) -> Result<BTreeMap<u64, V>, D::Error> {
    let by_key = BTreeMap::<String, V>::deserialize(deserializer)?;
    let steps = by_key.into_iter().map(|(step, metrics)| Ok((step.parse().map_err(D::Error::custom)?, metrics)));
    steps.collect()
}

/// Where a trial stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It runs, waits for more epochs, or lost its supervisor.
    Running,
    /// It has a value.
    Finished,
    /// The oracle gave up on it.
    Pruned,
    /// It ended in any other way.
    Failed,
}

impl TrialRecord {
    /// A trial of which nothing is known yet but its number.
    pub fn new(number: u64) -> TrialRecord {
        TrialRecord { number, ..TrialRecord::default() }
    }

    /// The record without its reports. Field by field, since a clone would first copy the reports, which may be megabytes.
    pub fn without_reports(&self) -> TrialRecord {
        TrialRecord {
            number: self.number,
            parameters: self.parameters.clone(),
            metrics: BTreeMap::new(),
            values: self.values.clone(),
            ending: self.ending.clone(),
            checkpoint: self.checkpoint.clone(),
            peak_bytes: self.peak_bytes,
            seconds: self.seconds,
            epochs: self.epochs,
            paused_at: self.paused_at,
            continued_from: self.continued_from,
            retried: self.retried.clone(),
            unended_workers: self.unended_workers,
            parent: self.parent,
            executions: self.executions.clone(),
            preset: self.preset.clone(),
            user_attributes: self.user_attributes.clone(),
            runner: self.runner,
            memory: self.memory.clone(),
            device: self.device.clone(),
        }
    }

    /// Where it stands.
    pub fn state(&self) -> State {
        match self.ending {
            None => State::Running,
            Some(Ending::Finished) => State::Finished,
            Some(Ending::Pruned) => State::Pruned,
            Some(_) => State::Failed,
        }
    }

    /// Whether it waits in the journal until a program begins it.
    pub fn is_enqueued(&self) -> bool {
        self.ending.is_none() && self.runner == Runner::Nobody
    }

    /// Whether its objective has reported or returned a value, or written a checkpoint.
    pub fn has_results(&self) -> bool {
        !(self.metrics.is_empty() && self.values.is_empty() && self.executions.is_empty()) || self.checkpoint.is_some()
    }

    /// Whether another program runs it now, or ran it when that program was killed.
    pub fn runs_elsewhere(&self) -> bool {
        self.ending.is_none() && self.runner == Runner::Other
    }

    /// The value of the first objective.
    pub fn value(&self) -> Option<f64> {
        self.values.first().copied()
    }

    /// The epoch (exclusive) at which it waits for more, or waited before the worker that runs now.
    pub fn waited_at(&self) -> Option<u64> {
        self.paused_at.or(self.continued_from)
    }

    /// Epochs that it has been through, as far as its reports and its last pause tell.
    pub fn epochs_done(&self) -> u64 {
        self.last_step().map_or(0, |step| step.saturating_add(1)).max(self.waited_at().unwrap_or(0))
    }

    /// The last step with a report.
    pub fn last_step(&self) -> Option<u64> {
        self.metrics.keys().next_back().copied()
    }
}
