//! Facts as changes of rows in Optuna's tables. A fact for which Optuna has no column becomes an attribute, as in a
//! journal's file. Several facts of one row become one change, so that all facts of a trial need one transaction.

use super::super::encode::{attribute_of, internal_value, study_attribute_of};
use super::super::fact::{Fact, Inheritance, TrialFact};
use super::super::format::{self, TrialState};
use super::super::state::{StudyState, Times};
use super::connection::{Connection, Value};
use super::error::DatabaseError;
use chrono::{DateTime, Local, NaiveDateTime, Utc};
use ferrotune_space::objective::Direction;
use ferrotune_space::record::TrialRecord;
use ferrotune_space::{Distribution, Parameter};
use serde_json::json;
use std::collections::BTreeMap;

/// The number of rows in one statement.
const ROWS: usize = 64;

/// Pending changes of a study.
#[derive(Clone, Debug, Default)]
pub(super) struct Changes {
    /// The JSON text of each attribute, by name.
    pub(super) study_attributes: BTreeMap<String, String>,
    pub(super) study_system_attributes: BTreeMap<String, String>,
    /// The changes of each trial, by the trial's number.
    pub(super) trials: BTreeMap<u64, TrialChanges>,
}

/// Pending changes of one trial.
#[derive(Clone, Debug, Default)]
pub(super) struct TrialChanges {
    /// The JSON text of each attribute, by name.
    pub(super) attributes: BTreeMap<String, String>,
    system_attributes: BTreeMap<String, String>,
    /// Optuna's number and distribution text of each parameter, by name.
    parameters: BTreeMap<String, (f64, String)>,
    /// The intermediate values, by step.
    intermediate: BTreeMap<u64, Option<f64>>,
    /// Whether all reports in the tables are deleted first.
    clears_reports: bool,
    state: Option<(TrialState, Vec<f64>, Times)>,
}

impl Changes {
    pub(super) fn is_empty(&self) -> bool {
        self.study_attributes.is_empty() && self.study_system_attributes.is_empty() && self.trials.is_empty()
    }

    /// Adds these facts of `study`, given its present state. Facts that begin a study or a trial are not changes.
    pub(super) fn add(&mut self, facts: &[Fact<'_>], study: &StudyState, owner: &str) {
        let objective = match study.spec.as_ref().map(|spec| spec.objectives.as_slice()) {
            Some([objective]) => Some(objective.metric.as_str()),
            _ => None,
        };
        for fact in facts {
            if let Fact::Trial { number, fact } = fact {
                let record = &study.trials[*number as usize];
                self.trials.entry(*number).or_default().add(fact, record, objective);
            } else if let Fact::MetricNames(names) = fact {
                self.study_system_attributes.insert(format::METRIC_NAMES.to_owned(), json!(names).to_string());
            } else if let Some((name, value)) = study_attribute_of(fact) {
                // Each supervisor has a search of its own, with its own library, so its spec has an attribute of its own.
                if matches!(fact, Fact::Spec(_)) {
                    self.study_attributes.insert(format!("{name}:{owner}"), value.to_string());
                }
                self.study_attributes.insert(name, value.to_string());
            }
        }
    }
}

impl TrialChanges {
    /// Adds a fact of a trial. `objective` is the metric whose finite values are Optuna's intermediate values.
    fn add(&mut self, fact: &TrialFact<'_>, record: &TrialRecord, objective: Option<&str>) {
        match fact {
            TrialFact::Parameter { name, parameter } => self.add_parameter(name, parameter),
            TrialFact::Intermediate { step, value } => {
                self.intermediate.insert(*step, *value);
                let known = record.metrics.get(step).and_then(|metrics| metrics.get(objective?));
                if known == Some(&None) {
                    self.add_metrics(*step, &BTreeMap::new(), record, objective);
                }
            }
            TrialFact::Metrics { step, metrics } => self.add_metrics(*step, metrics, record, objective),
            TrialFact::State { state, values, times } => self.state = Some((*state, values.clone(), *times)),
            TrialFact::ConstraintExcesses(excesses) => {
                self.system_attributes.insert(format::CONSTRAINTS.to_owned(), json!(excesses).to_string());
            }
            TrialFact::Executed(values) => {
                self.clears_reports = true;
                self.intermediate.clear();
                self.attributes.retain(|name, _| !name.starts_with(format::METRICS));
                let executions: Vec<&Vec<f64>> = record.executions.iter().chain([values]).collect();
                self.set(format::EXECUTIONS, json!(executions));
                self.set(format::CHECKPOINT, json!(null));
            }
            TrialFact::Checkpoint(_) => {
                self.add_attribute(fact);
                self.set(format::UNENDED_WORKERS, json!(record.unended_workers.min(1)));
            }
            TrialFact::Inherited(Inheritance { file, .. }) => {
                self.add_attribute(fact);
                // The inherited checkpoint replaces the trial's own.
                self.set(format::CHECKPOINT, json!(file.as_ref().map(|file| json!({"step": 0, "file": file}))));
            }
            TrialFact::PausedAt(at) => {
                self.add_attribute(fact);
                self.set(format::CONTINUED_FROM, json!(record.paused_at.filter(|_| at.is_none())));
            }
            _ => self.add_attribute(fact),
        }
    }

