//! Reads trials from Optuna's tables as facts. Writes nothing.

use super::super::decode::{Decoder, attribute_fact, preset_of};
use super::super::fact::{Fact, NewTrial, Refusal, TrialFact};
use super::super::format::{self, TrialState};
use super::super::line::with_nulls;
use super::super::state::Times;
use super::connection::{Connection, Row, Value};
use super::error::DatabaseError;
use super::owner::Owner;
use chrono::{DateTime, Local, NaiveDateTime, Utc};
use ferrotune_space::Parameter;
use ferrotune_space::record::Runner;
use serde::de::DeserializeOwned;
use serde_json::Value as Json;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// The rows of one trial.
#[derive(Debug, Default)]
pub(in crate::journal) struct TrialRows {
    pub(super) id: i64,
    /// The trial's number; none in a table that Optuna is still migrating.
    pub(super) number: Option<u64>,
    pub(super) state: String,
    started: Option<NaiveDateTime>,
    ended: Option<NaiveDateTime>,
    /// Optuna's number and distribution text of each parameter, with its name.
    parameters: Vec<(String, Option<f64>, String)>,
    values: Vec<Option<f64>>,
    intermediate: Vec<(u64, Option<f64>)>,
    /// The JSON text of each attribute whose name is ours.
    attributes: BTreeMap<String, String>,
    preset: Option<String>,
}

/// A choice of trials to read.
#[derive(Clone, Debug)]
pub(super) enum Which {
    /// The trials of the study whose row ids are larger than `id`.
    Beyond { study: i64, id: i64 },
    /// The trials with these row ids.
    Of(Vec<i64>),
}

impl Which {
    /// The conditions on `trials t`, each with its values: one statement reads the trials of one condition.
    fn conditions(&self) -> Vec<(String, Vec<Value>)> {
        match self {
            Which::Beyond { study, id } => {
                vec![("t.study_id = $1 AND t.trial_id > $2".to_owned(), vec![Value::Int(*study), Value::Int(*id)])]
            }
            Which::Of(ids) => {
                lists(ids).map(|(places, values)| (format!("t.trial_id IN ({places})"), values)).collect()
            }
        }
    }
}

/// The largest number of row ids in one statement: SQLite takes 32,766 values, and PostgreSQL 65,535.
const MOST_PLACES: usize = 4096;

/// Splits row ids into lists for one statement each: the placeholders of each list, and its values.
pub(super) fn lists(ids: &[i64]) -> impl Iterator<Item = (String, Vec<Value>)> {
    ids.chunks(MOST_PLACES).map(list)
}

/// The placeholders and values of one list. The last id is repeated up to a power of two, so that there are few different
/// statements.
fn list(ids: &[i64]) -> (String, Vec<Value>) {
    let length = ids.len().next_power_of_two();
    let places: Vec<String> = (1..=length).map(|place| format!("${place}")).collect();
    let last = ids.last().copied().unwrap_or_default();
    let values = ids.iter().copied().chain(std::iter::repeat(last)).take(length).map(Value::Int).collect();
    (places.join(", "), values)
}

/// Reads the trials, in the order of their row ids if the ids are given in that order.
pub(super) fn read(connection: &mut Connection, which: &Which) -> Result<Vec<TrialRows>, DatabaseError> {
    let mut trials = Vec::new();
    for (condition, values) in which.conditions() {
        trials.extend(read_where(connection, &condition, &values)?);
    }
    Ok(trials)
}

