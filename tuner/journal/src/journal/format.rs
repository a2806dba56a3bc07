//! The numbers and names in a journal: Optuna's op codes and states, and the names of the attributes that hold our own
//! facts. They are shared by the code that encodes and decodes facts.

use ferrotune_space::objective::Direction;

pub(super) const CREATE_STUDY: u64 = 0;
pub(super) const STUDY_USER_ATTRIBUTE: u64 = 2;
pub(super) const STUDY_SYSTEM_ATTRIBUTE: u64 = 3;
pub(super) const CREATE_TRIAL: u64 = 4;
pub(super) const TRIAL_PARAMETER: u64 = 5;
pub(super) const TRIAL_STATE: u64 = 6;
pub(super) const TRIAL_INTERMEDIATE: u64 = 7;
pub(super) const TRIAL_USER_ATTRIBUTE: u64 = 8;
pub(super) const TRIAL_SYSTEM_ATTRIBUTE: u64 = 9;

/// The prefix of the names of our own attributes.
pub(super) const OURS: &str = "ferrotune:";

/// An attribute of a study: the version of our own facts.
pub(super) const VERSION: &str = "ferrotune:journal";
pub(super) const SPEC: &str = "ferrotune:spec";
/// The publication for workers on other hosts.
pub(super) const CONTENT: &str = "ferrotune:content";
/// The prefix of the attribute with the position at which the objective asks for a parameter; the parameter's name follows.
pub(super) const PLACE: &str = "ferrotune:place:";
/// The prefix of the attribute with the default of a parameter, which the first trial uses; the parameter's name follows.
pub(super) const DEFAULT: &str = "ferrotune:default:";

/// An attribute of a trial: the number of epochs of a whole training.
pub(super) const EPOCHS: &str = "ferrotune:epochs";
pub(super) const CHECKPOINT: &str = "ferrotune:checkpoint";
pub(super) const PAUSED_AT: &str = "ferrotune:paused_at";
pub(super) const PEAK_BYTES: &str = "ferrotune:peak_bytes";
pub(super) const SECONDS: &str = "ferrotune:seconds";
pub(super) const RETRIED: &str = "ferrotune:retried";
pub(super) const UNENDED_WORKERS: &str = "ferrotune:unended_workers";
pub(super) const MEMORY: &str = "ferrotune:memory";
pub(super) const DEVICE: &str = "ferrotune:device";
pub(super) const INHERITANCE: &str = "ferrotune:parent";
/// The values of an execution that another execution follows.
pub(super) const EXECUTED: &str = "ferrotune:executed";
/// The values of all executions, once the trial has ended.
pub(super) const EXECUTIONS: &str = "ferrotune:executions";
pub(super) const ENDING: &str = "ferrotune:ending";
/// In a database, the prefix of the attribute with a parameter that Optuna's columns cannot hold exactly; the parameter's
/// name follows.
pub(super) const PARAMETER: &str = "ferrotune:parameter:";
/// In a database: the supervisor that owns the trial.
pub(super) const SUPERVISOR: &str = "ferrotune:supervisor";
/// In a database: the epoch at which the trial waited before its present worker.
pub(super) const CONTINUED_FROM: &str = "ferrotune:continued_from";
/// The prefix of the attribute with the metrics of a step; the step follows.
pub(super) const METRICS: &str = "ferrotune:metrics:";
/// In a database, the prefix of the attribute with the value of the first objective at a step that Optuna's column cannot
/// hold; the step follows.
pub(super) const INTERMEDIATE: &str = "ferrotune:intermediate:";

/// Optuna's attribute of an enqueued trial: its values.
pub(super) const PRESET: &str = "fixed_params";
/// Optuna's attribute of a trial: its excess over each constraint, at most 0 if the constraint is met.
pub(super) const CONSTRAINTS: &str = "constraints";
/// Optuna's attribute of a study: the names of its objectives.
pub(super) const METRIC_NAMES: &str = "study:metric_names";

/// An extra key of a parameter's line: the range as the objective gave it, if Optuna's form of the range differs (its upper
/// bound is on the lattice).
pub(super) const RANGE: &str = "ferrotune:range";

/// Optuna's `TrialState`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TrialState {
    Running = 0,
    Complete = 1,
    Pruned = 2,
    Fail = 3,
    Waiting = 4,
}

impl TrialState {
    pub(super) fn code(self) -> u64 {
        self as u64
    }

    /// The name of the state in a database.
    pub(super) fn name(self) -> &'static str {
        match self {
            TrialState::Running => "RUNNING",
            TrialState::Complete => "COMPLETE",
            TrialState::Pruned => "PRUNED",
            TrialState::Fail => "FAIL",
            TrialState::Waiting => "WAITING",
        }
    }

    pub(super) fn of_name(name: &str) -> Option<TrialState> {
        use TrialState::{Complete, Fail, Pruned, Running, Waiting};
        [Running, Complete, Pruned, Fail, Waiting].into_iter().find(|state| state.name() == name)
    }

    /// Whether the state is final.
    pub(super) fn is_end(self) -> bool {
        matches!(self, TrialState::Complete | TrialState::Pruned | TrialState::Fail)
    }

    pub(super) fn of_code(code: u64) -> Option<TrialState> {
        use TrialState::{Complete, Fail, Pruned, Running, Waiting};
        [Running, Complete, Pruned, Fail, Waiting].into_iter().find(|state| state.code() == code)
    }
}

/// Optuna's number of a direction.
pub(super) fn direction_code(direction: Direction) -> u64 {
    match direction {
        Direction::Min => 1,
        Direction::Max => 2,
    }
}
