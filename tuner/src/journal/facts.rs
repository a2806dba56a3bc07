//! What a journal line says, in Optuna's op codes; our own facts are user attributes whose names begin `ferrotune:`.
//! Does not read: see `replay`.

use crate::record::{Ending, Parameter, TrialRecord};
use crate::space::{Distribution, Value as Setting};
use crate::wire::{Direction, StudySpec};
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
pub(super) const COMPLETE: u64 = 1;
pub(super) const PRUNED: u64 = 2;
pub(super) const FAIL: u64 = 3;

/// Attributes of a study.
pub(super) const VERSION: &str = "ferrotune:journal";
pub(super) const SPEC: &str = "ferrotune:spec";
/// Followed by a parameter's name: where the objective asks for it.
pub(super) const PLACE: &str = "ferrotune:place:";

/// Attributes of a trial.
pub(super) const EPOCHS: &str = "ferrotune:epochs";
pub(super) const CHECKPOINT: &str = "ferrotune:checkpoint";
pub(super) const PAUSED_AT: &str = "ferrotune:paused_at";
pub(super) const PEAK_BYTES: &str = "ferrotune:peak_bytes";
pub(super) const SECONDS: &str = "ferrotune:seconds";
pub(super) const RETRIED: &str = "ferrotune:retried";
pub(super) const UNENDED_WORKERS: &str = "ferrotune:unended_workers";
pub(super) const MEMORY: &str = "ferrotune:memory";
pub(super) const ENDING: &str = "ferrotune:ending";
/// Followed by the step.
pub(super) const METRICS: &str = "ferrotune:metrics:";

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

/// A trial whose checkpoint is not kept any more.
pub(super) fn without_checkpoint(number: u64) -> Fact<'static> {
    attribute(number, CHECKPOINT, &None::<Checkpoint>)
}

/// One line of the journal. Optuna's trial ids are our numbers, since a journal holds one study.
pub(super) enum Fact<'a> {
    StudyCreated { spec: &'a StudySpec },
    StudyAttribute { name: &'a str, value: Value },
    TrialStarted,
    Parameter { number: u64, name: &'a str, internal: Value, distribution: &'a Distribution },
    Intermediate { number: u64, step: u64, value: f64 },
    Attribute { number: u64, name: String, value: Value },
    State { number: u64, state: u64, value: Option<f64> },
}

impl Fact<'_> {
    pub(super) fn to_json(&self, worker_id: &str) -> Value {
        let (op_code, mut object) = match self {
            Fact::StudyCreated { spec } => {
                let directions = [direction_code(spec.objective.direction)];
                (CREATE_STUDY, json!({"study_name": spec.project, "directions": directions}))
            }
            Fact::StudyAttribute { name, value } => {
                (STUDY_USER_ATTRIBUTE, json!({"study_id": 0, "user_attr": {*name: value}}))
            }
            Fact::TrialStarted => (CREATE_TRIAL, json!({"study_id": 0, "datetime_start": now()})),
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
            Fact::State { number, state, value } => {
                let values = value.map(|value| [value]);
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

/// A direction as `--objective` spells it.
pub(super) fn direction_name(direction: Direction) -> &'static str {
    match direction {
        Direction::Min => "min",
        Direction::Max => "max",
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

/// A step's metrics: the objective as an intermediate value, the rest as an attribute. A value that is not finite
/// has no JSON number and goes into the attribute as null.
pub(super) fn report(
    number: u64,
    step: u64,
    metrics: &BTreeMap<String, Option<f64>>,
    objective: &str,
) -> Vec<Fact<'static>> {
    let finite = |value: &Option<f64>| value.filter(|value| value.is_finite());
    let value = metrics.get(objective).and_then(finite);
    let others = metrics.iter().filter(|(name, _)| name.as_str() != objective || value.is_none());
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
pub(super) fn ended(record: &TrialRecord, ending: &Ending) -> [Fact<'static>; 2] {
    let number = record.number;
    let value = record.value.filter(|value| value.is_finite());
    let (state, value) = match ending {
        Ending::Finished if value.is_some() => (COMPLETE, value),
        Ending::Pruned => (PRUNED, value),
        // Optuna's best trial would fail on a complete trial without a value.
        _ => (FAIL, None),
    };
    [attribute(number, ENDING, ending), Fact::State { number, state, value }]
}

/// As Python's `isoformat(timespec="microseconds")` in UTC.
fn now() -> String {
    chrono::Utc::now().to_rfc3339_opts(chrono::SecondsFormat::Micros, false)
}