fn read_where(connection: &mut Connection, condition: &str, values: &[Value]) -> Result<Vec<TrialRows>, DatabaseError> {
    let mut ask = |columns: &str, rest: &str| {
        let sql = format!("SELECT {columns} FROM trials t {rest} {condition} ORDER BY t.trial_id");
        connection.query(&sql, values)
    };
    let mut trials = BTreeMap::new();
    for row in ask("t.trial_id, t.number, t.state, t.datetime_start, t.datetime_complete", "WHERE")? {
        let trial = trial(&row)?;
        trials.insert(trial.id, trial);
    }
    if trials.is_empty() {
        return Ok(Vec::new());
    }
    let mut each = |columns: &str, table: &str, more: &str, add: Add| -> Result<(), DatabaseError> {
        let columns = format!("t.trial_id, {columns}");
        let rest = format!("JOIN {table} x ON x.trial_id = t.trial_id WHERE {more}");
        for row in ask(&columns, &rest)? {
            if let Some(trial) = row[0].as_int().and_then(|id| trials.get_mut(&id)) {
                add(trial, &row[1..]).ok_or_else(|| DatabaseError::Row {
                    what: format!("the table {table} has a row of trial {} that is not Optuna's", trial.id),
                })?;
            }
        }
        Ok(())
    };
    each("x.param_name, x.param_value, x.distribution_json", "trial_params", "", |trial, row| {
        let (name, stored) = (row[0].as_text()?.to_owned(), row[2].as_text()?.to_owned());
        trial.parameters.push((name, row[1].as_float(), stored));
        Some(())
    })?;
    each("x.objective, x.value, x.value_type", "trial_values", "", |trial, row| {
        let index = usize::try_from(row[0].as_int()?).ok()?;
        trial.values.resize(trial.values.len().max(index + 1), None);
        trial.values[index] = finite(&row[1], &row[2]);
        Some(())
    })?;
    let columns = "x.step, x.intermediate_value, x.intermediate_value_type";
    each(columns, "trial_intermediate_values", "", |trial, row| {
        // A negative step cannot be represented here, and is skipped.
        let Ok(step) = u64::try_from(row[0].as_int()?) else { return Some(()) };
        trial.intermediate.push((step, finite(&row[1], &row[2])));
        Some(())
    })?;
    each("x.key, x.value_json", "trial_user_attributes", "", |trial, row| {
        trial.attributes.insert(row[0].as_text()?.to_owned(), row[1].as_text()?.to_owned());
        Some(())
    })?;
    each("x.value_json", "trial_system_attributes", "x.key = 'fixed_params' AND", |trial, row| {
        trial.preset = Some(row[0].as_text()?.to_owned());
        Some(())
    })?;
    Ok(trials.into_values().collect())
}

/// A function that adds a row of another table to its trial; none if the row lacks that table's columns.
type Add = fn(&mut TrialRows, &[Value]) -> Option<()>;

fn finite(value: &Value, kind: &Value) -> Option<f64> {
    value.as_float().filter(|value| value.is_finite() && kind.as_text() == Some("FINITE"))
}

fn trial(row: &Row) -> Result<TrialRows, DatabaseError> {
    let (Some(id), Some(state)) = (row[0].as_int(), row[2].as_text()) else {
        return Err(DatabaseError::Row { what: "the table trials has a row without a number or a state".to_owned() });
    };
    Ok(TrialRows {
        id,
        number: row[1].as_int().and_then(|number| u64::try_from(number).ok()),
        state: state.to_owned(),
        started: row[3].as_time(),
        ended: row[4].as_time(),
        ..TrialRows::default()
    })
}

/// Parses the value of an attribute, in which Python may write NaN and infinities.
pub(super) fn json(text: &str) -> Result<Json, String> {
    let read = serde_json::from_str(text)
        .or_else(|error| with_nulls(text.as_bytes()).map_or(Err(error), |text| serde_json::from_slice(&text)));
    read.map_err(|error| error.to_string())
}

impl TrialRows {
    /// The supervisor that runs or ran the trial; none for a trial of another program.
    pub(super) fn owner(&self) -> Option<Owner> {
        self.attribute(format::SUPERVISOR)
    }

    /// The value of an attribute, if the trial has it.
    pub(super) fn attribute<T: DeserializeOwned>(&self, name: &str) -> Option<T> {
        serde_json::from_str(self.attributes.get(name)?).ok()
    }

