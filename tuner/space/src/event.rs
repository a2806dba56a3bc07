//! The events that a supervisor sends to the watcher of its search: one JSON object a line on its standard output.

use crate::Value;
use crate::record::TrialRecord;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// An event of a search.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// The study is open.
    Opened {
        /// The study's folder.
        folder: PathBuf,
        /// The number of trials that the study had before.
        earlier_trials: u64,
    },
    /// A trial begins, or continues in a new worker.
    TrialStarted {
        /// The trial's number.
        trial: u64,
        /// The number of this execution of the trial, counted from 0.
        #[serde(default)]
        execution: u64,
        /// The worker's process id.
        pid: u32,
    },
    /// An execution of a trial is over, and another one follows.
    Executed {
        /// The trial's number.
        trial: u64,
        /// The number of the execution, counted from 0.
        execution: u64,
        /// The execution's values, one for each objective.
        values: Vec<f64>,
    },
    /// A trial has reported, and the report is on disk. Sent only to a program that runs its own search, for its callbacks.
    Reported {
        /// The trial's number.
        trial: u64,
        /// The step.
        step: u64,
        /// The step's metrics; null for a value that is not finite.
        metrics: BTreeMap<String, Option<f64>>,
    },
    /// The state of the search; sent at most five times a second, and after each trial.
    Progress(Progress),
    /// A trial has ended and its record is on disk.
    TrialEnded {
        /// The trial's record, without its reports: [`Event::Reported`] and the journal have those.
        record: TrialRecord,
    },
    /// The search is over.
    Finished {
        /// The reason why the search ended.
        reason: Finish,
    },
    /// The search cannot continue, or could not begin.
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
    /// The oracle has no further values to try.
    Exhausted,
    /// The search's time is over.
    Timeout,
    /// The user stopped the search.
    Interrupted,
    /// An objective has called `trial.stop_search`.
    Stopped,
}

/// The state of a running search at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// The number of trials that have ended, in whatever way.
    pub done: u64,
    /// The number of those trials that had ended before this search began.
    #[serde(default)]
    pub earlier: u64,
    /// The number of all ended trials that have no value (all endings but finished and pruned).
    pub failed: u64,
    /// The number of all ended trials that were pruned.
    pub pruned: u64,
    /// The number of trials that the search is to run.
    pub max_trials: u64,
    /// The best trial so far, without its reports; none if there are several objectives, or if no trial keeps the constraints.
    pub best: Option<TrialRecord>,
    /// The Pareto front so far, if there are several objectives.
    #[serde(default)]
    pub front: Option<Front>,
    /// The names of parameters for which the user has fixed a value or a tuning choice, and that no trial has asked for so far.
    #[serde(default)]
    pub unasked: Vec<String>,
    /// The number of finished trials that break a constraint.
    #[serde(default)]
    pub infeasible: u64,
    /// The running trials, in the order in which they began.
    pub running: Vec<Running>,
    /// A text about the state of the search's workers, if an engine runs them.
    #[serde(default)]
    pub workers: Option<String>,
    /// Whether the search is being stopped and waits for its trials to end their current steps.
    pub stopping: bool,
    /// Seconds since the search began, in this supervisor.
    pub elapsed_s: f64,
    /// Seconds of run time of the workers of all the study's trials, added up.
    #[serde(default)]
    pub trials_s: f64,
    /// The estimated seconds until the search ends, once a trial has ended; at most the rest of the search's time limit.
    pub eta_s: Option<f64>,
    /// The supervisor's own resident memory in bytes.
    pub supervisor_bytes: u64,
}

/// The Pareto front: the trials that no other trial beats in every objective.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Front {
    /// The number of trials on the front.
    pub trials: u64,
    /// For each objective the best and the worst value on the front.
    pub ranges: Vec<(f64, f64)>,
}

/// The last state of a search, for programs that read it later. The state may be out of date if the search was killed: the study's
/// lock shows whether a search runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The progress of the search, or its last progress if the search has ended.
    pub progress: Progress,
    /// The reason why the search ended, if it has ended.
    pub finish: Option<Finish>,
    /// The error with which the search ended.
    pub error: Option<String>,
}

/// A running trial, for [`Progress`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Running {
    /// The trial's number.
    pub trial: u64,
    /// The parameters that the trial has asked for.
    pub parameters: BTreeMap<String, Value>,
    /// Last reported step, counted from 0.
    pub step: Option<u64>,
    /// The trial's last report of the first objective.
    #[serde(default)]
    pub value: Option<f64>,
    /// Epochs of a complete training, if the objective has given their number.
    pub epochs: Option<u64>,
    /// The number of the trial's current execution, counted from 0.
    #[serde(default)]
    pub execution: u64,
    /// The trial's own memory (resident less shared) in bytes, over its process tree; none if the trial runs on another host.
    #[serde(default)]
    pub memory_bytes: Option<u64>,
}
