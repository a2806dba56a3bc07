//! The messages between a worker and its supervisor.
//!
//! One JSON object a line, over the worker's standard input, which is a connected Unix socket. The worker sends a
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

/// The environment variable with the most bytes that a worker may hold.
pub const BUDGET_VARIABLE: &str = "FERROTUNE_BUDGET_BYTES";

/// The environment variable with the [`PluginCopy`] of a study.
pub const PLUGIN_VARIABLE: &str = "FERROTUNE_PLUGIN_COPY";

/// The plugin that a study names by its file, in memory: what was hashed is what workers load.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PluginCopy {
    /// The device that the study names.
    pub device: String,
    /// Where workers load it from.
    pub path: String,
    /// The hash of its bytes.
    pub hash: String,
}

impl PluginCopy {
    /// For [`PLUGIN_VARIABLE`].
    pub fn to_variable(&self) -> String {
        serde_json::json!(self).to_string()
    }

    /// The copy that a worker was given for this device, if it was given one.
    ///
    /// # Errors
    /// Where the variable has something else.
    pub fn given(device: &str) -> Result<Option<PluginCopy>, serde_json::Error> {
        let Ok(text) = std::env::var(PLUGIN_VARIABLE) else { return Ok(None) };
        let copy: PluginCopy = serde_json::from_str(&text)?;
        Ok(Some(copy).filter(|copy| copy.device == device))
    }
}

/// The environment variable with the path of a file to which a worker writes the first program of its trial, which ends there.
pub const PROGRAM_VARIABLE: &str = "FERROTUNE_FIRST_PROGRAM";

/// The file in a trial's folder with the profile of its first steps.
pub const PROFILE_FILE: &str = "profile.json";

/// A number in JSON, which has none that is not finite.
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

/// A question or a report of a worker, each answered by one [`Reply`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum Request {
    /// The objective's entry point has been reached. Answered by [`Reply::Assignment`].
    Hello,
    /// The device that the objective uses: sent before it begins where that is known, and after it. Answered by
    /// [`Reply::Done`].
    Device {
        /// The device, with its memory as far as it was looked at.
        device: DeviceUse,
    },
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
    /// A remark of the objective on its trial. Answered by [`Reply::Done`].
    UserAttribute {
        /// Its name.
        name: String,
        /// Its value, which takes the place of an earlier one.
        value: Value,
    },
    /// No further trial is to begin. Answered by [`Reply::Done`].
    StopSearch,
    /// The objective returned. Answered by [`Reply::Done`].
    Finish {
        /// What it returned: a value for each of the study's objectives, null where its reports are to tell, or none at all
        /// if they are to tell all. In JSON a number that is not finite is "NaN", "inf" or "-inf". A lone value may stand for
        /// a list of one, as earlier workers send it.
        #[serde(alias = "value", serialize_with = "with_names", deserialize_with = "of_names")]
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
        /// `Failed`, `Panicked` or `DeviceOutOfMemory`.
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
    /// How many steps the worker profiles, at least 1; none means that it profiles nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<u64>,
    /// Whether the operation that makes the first NaN or infinity ends the trial.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub debug_nans: bool,
    /// Where in the objective's source items of the notebook's earlier cells are.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub items: Vec<ItemLines>,
    /// The metrics that earlier workers of this trial have reported, by step.
    #[serde(deserialize_with = "metrics_by_step")]
    pub reported: BTreeMap<u64, BTreeMap<String, Option<f64>>>,
    /// The study's objectives, with which `Trial::best` finds the best value so far; never empty.
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
