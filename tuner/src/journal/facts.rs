//! What a journal line says, in Optuna's op codes; our own facts are user attributes whose names begin `ferrotune:`.
//! Does not read: see `replay`.

use crate::given::Values;
use crate::record::{Ending, Parameter, TrialRecord};
use crate::space::{Distribution, Value as Setting};
use crate::spec::{Constraint, Direction, Objective, StudySpec};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;

pub(super) const CREATE_STUDY: u64 = 0;
pub(super) const STUDY_USER_ATTRIBUTE: u64 = 2;
pub(super) const STUDY_SYSTEM_ATTRIBUTE: u64 = 3;
pub(super) const CREATE_TRIAL: u64 = 4;
pub(super) const TRIAL_PARAMETER: u64 = 5;
pub(super) const TRIAL_STATE: u64 = 6;
pub(super) const TRIAL_INTERMEDIATE: u64 = 7;
pub(super) const TRIAL_USER_ATTRIBUTE: u64 = 8;
pub(super) const TRIAL_SYSTEM_ATTRIBUTE: u64 = 9;

/// Optuna's `TrialState`.
pub(super) const RUNNING: u64 = 0;
pub(super) const COMPLETE: u64 = 1;
pub(super) const PRUNED: u64 = 2;
pub(super) const FAIL: u64 = 3;
pub(super) const WAITING: u64 = 4;

/// Attributes of a study.
pub(super) const VERSION: &str = "ferrotune:journal";
pub(super) const SPEC: &str = "ferrotune:spec";
/// Followed by a parameter's name: where the objective asks for it.
pub(super) const PLACE: &str = "ferrotune:place:";
/// Followed by a parameter's name: the value that the first trial is to have.
pub(super) const DEFAULT: &str = "ferrotune:default:";

/// Attributes of a trial.
pub(super) const EPOCHS: &str = "ferrotune:epochs";
pub(super) const CHECKPOINT: &str = "ferrotune:checkpoint";
pub(super) const PAUSED_AT: &str = "ferrotune:paused_at";
pub(super) const PEAK_BYTES: &str = "ferrotune:peak_bytes";
pub(super) const SECONDS: &str = "ferrotune:seconds";
pub(super) const RETRIED: &str = "ferrotune:retried";
pub(super) const UNENDED_WORKERS: &str = "ferrotune:unended_workers";
pub(super) const MEMORY: &str = "ferrotune:memory";
pub(super) const INHERITANCE: &str = "ferrotune:parent";
/// The values of an execution that another one follows; and those of all, once the trial has ended.
pub(super) const EXECUTED: &str = "ferrotune:executed";
pub(super) const EXECUTIONS: &str = "ferrotune:executions";
pub(super) const ENDING: &str = "ferrotune:ending";
/// Followed by the step.
pub(super) const METRICS: &str = "ferrotune:metrics:";

/// Optuna's own: how far a trial is beyond each constraint, at most 0 where it keeps to it; and what the values are of.
/// And the values of a trial that was enqueued.
pub(super) const PRESET: &str = "fixed_params";
const CONSTRAINTS: &str = "constraints";
const METRIC_NAMES: &str = "study:metric_names";

/// Extra key of a parameter's line: the range as the objective gave it, where Optuna's form of it differs (its upper
/// bound lies on the lattice).
pub(super) const RANGE: &str = "ferrotune:range";

/// The checkpoint attribute.
#[derive(Serialize, Deserialize)]
pub(super) struct Checkpoint {
    /// The last step that it covers.
    pub(super) step: u64,
    /// Its name in the trial's folder.
    pub(super) file: String,
}

/// The attribute of a trial that began with another one's checkpoint.
#[derive(Serialize, Deserialize)]
pub(super) struct Inheritance {
    /// The other trial.
    pub(super) parent: u64,
    /// The checkpoint's name in the trial's folder, if the other one had any.
    pub(super) file: Option<String>,
}

/// A trial whose checkpoint is not kept any more.
pub(super) fn without_checkpoint(number: u64) -> Fact<'static> {
    attribute(number, CHECKPOINT, &None::<Checkpoint>)
}

