//! The statements of a transaction on a study: they find the owner of a trial, and write changes if no other supervisor
//! owns the trial. Opens no connection.

use super::changes::{self, Changes, attribute_row, local, upsert};
use super::connection::{Connection, Row, Value};
use super::content;
use super::error::DatabaseError;
use super::owner::Owner;
use crate::journal::fact::NewTrial;
use crate::journal::format::{self, TrialState};
use ferrotune_space::objective::Direction;
use serde_json::json;

/// The tables whose rows belong to one trial.
pub(super) const TRIAL_TABLES: [&str; 6] = [
    "trial_heartbeats",
    "trial_intermediate_values",
    "trial_params",
    "trial_system_attributes",
    "trial_user_attributes",
    "trial_values",
];

/// A study's directions and Ferrotune's attributes of the study, without its trials.
#[derive(Debug, Default)]
pub(in crate::journal) struct Head {
    pub(in crate::journal) directions: Vec<Direction>,
    /// The name and the JSON text of each attribute.
    pub(in crate::journal) attributes: Vec<(String, String)>,
}

pub(super) fn head(connection: &mut Connection, study: i64) -> Result<Head, DatabaseError> {
    let sql = "SELECT direction FROM study_directions WHERE study_id = $1 ORDER BY objective";
    let directions = connection.query(sql, &[Value::Int(study)])?;
    let direction = |row: &Vec<Value>| match row[0].as_text() {
        Some("MINIMIZE") => Ok(Direction::Min),
        Some("MAXIMIZE") => Ok(Direction::Max),
        _ => Err(DatabaseError::Row { what: "the study has an objective without a direction, min or max".to_owned() }),
    };
    let directions = directions.iter().map(direction).collect::<Result<_, _>>()?;
    let sql = "SELECT key, value_json FROM study_user_attributes WHERE study_id = $1 AND key LIKE 'ferrotune:%'";
    let attributes = connection.query(sql, &[Value::Int(study)])?;
    let attribute = |row: &Vec<Value>| Some((row[0].as_text()?.to_owned(), row[1].as_text()?.to_owned()));
    Ok(Head { directions, attributes: attributes.iter().filter_map(attribute).collect() })
}

/// Runs a query for one row, and locks that row until the end of the transaction. SQLite allows only one writing
/// transaction anyway.
pub(super) fn lock(connection: &mut Connection, sql: &str, id: i64) -> Result<Vec<Row>, DatabaseError> {
    let for_update = if connection.is_sqlite() { "" } else { " FOR UPDATE" };
    connection.query(&format!("{sql}{for_update}"), &[Value::Int(id)])
}

const STATE: &str = "SELECT state FROM trials WHERE trial_id = $1";

/// The state of a trial and the supervisor that owns it. Nobody else changes the trial until the end of the transaction.
pub(super) fn standing(connection: &mut Connection, id: i64) -> Result<(String, Option<Owner>), DatabaseError> {
    let rows = lock(connection, STATE, id)?;
    standing_of(connection, id, &rows)
}

/// The SQL that locks the rows of a query, except for rows that another transaction has locked. Empty for
/// SQLite, which allows only one writing transaction anyway.
pub(super) fn unless_held(connection: &Connection) -> &'static str {
    if connection.is_sqlite() { "" } else { " FOR UPDATE SKIP LOCKED" }
}

/// The state and the owner of a trial, without waiting; none if another transaction has locked the trial. A transaction
/// whose host was cut off keeps its lock for half a minute.
pub(super) fn standing_unless_held(
    connection: &mut Connection,
    id: i64,
) -> Result<Option<(String, Option<Owner>)>, DatabaseError> {
    let rows = connection.query(&format!("{STATE}{}", unless_held(connection)), &[Value::Int(id)])?;
    if rows.is_empty() { Ok(None) } else { standing_of(connection, id, &rows).map(Some) }
}

