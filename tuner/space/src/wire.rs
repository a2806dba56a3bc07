//! The messages between a worker and its supervisor.
//!
//! Each message is a line with one JSON object, over the worker's standard input, which is a connected Unix socket. The worker sends a
//! [`Request`] and waits for one [`Reply`].

use crate::objective::Objective;
use crate::record::{DeviceUse, Ending, metrics_by_step};
use crate::spec::{ItemLines, one_or_several};
use crate::{Distribution, Value};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The environment variable that carries the path of the shared data into a worker.
pub const SHARED_VARIABLE: &str = "FERROTUNE_SHARED";

/// The environment variable that carries the memory budget of a worker, in bytes.
pub const BUDGET_VARIABLE: &str = "FERROTUNE_BUDGET_BYTES";

/// The environment variable that carries the device memory that a worker may use where it shares the device: a number of bytes, or its
/// part of what is free, such as `1/4`.
pub const DEVICE_MEMORY_VARIABLE: &str = "FERROTUNE_DEVICE_MEMORY";

/// The environment variable that carries `STUDY/TRIAL/SUPERVISOR` into a worker and into the processes that the worker starts. For a
/// resident worker, the trial is its first one. The supervisor is written as the identity of its process.
pub const TRIAL_VARIABLE: &str = "FERROTUNE_TRIAL";

/// The name of a trial in messages, such as `trial 3 of digits`, from the value of [`TRIAL_VARIABLE`].
pub fn trial_named(value: &str) -> Option<String> {
    let (trial, _) = value.rsplit_once('/')?;
    let (study, number) = trial.rsplit_once('/')?;
    Some(format!("trial {number} of {study}"))
}

/// The environment variable that carries the [`PluginCopy`] of a study.
pub const PLUGIN_VARIABLE: &str = "FERROTUNE_PLUGIN_COPY";

/// A copy in memory of the plugin file that a study names, so that workers load exactly the bytes that were hashed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PluginCopy {
    /// The device that the study names.
    pub device: String,
    /// The path from which workers load the copy.
    pub path: String,
    /// The hash of the copy's bytes.
    pub hash: String,
}

impl PluginCopy {
    /// The copy as the value of [`PLUGIN_VARIABLE`].
    pub fn to_variable(&self) -> String {
        serde_json::json!(self).to_string()
    }

    /// The plugin copy for this device from the worker's environment, if there is one.
    ///
    /// # Errors
    /// Fails if the variable's value is not a [`PluginCopy`].
    pub fn given(device: &str) -> Result<Option<PluginCopy>, serde_json::Error> {
        let Ok(text) = std::env::var(PLUGIN_VARIABLE) else { return Ok(None) };
        let copy: PluginCopy = serde_json::from_str(&text)?;
        Ok(Some(copy).filter(|copy| copy.device == device))
    }
}

/// The environment variable that carries the path of a file. A worker writes the first program of its trial to that file, and the
/// trial ends there.
pub const PROGRAM_VARIABLE: &str = "FERROTUNE_FIRST_PROGRAM";

/// The name of the file in a trial's folder that holds the profile of its first steps.
pub const PROFILE_FILE: &str = "profile.json";

/// A number in JSON; a number that is not finite is written as its name.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Number {
    Finite(f64),
    Named(String),
}

fn with_names<S: Serializer>(values: &[Option<f64>], serializer: S) -> Result<S::Ok, S::Error> {
    let number = |value: f64| if value.is_finite() { Number::Finite(value) } else { Number::Named(value.to_string()) };
    serializer.collect_seq(values.iter().map(|value| value.map(number)))
}

fn of_names<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Option<f64>>, D::Error> {
    let value = |number: Number| match number {
        Number::Finite(value) => Ok(value),
        Number::Named(name) => name.parse().map_err(D::Error::custom),
    };
    let numbers: Vec<Option<Number>> = one_or_several(deserializer)?;
    numbers.into_iter().map(|number| number.map(value).transpose()).collect()
}