/// One line of the journal. Optuna's trial ids are our numbers, since a journal holds one study.
pub(super) enum Fact<'a> {
    StudyCreated { spec: &'a StudySpec },
    StudyAttribute { name: &'a str, value: Value },
    StudySystemAttribute { name: &'static str, value: Value },
    TrialStarted,
    TrialEnqueued { preset: &'a Values },
    EnqueuedTrialStarted { number: u64 },
    Parameter { number: u64, name: &'a str, internal: Value, distribution: &'a Distribution },
    Intermediate { number: u64, step: u64, value: f64 },
    Attribute { number: u64, name: String, value: Value },
    SystemAttribute { number: u64, name: &'static str, value: Value },
    State { number: u64, state: u64, values: Vec<f64> },
}

impl Fact<'_> {
    pub(super) fn to_json(&self, worker_id: &str) -> Value {
        let (op_code, mut object) = match self {
            Fact::StudyCreated { spec } => {
                let directions: Vec<u64> =
                    spec.objectives.iter().map(|objective| direction_code(objective.direction)).collect();
                (CREATE_STUDY, json!({"study_name": spec.project, "directions": directions}))
            }
            Fact::StudyAttribute { name, value } => {
                (STUDY_USER_ATTRIBUTE, json!({"study_id": 0, "user_attr": {*name: value}}))
            }
            Fact::StudySystemAttribute { name, value } => {
                (STUDY_SYSTEM_ATTRIBUTE, json!({"study_id": 0, "system_attr": {*name: value}}))
            }
            Fact::TrialStarted => (CREATE_TRIAL, json!({"study_id": 0, "datetime_start": now()})),
            Fact::TrialEnqueued { preset } => {
                let attributes = json!({PRESET: plain_json(preset)});
                let object = json!({
                    "study_id": 0, "state": WAITING, "system_attrs": attributes, "datetime_start": null,
                });
                (CREATE_TRIAL, object)
            }
            Fact::EnqueuedTrialStarted { number } => {
                let object = json!({"trial_id": number, "state": RUNNING, "values": null, "datetime_start": now()});
                (TRIAL_STATE, object)
            }
            Fact::Parameter { number, name, internal, distribution } => {
                let stored = distribution.to_optuna();
                let mut object = json!({"trial_id": number, "param_name": name, "param_value_internal": internal});
                if Distribution::from_optuna(&stored).as_ref() != Ok(*distribution) {
                    object[RANGE] = plain_json(distribution);
                }
                object["distribution"] = json!(stored);
                (TRIAL_PARAMETER, object)
            }
            Fact::Intermediate { number, step, value } => {
                (TRIAL_INTERMEDIATE, json!({"trial_id": number, "step": step, "intermediate_value": value}))
            }
            Fact::Attribute { number, name, value } => {
                (TRIAL_USER_ATTRIBUTE, json!({"trial_id": number, "user_attr": {name: value}}))
            }
            Fact::SystemAttribute { number, name, value } => {
                (TRIAL_SYSTEM_ATTRIBUTE, json!({"trial_id": number, "system_attr": {*name: value}}))
            }
            Fact::State { number, state, values } => {
                let values = Some(values).filter(|values| !values.is_empty());
                let object = json!({
                    "trial_id": number, "state": state, "values": values, "datetime_complete": now(),
                });
                (TRIAL_STATE, object)
            }
        };
        object["op_code"] = json!(op_code);
        object["worker_id"] = json!(worker_id);
        object
    }
}

/// Optuna's number of a direction.
pub(super) fn direction_code(direction: Direction) -> u64 {
    match direction {
        Direction::Min => 1,
        Direction::Max => 2,
    }
}

/// The number that Optuna keeps for a parameter; whole numbers stay whole, so that none is too large for a float.
pub(super) fn internal_value(parameter: &Parameter) -> Option<Value> {
    match (&parameter.distribution, &parameter.value) {
        (distribution, value) if !distribution.contains(value) => None,
        (_, Setting::Int(value)) if matches!(parameter.distribution, Distribution::Int { .. }) => Some(json!(value)),
        (distribution, value) => distribution.to_internal(value).map(|internal| json!(internal)),
    }
}

pub(super) fn study_attribute<'a>(name: &'a str, value: &impl Serialize) -> Fact<'a> {
    Fact::StudyAttribute { name, value: plain_json(value) }
}

pub(super) fn attribute(number: u64, name: &str, value: &impl Serialize) -> Fact<'static> {
    Fact::Attribute { number, name: name.to_owned(), value: plain_json(value) }
}

