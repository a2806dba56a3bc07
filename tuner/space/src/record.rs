//! The record of a trial: its parameters, its results and its ending. No storage, no processes.

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
    /// A search of Ferrotune.
    #[default]
    Search,
    /// No program: the trial waits in the journal until a program begins it.
    Nobody,
    /// Another program that writes the same journal, such as Optuna.
    Other,
}

/// A trial: a choice of hyper-parameters and its results.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TrialRecord {
    /// The trial's number in the study, counted from 0.
    pub number: u64,
    /// The parameters that the objective asked for.
    pub parameters: BTreeMap<String, Parameter>,
    /// Reported metrics by step; `None` for a value that was not finite.
    #[serde(deserialize_with = "metrics_by_step")]
    pub metrics: BTreeMap<u64, BTreeMap<String, Option<f64>>>,
    /// A value for each of the study's objectives, or an empty list. For a pruned trial, the summary of its reports.
    #[serde(default)]
    pub values: Vec<f64>,
    /// How the trial ended; `None` while the trial waits or runs, or if its supervisor was killed while it ran.
    pub ending: Option<Ending>,
    /// File name of the trial's last checkpoint, inside the trial's folder.
    pub checkpoint: Option<String>,
    /// The largest memory of the trial (resident less shared), in bytes.
    pub peak_bytes: u64,
    /// Seconds of run time of all the trial's workers, added up.
    pub seconds: f64,
    /// Epochs of a complete training, if the objective has given their number.
    pub epochs: Option<u64>,
    /// The epoch (exclusive) at which the oracle's epoch limit ended the trial's last worker; `None` if that worker
    /// ended for another reason, or if a worker runs.
    pub paused_at: Option<u64>,
    /// The value of `paused_at` before the running worker continued the trial; `None` if no worker continues it.
    #[serde(default)]
    pub continued_from: Option<u64>,
    /// Endings after which the trial was retried, because such an ending may be due to chance.
    pub retried: Vec<Ending>,
    /// The number of successive workers of the trial since its last checkpoint that began, and whose end no supervisor has seen.
    pub unended_workers: u64,
    /// The trial with whose last checkpoint this trial began.
    #[serde(default)]
    pub parent: Option<u64>,
    /// The values of each finished execution, if the trial runs several times; the trial's reports and checkpoint are those of
    /// the last execution.
    #[serde(default)]
    pub executions: Vec<Vec<f64>>,
    /// The values with which the trial was enqueued; the objective still asks for these parameters.
    #[serde(default)]
    pub preset: Values,
    /// Remarks on the trial by the objective or by Optuna, by name: Optuna's user attributes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub user_attributes: BTreeMap<String, serde_json::Value>,
    /// The program that runs the trial, or ran it.
    #[serde(default)]
    pub runner: Runner,
    /// The memory of the machine before and after the trial's last worker, and what that worker left behind.
    pub memory: Option<MemoryCheck>,
    /// The device on which the trial ran, if that was not the CPU.
    #[serde(default)]
    pub device: Option<DeviceUse>,
}

/// The device of a trial, as reported by the trial's worker.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceUse {
    /// The name by which the device was opened: `tpu`, `cuda`, `xla:cpu`, …
    pub name: String,
    /// The plugin's name for the kind of device, such as `TPU v5 lite`.
    pub kind: Option<String>,
    /// The first line of the platform version of the device's plugin.
    pub version: Option<String>,
    /// The device memory in use before the trial, in bytes; none if the device was not open then, or if its plugin does not report it.
    pub before_bytes: Option<u64>,
    /// The device memory in use after the trial, in bytes; none for the same reasons.
    pub after_bytes: Option<u64>,
    /// The largest memory of the trial on a device that it has shared with others, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_bytes: Option<u64>,
}

/// The memory of the machine before and after a trial's worker.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryCheck {
    /// The available memory of the machine (or container) before the worker, in bytes.
    pub before_bytes: u64,
    /// The available memory after the worker, in bytes.
    pub after_bytes: u64,
    /// The supervisor's own memory after the worker, in bytes.
    pub supervisor_bytes: u64,
    /// The trial's leftovers, and whether they could be removed, in words.
    pub left: Vec<String>,
}

/// Reads steps that JSON has turned into strings: inside a tagged enum serde does not turn such keys back into numbers.
pub(crate) fn metrics_by_step<'de, D: Deserializer<'de>, V: Deserialize<'de>>(
    deserializer: D,
) -> Result<BTreeMap<u64, V>, D::Error> {
    let by_key = BTreeMap::<String, V>::deserialize(deserializer)?;
    let steps = by_key.into_iter().map(|(step, metrics)| Ok((step.parse().map_err(D::Error::custom)?, metrics)));
    steps.collect()
}

/// The state of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The trial waits to begin, runs, waits for more epochs, or lost its supervisor.
    Running,
    /// The trial has finished with a value.
    Finished,
    /// The oracle or the pruner has ended the trial.
    Pruned,
    /// The trial ended in any other way.
    Failed,
}

impl TrialRecord {
    /// The record of a new trial, with its number and no data.
    pub fn new(number: u64) -> TrialRecord {
        TrialRecord { number, ..TrialRecord::default() }
    }

    /// The record without its reports. Copied field by field, since a clone would first copy the reports, which may be megabytes.
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

    /// The state of the trial.
    pub fn state(&self) -> State {
        match self.ending {
            None => State::Running,
            Some(Ending::Finished) => State::Finished,
            Some(Ending::Pruned) => State::Pruned,
            Some(_) => State::Failed,
        }
    }

    /// Whether the trial waits in the journal until a program begins it.
    pub fn is_enqueued(&self) -> bool {
        self.ending.is_none() && self.runner == Runner::Nobody
    }

    /// Whether the trial's objective has reported or returned a value, or written a checkpoint.
    pub fn has_results(&self) -> bool {
        !(self.metrics.is_empty() && self.values.is_empty() && self.executions.is_empty()) || self.checkpoint.is_some()
    }

    /// Whether another program runs the trial, or ran it when that program was killed.
    pub fn runs_elsewhere(&self) -> bool {
        self.ending.is_none() && self.runner == Runner::Other
    }

    /// The trial's value of the first objective.
    pub fn value(&self) -> Option<f64> {
        self.values.first().copied()
    }

    /// The epoch (exclusive) at which the trial waits for more epochs, or waited before its running worker began.
    pub fn waited_at(&self) -> Option<u64> {
        self.paused_at.or(self.continued_from)
    }

    /// The number of epochs that the trial has done, from its reports and its last pause.
    pub fn epochs_done(&self) -> u64 {
        self.last_step().map_or(0, |step| step.saturating_add(1)).max(self.waited_at().unwrap_or(0))
    }

    /// The last step for which the trial has a report.
    pub fn last_step(&self) -> Option<u64> {
        self.metrics.keys().next_back().copied()
    }
}