    /// Sets the attribute of a step to all its metrics that are not intermediate values, including those of earlier
    /// reports.
    fn add_metrics(
        &mut self,
        step: u64,
        metrics: &BTreeMap<String, Option<f64>>,
        record: &TrialRecord,
        objective: Option<&str>,
    ) {
        let is_replaced = self.intermediate.get(&step).is_some_and(Option::is_some);
        let earlier = record.metrics.get(&step).into_iter().flatten();
        let earlier =
            earlier.filter(|(name, value)| Some(name.as_str()) != objective || value.is_none() && !is_replaced);
        let all: BTreeMap<&String, &Option<f64>> = earlier.chain(metrics).collect();
        self.set(&format!("{}{step}", format::METRICS), json!(all));
    }

    fn add_attribute(&mut self, fact: &TrialFact<'_>) {
        if let Some((name, value)) = attribute_of(fact) {
            self.attributes.insert(name, value.to_string());
        }
    }

    /// Whether the changes end the trial.
    pub(super) fn is_end(&self) -> bool {
        self.state.as_ref().is_some_and(|(state, ..)| state.is_end())
    }

    fn set(&mut self, name: &str, value: serde_json::Value) {
        self.attributes.insert(name.to_owned(), value.to_string());
    }

    /// Adds a parameter. If Optuna's columns cannot hold it exactly, an attribute holds it as well.
    fn add_parameter(&mut self, name: &str, parameter: &Parameter) {
        let stored = parameter.distribution.to_optuna();
        let internal = internal_value(parameter).and_then(|value| value.as_f64()).unwrap_or(f64::NAN);
        let read = Distribution::from_optuna(&stored).ok();
        let is_exact = read.as_ref() == Some(&parameter.distribution)
            && parameter.distribution.from_internal(internal).as_ref() == Some(&parameter.value);
        if !is_exact {
            self.set(&format!("{}{name}", format::PARAMETER), json!(parameter));
        }
        self.parameters.insert(name.to_owned(), (internal, stored));
    }

    /// Writes the changes to the trial with this row id. If the trial `has_ended`, only later findings of its search are
    /// written.
    pub(super) fn write(&self, connection: &mut Connection, id: i64, has_ended: bool) -> Result<(), DatabaseError> {
        if self.clears_reports && !has_ended {
            connection.query("DELETE FROM trial_intermediate_values WHERE trial_id = $1", &[Value::Int(id)])?;
            for names in [format::METRICS, format::INTERMEDIATE] {
                let sql = "DELETE FROM trial_user_attributes WHERE trial_id = $1 AND key LIKE $2";
                connection.query(sql, &[Value::Int(id), Value::Text(format!("{names}%"))])?;
            }
        }
        let is_written = |name: &String| !has_ended || ![format::ENDING, format::EXECUTIONS].contains(&name.as_str());
        let attributes = self.attributes.iter().filter(|(name, _)| is_written(name));
        upsert(connection, &USER_ATTRIBUTES, attributes.map(|(name, json)| attribute_row(id, name, json)))?;
        if has_ended {
            return Ok(());
        }
        let system = self.system_attributes.iter().map(|(name, json)| attribute_row(id, name, json));
        upsert(connection, &SYSTEM_ATTRIBUTES, system)?;
        let parameters = self.parameters.iter().map(|(name, (internal, stored))| {
            vec![Value::Int(id), Value::text(name), Value::Float(*internal), Value::text(stored)]
        });
        upsert(connection, &PARAMETERS, parameters)?;
        self.write_intermediate(connection, id)?;
        let Some((state, values, times)) = &self.state else { return Ok(()) };
        let rows = values
            .iter()
            .zip(0..)
            .map(|(value, index)| vec![Value::Int(id), Value::Int(index), Value::Float(*value), Value::text("FINITE")]);
        upsert(connection, &VALUES, rows)?;
        let column = if *state == TrialState::Running { "datetime_start" } else { "datetime_complete" };
        let time = if *state == TrialState::Running { times.started } else { times.ended };
        let sql = format!("UPDATE trials SET state = $1, {column} = $2 WHERE trial_id = $3");
        connection.query(&sql, &[Value::text(state.name()), Value::from(time.map(local)), Value::Int(id)])?;
        Ok(())
    }