fn standing_of(connection: &mut Connection, id: i64, rows: &[Row]) -> Result<(String, Option<Owner>), DatabaseError> {
    let state = rows.first().and_then(|row| row[0].as_text()).unwrap_or_default().to_owned();
    let sql = "SELECT value_json FROM trial_user_attributes WHERE trial_id = $1 AND key = $2";
    let rows = connection.query(sql, &[Value::Int(id), Value::text(format::SUPERVISOR)])?;
    let owner = rows.first().and_then(|row| serde_json::from_str(row[0].as_text()?).ok());
    Ok((state, owner))
}

/// Writes changes; returns the trials whose changes were not all written.
pub(super) fn put(
    connection: &mut Connection,
    study: i64,
    changes: &Changes,
    ids: &[i64],
    me: &str,
) -> Result<Vec<u64>, DatabaseError> {
    for (table, attributes) in [
        (&changes::STUDY_ATTRIBUTES, &changes.study_attributes),
        (&changes::STUDY_SYSTEM_ATTRIBUTES, &changes.study_system_attributes),
    ] {
        upsert(connection, table, attributes.iter().map(|(name, json)| attribute_row(study, name, json)))?;
    }
    let mut refused = Vec::new();
    for (number, trial) in &changes.trials {
        let id = ids[*number as usize];
        let (state, owner) = standing(connection, id)?;
        let has_ended = TrialState::of_name(&state).is_none_or(TrialState::is_end);
        let is_ours = owner.is_some_and(|owner| owner.id == me);
        if is_ours {
            trial.write(connection, id, has_ended)?;
        }
        if !is_ours || has_ended {
            refused.push(*number);
        }
    }
    Ok(refused)
}

pub(super) fn insert(
    connection: &mut Connection,
    study: i64,
    number: u64,
    (trial, state): (&NewTrial, TrialState),
) -> Result<i64, DatabaseError> {
    let sql = "INSERT INTO trials (number, study_id, state, datetime_start) VALUES ($1, $2, $3, $4) RETURNING trial_id";
    let started = Value::from(trial.times.started.map(local));
    let values = [Value::Int(number as i64), Value::Int(study), Value::text(state.name()), started];
    let rows = connection.query(sql, &values)?;
    let id = rows.first().and_then(|row| row[0].as_int());
    let id = id.ok_or_else(|| DatabaseError::Row { what: "a new trial has no row".to_owned() })?;
    if !trial.preset.is_empty() {
        let row = attribute_row(id, format::PRESET, &json!(trial.preset).to_string());
        upsert(connection, &changes::SYSTEM_ATTRIBUTES, [row].into_iter())?;
    }
    Ok(id)
}

/// Deletes a study with its trials, and the files that only its workers use.
pub(super) fn delete(connection: &mut Connection, study: i64) -> Result<(), DatabaseError> {
    for table in TRIAL_TABLES {
        let sql = format!("DELETE FROM {table} WHERE trial_id IN (SELECT trial_id FROM trials WHERE study_id = $1)");
        connection.query(&sql, &[Value::Int(study)])?;
    }
    for table in ["trials", "study_directions", "study_user_attributes", "study_system_attributes", "studies"] {
        connection.query(&format!("DELETE FROM {table} WHERE study_id = $1"), &[Value::Int(study)])?;
    }
    content::remove_unnamed(connection)
}

/// Writes a trial's heartbeat.
pub(super) fn beat(connection: &mut Connection, id: i64) -> Result<(), DatabaseError> {
    let sql = "INSERT INTO trial_heartbeats (trial_id, heartbeat) VALUES ($1, CURRENT_TIMESTAMP) \
               ON CONFLICT (trial_id) DO UPDATE SET heartbeat = CURRENT_TIMESTAMP";
    connection.query(sql, &[Value::Int(id)])?;
    Ok(())
}

/// Makes a supervisor the owner of a trial. If the trial runs and the supervisor has heartbeats, writes the trial's heartbeat.
pub(super) fn own(connection: &mut Connection, id: i64, owner: &Owner, runs: bool) -> Result<(), DatabaseError> {
    let row = attribute_row(id, format::SUPERVISOR, &json!(owner).to_string());
    upsert(connection, &changes::USER_ATTRIBUTES, [row].into_iter())?;
    if runs && owner.heartbeat_s.is_some() {
        beat(connection, id)?;
    }
    Ok(())
}
