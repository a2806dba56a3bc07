//! Encodes a fact as a line of the journal, in Optuna's op codes. Our own facts are user attributes whose names begin with
//! `ferrotune:`.

use super::fact::{Fact, NewTrial, TrialFact};
use super::format::{self, TrialState, direction_code};
use super::line;
use chrono::{DateTime, SecondsFormat, Utc};
use ferrotune_space::{Distribution, Parameter, Value as Setting};
use serde::Serialize;
use serde_json::{Value, json};

/// The line of a fact, with its line end. The value of every parameter must be in its range: see [`internal_value`].
pub(super) fn encode(fact: &Fact<'_>, worker_id: &str) -> String {
    let (op_code, mut object) = object(fact);
    object["op_code"] = json!(op_code);
    object["worker_id"] = json!(worker_id);
    line::encode(&object)
}

fn object(fact: &Fact<'_>) -> (u64, Value) {
    match fact {
        Fact::StudyCreated { name, directions } => {
            let directions: Vec<u64> = directions.iter().copied().map(direction_code).collect();
            (format::CREATE_STUDY, json!({"study_name": name, "directions": directions}))
        }
        Fact::MetricNames(names) => {
            (format::STUDY_SYSTEM_ATTRIBUTE, json!({"study_id": 0, "system_attr": {format::METRIC_NAMES: names}}))
        }
        Fact::TrialCreated(trial) => (format::CREATE_TRIAL, new_trial(trial)),
        Fact::Trial { number, fact } => {
            let (op_code, mut object) = trial_object(fact);
            object["trial_id"] = json!(number);
            (op_code, object)
        }
        _ => {
            let (name, value) = study_attribute_of(fact).expect("a search writes no line that says nothing");
            (format::STUDY_USER_ATTRIBUTE, json!({"study_id": 0, "user_attr": {name: value}}))
        }
    }
}

/// The name and value of the study's attribute that holds a fact; none for a fact that is stored in another way.
pub(super) fn study_attribute_of(fact: &Fact<'_>) -> Option<(String, Value)> {
    Some(match fact {
        Fact::Version(version) => (format::VERSION.to_owned(), json!(version)),
        Fact::Spec(spec) => (format::SPEC.to_owned(), plain_json(spec)),
        Fact::Place { parameter, place } => (format!("{}{parameter}", format::PLACE), json!(place)),
        Fact::Default { parameter, default } => (format!("{}{parameter}", format::DEFAULT), plain_json(default)),
        Fact::StudyCreated { .. }
        | Fact::MetricNames(_)
        | Fact::TrialCreated(_)
        | Fact::TrialTold { .. }
        | Fact::Trial { .. }
        | Fact::Ignored => return None,
    })
}

fn new_trial(trial: &NewTrial) -> Value {
    match trial.state {
        Some(state) => {
            let attributes = json!({format::PRESET: plain_json(&trial.preset)});
            json!({"study_id": 0, "state": state.code(), "system_attrs": attributes, "datetime_start": null})
        }
        None => json!({"study_id": 0, "datetime_start": trial.times.started.map(isoformat)}),
    }
}

fn trial_object(fact: &TrialFact<'_>) -> (u64, Value) {
    match fact {
        TrialFact::Parameter { name, parameter } => {
            let Parameter { distribution, .. } = parameter;
            let stored = distribution.to_optuna();
            let mut object = json!({"param_name": name, "param_value_internal": internal_value(parameter)});
            if Distribution::from_optuna(&stored).as_ref() != Ok(distribution) {
                object[format::RANGE] = plain_json(distribution);
            }
            object["distribution"] = json!(stored);
            (format::TRIAL_PARAMETER, object)
        }
        TrialFact::Intermediate { step, value } => {
            (format::TRIAL_INTERMEDIATE, json!({"step": step, "intermediate_value": value}))
        }
        TrialFact::State { state: TrialState::Running, times, .. } => {
            let started = times.started.map(isoformat);
            (
                format::TRIAL_STATE,
                json!({"state": format::TrialState::Running.code(), "values": null, "datetime_start": started}),
            )
        }
        TrialFact::State { state, values, times } => {
            let values = Some(values).filter(|values| !values.is_empty());
            let ended = times.ended.map(isoformat);
            (format::TRIAL_STATE, json!({"state": state.code(), "values": values, "datetime_complete": ended}))
        }
        TrialFact::ConstraintExcesses(excesses) => {
            (format::TRIAL_SYSTEM_ATTRIBUTE, json!({"system_attr": {format::CONSTRAINTS: excesses}}))
        }
        _ => {
            let (name, value) = attribute_of(fact).expect("all other facts are attributes");
            (format::TRIAL_USER_ATTRIBUTE, json!({"user_attr": {name: value}}))
        }
    }
}

/// The name and value of the trial's attribute that holds a fact; none for a fact that Optuna stores in another way.
pub(super) fn attribute_of(fact: &TrialFact<'_>) -> Option<(String, Value)> {
    let (name, value) = match fact {
        TrialFact::Metrics { step, metrics } => {
            return Some((format!("{}{step}", format::METRICS), plain_json(metrics)));
        }
        TrialFact::Epochs(total) => (format::EPOCHS, plain_json(total)),
        TrialFact::Checkpoint(checkpoint) => (format::CHECKPOINT, plain_json(checkpoint)),
        TrialFact::Inherited(inheritance) => (format::INHERITANCE, plain_json(inheritance)),
        TrialFact::Executed(values) => (format::EXECUTED, plain_json(values)),
        TrialFact::Executions(executions) => (format::EXECUTIONS, plain_json(executions)),
        TrialFact::Ending(ending) => (format::ENDING, plain_json(ending)),
        TrialFact::PausedAt(at) => (format::PAUSED_AT, plain_json(at)),
        TrialFact::PeakBytes(bytes) => (format::PEAK_BYTES, plain_json(bytes)),
        TrialFact::Seconds(seconds) => (format::SECONDS, plain_json(seconds)),
        TrialFact::UnendedWorkers(count) => (format::UNENDED_WORKERS, plain_json(count)),
        TrialFact::Retried(endings) => (format::RETRIED, plain_json(endings)),
        TrialFact::Memory(check) => (format::MEMORY, plain_json(check)),
        TrialFact::Device(device) => (format::DEVICE, plain_json(device)),
        TrialFact::UserAttribute { name, value } => return Some((name.clone().into_owned(), value.clone())),
        TrialFact::Parameter { .. }
        | TrialFact::Intermediate { .. }
        | TrialFact::State { .. }
        | TrialFact::ConstraintExcesses(_) => return None,
    };
    Some((name.to_owned(), value))
}

/// The number that Optuna stores for a parameter. Integers stay integers, because a float cannot hold large ones exactly.
/// None if the value is not in the range.
pub(super) fn internal_value(parameter: &Parameter) -> Option<Value> {
    match (&parameter.distribution, &parameter.value) {
        (distribution, value) if !distribution.contains(value) => None,
        (_, Setting::Int(value)) if matches!(parameter.distribution, Distribution::Int { .. }) => Some(json!(value)),
        (distribution, value) => distribution.to_internal(value).map(|internal| json!(internal)),
    }
}

fn plain_json(value: &impl Serialize) -> Value {
    serde_json::to_value(value).expect("the records' types have text keys and no serialiser that fails")
}

/// The text of a time, as Python's `isoformat(timespec="microseconds")` in UTC.
fn isoformat(time: DateTime<Utc>) -> String {
    time.to_rfc3339_opts(SecondsFormat::Micros, false)
}
