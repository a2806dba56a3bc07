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
    /// An objective has called `trial.stop_search`.
    Stopped,
}

/// A picture of a running search.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// Trials that have ended, however they did.
    pub done: u64,
    /// Of those, the ones that had ended before this search began.
    #[serde(default)]
    pub earlier: u64,
    /// Of all, the ones without a value (all endings but finished and pruned).
    pub failed: u64,
    /// Of all, pruned.
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
    /// What the workers of the search do, where an engine runs them.
    #[serde(default)]
    pub workers: Option<String>,
    /// Whether the search is being stopped and waits for the steps that its trials are in.
    pub stopping: bool,
    /// Seconds since the search began, in this supervisor.
    pub elapsed_s: f64,
    /// Seconds that the workers of the study's trials ran, all together.
    #[serde(default)]
    pub trials_s: f64,
    /// Seconds to go, estimated once a trial has ended; at most what is left of the search's own time.
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

/// The last state of a search, for programs that look later. It may be old where the search was killed: the study's lock
/// shows whether one runs.
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
    /// What it has reported last of the first objective.
    #[serde(default)]
    pub value: Option<f64>,
    /// Epochs of a whole training, if the objective said.
    pub epochs: Option<u64>,
    /// Which execution of the trial it is, counted from 0.
    #[serde(default)]
    pub execution: u64,
    /// Its own memory (resident less shared) in bytes, over its process tree; none where it runs on another host.
    #[serde(default)]
    pub memory_bytes: Option<u64>,
}