fn plain_json(value: &impl Serialize) -> Value {
    serde_json::to_value(value).expect("the records' types have text keys and no serialiser that fails")
}

/// A step's metrics: a sole objective as an intermediate value, the rest as an attribute. A value that is not finite
/// has no JSON number and goes into the attribute as null; of several objectives Optuna has no intermediate values.
pub(super) fn report(
    number: u64,
    step: u64,
    metrics: &BTreeMap<String, Option<f64>>,
    objectives: &[Objective],
) -> Vec<Fact<'static>> {
    let finite = |value: &Option<f64>| value.filter(|value| value.is_finite());
    let objective = if let [objective] = objectives { Some(objective.metric.as_str()) } else { None };
    let value = objective.and_then(|objective| finite(metrics.get(objective)?));
    let others = metrics.iter().filter(|(name, _)| Some(name.as_str()) != objective || value.is_none());
    let others: BTreeMap<&str, Option<f64>> = others.map(|(name, value)| (name.as_str(), finite(value))).collect();
    let mut facts = Vec::new();
    if let Some(value) = value {
        facts.push(Fact::Intermediate { number, step, value });
    }
    if !others.is_empty() || value.is_none() {
        facts.push(attribute(number, &format!("{METRICS}{step}"), &others));
    }
    facts
}

/// What a trial's workers have used, and where the trial waits.
pub(super) fn usage(record: &TrialRecord) -> Vec<Fact<'static>> {
    let number = record.number;
    let mut facts = vec![
        attribute(number, PEAK_BYTES, &record.peak_bytes),
        attribute(number, SECONDS, &record.seconds),
        attribute(number, PAUSED_AT, &record.paused_at),
        attribute(number, UNENDED_WORKERS, &record.unended_workers),
    ];
    if let Some(memory) = &record.memory {
        facts.push(attribute(number, MEMORY, memory));
    }
    if !record.retried.is_empty() {
        facts.push(attribute(number, RETRIED, &record.retried));
    }
    facts
}

/// The end of a trial. The state comes last, for Optuna ignores what is said of a trial that has ended.
pub(super) fn ended(record: &TrialRecord, ending: &Ending, spec: &StudySpec) -> Vec<Fact<'static>> {
    let number = record.number;
    let is_whole = record.values.len() == spec.objectives.len() && record.values.iter().all(|value| value.is_finite());
    let values = if is_whole { record.values.clone() } else { Vec::new() };
    let (state, values) = match ending {
        Ending::Finished if is_whole => (COMPLETE, values),
        Ending::Pruned => (PRUNED, values),
        // Optuna's best trial would fail on a complete trial without a value.
        _ => (FAIL, Vec::new()),
    };
    let mut facts = vec![attribute(number, ENDING, ending)];
    if !record.executions.is_empty() {
        facts.push(attribute(number, EXECUTIONS, &record.executions));
    }
    if state != FAIL && !spec.constraints.is_empty() {
        // JSON has no infinity, which a metric that was never reported comes to.
        let excess = |constraint: &Constraint| constraint.excess(record, &spec.objectives).clamp(f64::MIN, f64::MAX);
        let excesses: Vec<f64> = spec.constraints.iter().map(excess).collect();
        facts.push(Fact::SystemAttribute { number, name: CONSTRAINTS, value: json!(excesses) });
    }
    facts.push(Fact::State { number, state, values });
    facts
}

/// The names of several objectives, for Optuna's tables and plots.
pub(super) fn metric_names(spec: &StudySpec) -> Fact<'static> {
    let names: Vec<&str> = spec.objectives.iter().map(|objective| objective.metric.as_str()).collect();
    Fact::StudySystemAttribute { name: METRIC_NAMES, value: json!(names) }
}

/// As Python's `isoformat(timespec="microseconds")` in UTC.
fn now() -> String {
    chrono::Utc::now().to_rfc3339_opts(chrono::SecondsFormat::Micros, false)
}