    pub(super) fn has_ended(&self) -> bool {
        TrialState::of_name(&self.state).is_some_and(TrialState::is_end)
    }

    /// Converts the rows to the facts of the trial's record, and returns the kind of program that runs the trial, from the
    /// point of view of the supervisor `me`. A trial that another supervisor runs is another program's until it ends.
    pub(in crate::journal) fn facts(
        self,
        me: &str,
        decoder: &mut Decoder,
    ) -> Result<(Runner, Vec<Fact<'static>>), Refusal> {
        let (number, owner) = (self.number.unwrap_or_default(), self.owner());
        let damaged = |reason: String| Refusal::Damaged(format!("trial {number}: {reason}"));
        let state = TrialState::of_name(&self.state).ok_or_else(|| damaged(format!("state {}", self.state)))?;
        let writer = match &owner {
            Some(owner) if owner.id == me || state.is_end() => Runner::Search,
            _ => Runner::Other,
        };
        let mut attributes = BTreeMap::new();
        for (name, text) in self.attributes {
            let value = json(&text).map_err(|reason| damaged(format!("its attribute {name}: {reason}")))?;
            attributes.insert(name, value);
        }
        let mut facts: Vec<TrialFact<'static>> = Vec::new();
        if !state.is_end()
            && let Some(Json::Array(executions)) = attributes.remove(format::EXECUTIONS)
        {
            for values in executions {
                let values = serde_json::from_value(values).map_err(|error| damaged(error.to_string()))?;
                facts.push(TrialFact::Executed(values));
            }
        }
        for (name, internal, stored) in self.parameters {
            let exact = attributes.remove(&format!("{}{name}", format::PARAMETER));
            let parameter: Option<Parameter> = match exact {
                Some(exact) => Some(serde_json::from_value(exact).map_err(|error| damaged(error.to_string()))?),
                None => decoder.known_parameter(&name, &Json::from(internal), (&stored, writer))?,
            };
            facts.extend(parameter.map(|parameter| TrialFact::Parameter { name: Cow::Owned(name), parameter }));
        }
        facts.extend(self.intermediate.into_iter().map(|(step, value)| TrialFact::Intermediate { step, value }));
        let continued = attributes.remove(format::CONTINUED_FROM).and_then(|at| at.as_u64());
        facts.extend(continued.map(|at| TrialFact::PausedAt(Some(at))));
        // A checkpoint is in the folder of the trial's own supervisor.
        if owner.as_ref().is_none_or(|owner| owner.id != me) {
            attributes.remove(format::CHECKPOINT);
        }
        // Facts that come with a checkpoint are applied before later facts.
        for first in [format::INHERITANCE, format::CHECKPOINT] {
            if let Some(value) = attributes.remove(first) {
                facts.extend(attribute_fact(first, &value)?);
            }
        }
        for (name, value) in &attributes {
            facts.extend(attribute_fact(name, value)?);
        }
        let times = Times { started: self.started.and_then(utc), ended: self.ended.and_then(utc) };
        if state.is_end() {
            let values: Option<Vec<f64>> = self.values.into_iter().collect();
            let ended = Times { ended: times.ended, ..Times::default() };
            facts.push(TrialFact::State { state, values: values.unwrap_or_default(), times: ended });
        }
        let preset = self.preset.as_deref().and_then(|text| json(text).ok()).map(|value| preset_of(&value));
        let is_waiting = state == TrialState::Waiting;
        let trial = NewTrial {
            times: Times { started: times.started, ended: None },
            state: is_waiting.then_some(state),
            preset: preset.unwrap_or_default(),
            ..NewTrial::default()
        };
        let facts = facts.into_iter().map(|fact| Fact::Trial { number, fact });
        Ok((writer, std::iter::once(Fact::TrialTold { number, trial }).chain(facts).collect()))
    }
}

fn utc(time: NaiveDateTime) -> Option<DateTime<Utc>> {
    time.and_local_timezone(Local).earliest().map(|time| time.with_timezone(&Utc))
}