    /// Writes the intermediate values. Optuna's column of steps has 32 bits in PostgreSQL, so the value of a larger step is
    /// written into an attribute, in SQLite, too.
    fn write_intermediate(&self, connection: &mut Connection, id: i64) -> Result<(), DatabaseError> {
        let (mut rows, mut attributes) = (Vec::new(), Vec::new());
        for (step, value) in &self.intermediate {
            if let Ok(step) = i32::try_from(*step) {
                let kind = if value.is_some() { "FINITE" } else { "NAN" };
                rows.push(vec![Value::Int(id), Value::Int(step.into()), Value::from(*value), Value::text(kind)]);
            } else {
                let name = format!("{}{step}", format::INTERMEDIATE);
                attributes.push(attribute_row(id, &name, &json!(value).to_string()));
            }
        }
        upsert(connection, &INTERMEDIATE, rows.into_iter())?;
        upsert(connection, &USER_ATTRIBUTES, attributes.into_iter())
    }
}

pub(super) fn attribute_row(id: i64, name: &str, json: &str) -> Vec<Value> {
    vec![Value::Int(id), Value::text(name), Value::text(json)]
}

/// A time in Optuna's form: local time, without a zone.
pub(super) fn local(time: DateTime<Utc>) -> NaiveDateTime {
    time.with_timezone(&Local).naive_local()
}

/// Optuna's name of a direction.
pub(super) fn direction_name(direction: Direction) -> &'static str {
    match direction {
        Direction::Min => "MINIMIZE",
        Direction::Max => "MAXIMIZE",
    }
}

/// A table into which rows are inserted, or updated if they exist.
pub(super) struct Table {
    name: &'static str,
    columns: &'static [&'static str],
    /// The number of key columns, which come first: no two rows have the same keys.
    keys: usize,
}

pub(super) const STUDY_ATTRIBUTES: Table =
    Table { name: "study_user_attributes", columns: &["study_id", "key", "value_json"], keys: 2 };
pub(super) const STUDY_SYSTEM_ATTRIBUTES: Table =
    Table { name: "study_system_attributes", columns: &["study_id", "key", "value_json"], keys: 2 };
pub(super) const DIRECTIONS: Table =
    Table { name: "study_directions", columns: &["study_id", "objective", "direction"], keys: 2 };
pub(super) const USER_ATTRIBUTES: Table =
    Table { name: "trial_user_attributes", columns: &["trial_id", "key", "value_json"], keys: 2 };
pub(super) const SYSTEM_ATTRIBUTES: Table =
    Table { name: "trial_system_attributes", columns: &["trial_id", "key", "value_json"], keys: 2 };
const PARAMETERS: Table =
    Table { name: "trial_params", columns: &["trial_id", "param_name", "param_value", "distribution_json"], keys: 2 };
const INTERMEDIATE: Table = Table {
    name: "trial_intermediate_values",
    columns: &["trial_id", "step", "intermediate_value", "intermediate_value_type"],
    keys: 2,
};
const VALUES: Table =
    Table { name: "trial_values", columns: &["trial_id", "objective", "value", "value_type"], keys: 2 };

/// Inserts rows, or updates the rows that exist.
pub(super) fn upsert(
    connection: &mut Connection,
    table: &Table,
    rows: impl Iterator<Item = Vec<Value>>,
) -> Result<(), DatabaseError> {
    let rows: Vec<Vec<Value>> = rows.collect();
    for rows in rows.chunks(ROWS) {
        connection.query(&table.upsert(rows.len()), &rows.concat())?;
    }
    Ok(())
}

impl Table {
    fn upsert(&self, rows: usize) -> String {
        let width = self.columns.len();
        let row = |row: usize| {
            let places: Vec<String> = (1..=width).map(|column| format!("${}", row * width + column)).collect();
            format!("({})", places.join(", "))
        };
        let places: Vec<String> = (0..rows).map(row).collect();
        let (keys, others) = self.columns.split_at(self.keys);
        let others: Vec<String> = others.iter().map(|column| format!("{column} = excluded.{column}")).collect();
        format!(
            "INSERT INTO {} ({}) VALUES {} ON CONFLICT ({}) DO UPDATE SET {}",
            self.name,
            self.columns.join(", "),
            places.join(", "),
            keys.join(", "),
            others.join(", ")
        )
    }
}
