//! A fact as a line of the journal, in Optuna's op codes. Our own facts are user attributes whose names begin
//! `ferrotune:`.

use super::fact::{Fact, NewTrial, TrialFact};
use super::format::{self, TrialState, direction_code};
use super::line;
use crate::record::Parameter;
use crate::space::{Distribution, Value as Setting};
use chrono::{DateTime, SecondsFormat, Utc};
use serde::Serialize;
use serde_json::{Value, json};

/// The line, with its end. Every parameter has a value of its range: see [`internal_value`].
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
        Fact::Version(version) => study_attribute(format::VERSION, version),
        Fact::Spec(spec) => study_attribute(format::SPEC, spec),
        Fact::Place { parameter, place } => study_attribute(&format!("{}{parameter}", format::PLACE), place),
        Fact::Default { parameter, default } => study_attribute(&format!("{}{parameter}", format::DEFAULT), default),
        Fact::MetricNames(names) => {
            (format::STUDY_SYSTEM_ATTRIBUTE, json!({"study_id": 0, "system_attr": {format::METRIC_NAMES: names}}))
        }
        Fact::TrialCreated(trial) => (format::CREATE_TRIAL, new_trial(trial)),
        Fact::Trial { number, fact } => {
            let (op_code, mut object) = trial_object(fact);
            object["trial_id"] = json!(number);
            (op_code, object)
        }
        Fact::Ignored => unreachable!("a search writes no line that says nothing"),
    }
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
        TrialFact::Metrics { step, metrics } => attribute(&format!("{}{step}", format::METRICS), metrics),
        TrialFact::Epochs(total) => attribute(format::EPOCHS, total),
        TrialFact::Checkpoint(checkpoint) => attribute(format::CHECKPOINT, checkpoint),
        TrialFact::Inherited(inheritance) => attribute(format::INHERITANCE, inheritance),
        TrialFact::Executed(values) => attribute(format::EXECUTED, values),
        TrialFact::Executions(executions) => attribute(format::EXECUTIONS, executions),
        TrialFact::Ending(ending) => attribute(format::ENDING, ending),
        TrialFact::PausedAt(at) => attribute(format::PAUSED_AT, at),
        TrialFact::PeakBytes(bytes) => attribute(format::PEAK_BYTES, bytes),
        TrialFact::Seconds(seconds) => attribute(format::SECONDS, seconds),
        TrialFact::UnendedWorkers(count) => attribute(format::UNENDED_WORKERS, count),
        TrialFact::Retried(endings) => attribute(format::RETRIED, endings),
        TrialFact::Memory(check) => attribute(format::MEMORY, check),
        TrialFact::Device(device) => attribute(format::DEVICE, device),
    }
}

fn study_attribute(name: &str, value: &impl Serialize) -> (u64, Value) {
    (format::STUDY_USER_ATTRIBUTE, json!({"study_id": 0, "user_attr": {name: plain_json(value)}}))
}

fn attribute(name: &str, value: &impl Serialize) -> (u64, Value) {
    (format::TRIAL_USER_ATTRIBUTE, json!({"user_attr": {name: plain_json(value)}}))
}

/// The number that Optuna keeps for a parameter; whole numbers stay whole, so that none is too large for a float. None
/// where the value is not in the range.
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

/// As Python's `isoformat(timespec="microseconds")` in UTC.
fn isoformat(time: DateTime<Utc>) -> String {
    time.to_rfc3339_opts(SecondsFormat::Micros, false)
}