/// A question or a report of a worker; each is answered by one [`Reply`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum Request {
    /// The worker has reached the objective's entry point. Answered by [`Reply::Assignment`].
    Hello,
    /// The device that the objective uses. Sent before the objective, if the device is known then, and after the objective. Answered by
    /// [`Reply::Done`].
    Device {
        /// The device, with its memory in use as far as it is known.
        device: DeviceUse,
    },
    /// A request for the value of a parameter. Answered by [`Reply::Value`].
    Suggest {
        /// The parameter's name.
        name: String,
        /// The parameter's range.
        distribution: Distribution,
        /// The value to try first, if the objective gives one.
        default: Option<Value>,
        /// The place in the objective's source that asks for the parameter.
        #[serde(default)]
        place: String,
    },
    /// A request for the range of epochs to run, of `total`. Answered by [`Reply::Epochs`].
    Epochs {
        /// The number of epochs of a complete training.
        total: u64,
        /// The first epoch that no checkpoint covers.
        resume_at: u64,
    },
    /// The metrics of a step (usually an epoch). Answered by [`Reply::Verdict`].
    Report {
        /// The step, counted from 0.
        step: u64,
        /// The step's metrics; null for a value that is not finite.
        metrics: BTreeMap<String, Option<f64>>,
    },
    /// A checkpoint is on disk. Answered by [`Reply::Done`].
    Checkpoint {
        /// The last step that the checkpoint covers.
        step: u64,
        /// File name inside the trial's folder.
        file: String,
    },
    /// A remark of the objective on its trial. Answered by [`Reply::Done`].
    UserAttribute {
        /// The remark's name.
        name: String,
        /// The remark's value, which replaces an earlier value.
        value: Value,
    },
    /// A request that no further trial begins. Answered by [`Reply::Done`].
    StopSearch,
    /// The objective returned. Answered by [`Reply::Done`].
    Finish {
        /// The values that the objective returned, one for each of the study's objectives. A null means that the trial's reports
        /// give the value, and an empty list means this for all of them. In JSON a number that is not finite is "NaN", "inf" or "-inf".
        /// Earlier workers send a single value in place of the list.
        #[serde(alias = "value", serialize_with = "with_names", deserialize_with = "of_names")]
        values: Vec<Option<f64>>,
    },
    /// The trial cannot read a file that it needs now. The trial is continued later, and keeps all its data. Answered by
    /// [`Reply::Done`].
    Postpone {
        /// The file or data that cannot be read, and the system's reason.
        reason: String,
    },
    /// A checkpoint cannot be written because the disk is full. The trial is not at fault: the search ends, and the trial is
    /// continued later from its last checkpoint. Answered by [`Reply::Done`].
    DiskFull {
        /// One line: the file, and the system's reason.
        reason: String,
    },
    /// The objective returned an error or panicked. Answered by [`Reply::Done`].
    Fail {
        /// The ending: `Failed`, `Panicked`, `DeviceOutOfMemory`, or `Refused` with a device.
        ending: Ending,
    },
}

impl Request {
    /// Whether this is the last request of a trial.
    pub fn is_last(&self) -> bool {
        use Request::{DiskFull, Fail, Finish, Postpone};
        matches!(self, Finish { .. } | Postpone { .. } | DiskFull { .. } | Fail { .. })
    }
}

/// The supervisor's answer to a [`Request`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum Reply {
    /// The trial that this worker runs.
    Assignment(Assignment),
    /// The value of the requested parameter.
    Value {
        /// The value, in the parameter's own type.
        value: Value,
    },
    /// The epochs `start..stop`, which the worker runs now.
    Epochs {
        /// The first epoch to run.
        start: u64,
        /// The epoch after the last epoch to run.
        stop: u64,
    },
    /// The decision whether the trial continues.
    Verdict {
        /// The decision.
        verdict: Verdict,
    },
    /// The request has been recorded.
    Done,
    /// The request was wrong; the objective's call fails with this text.
    Refused {
        /// One line: what is wrong and what to do.
        reason: String,
    },
}

/// The data that a worker needs before it runs the objective.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Assignment {
    /// The trial's number, counted from 0.
    pub trial: u64,
    /// The trial's own folder (absolute), for checkpoints.
    pub folder: PathBuf,
    /// The device that was connected when the search began: `cpu`, `cuda`, …
    pub device: String,
    /// File name of the checkpoint from which to resume, if there is one.
    pub checkpoint: Option<String>,
    /// The seed of the trial's execution, derived from the study's seed.
    pub seed: u64,
    /// The number of the trial's execution, counted from 0.
    #[serde(default)]
    pub execution: u64,
    /// The number of steps that the worker profiles, at least 1; none means that nothing is profiled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<u64>,
    /// Whether the operation that makes the first NaN or infinity ends the trial.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub debug_nans: bool,
    /// The lines of the objective's source that come from earlier cells of the notebook.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub items: Vec<ItemLines>,
    /// The metrics that earlier workers of this trial have reported, by step.
    #[serde(deserialize_with = "metrics_by_step")]
    pub reported: BTreeMap<u64, BTreeMap<String, Option<f64>>>,
    /// The study's objectives, with which `Trial::best` finds the best value so far; never empty.
    pub objectives: Vec<Objective>,
    /// The first objective, for the workers of studies from before there could be several objectives.
    pub objective: Objective,
}

/// The decision after a report whether a trial continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The trial continues.
    Continue,
    /// The oracle or the pruner ends this trial.
    Prune,
    /// The search is being stopped; the trial writes a checkpoint and returns.
    Stop,
}
