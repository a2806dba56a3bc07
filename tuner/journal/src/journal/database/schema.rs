//! Optuna's tables, as its `RDBStorage` of version 5 makes them
//! (<https://github.com/optuna/optuna/blob/v5.0.0/optuna/storages/_rdb/models.py>). They are made if a database lacks them.
//! Existing tables are not changed.

use super::connection::{Connection, Value};
use super::error::DatabaseError;
use crate::journal::JournalError;

/// Optuna's own version number of the schema, and the newest revision of its migrations.
const SCHEMA: i64 = 12;
const REVISION: &str = "v3.2.0.a";
/// The version of Optuna that defines these tables.
const LIBRARY: &str = "5.0.0";

const ENUMERATIONS: &str = "
CREATE TYPE studydirection AS ENUM ('NOT_SET', 'MINIMIZE', 'MAXIMIZE');
CREATE TYPE trialstate AS ENUM ('RUNNING', 'COMPLETE', 'PRUNED', 'FAIL', 'WAITING');
CREATE TYPE trialvaluetype AS ENUM ('FINITE', 'INF_POS', 'INF_NEG');
CREATE TYPE trialintermediatevaluetype AS ENUM ('FINITE', 'INF_POS', 'INF_NEG', 'NAN');
";

/// The statements that make the tables. The words in braces differ between the databases.
const TABLES: &str = "
CREATE TABLE studies (study_id {serial} NOT NULL, study_name VARCHAR(512) NOT NULL, PRIMARY KEY (study_id));
CREATE UNIQUE INDEX ix_studies_study_name ON studies (study_name);
CREATE TABLE version_info (version_info_id INTEGER NOT NULL, schema_version INTEGER, library_version VARCHAR(256),
    PRIMARY KEY (version_info_id), CHECK (version_info_id = 1));
CREATE TABLE study_directions (study_direction_id {serial} NOT NULL, direction {direction} NOT NULL,
    study_id INTEGER NOT NULL, objective INTEGER NOT NULL, PRIMARY KEY (study_direction_id), UNIQUE (study_id, objective),
    FOREIGN KEY (study_id) REFERENCES studies (study_id));
CREATE TABLE study_user_attributes (study_user_attribute_id {serial} NOT NULL, study_id INTEGER, \"key\" VARCHAR(512),
    value_json TEXT, PRIMARY KEY (study_user_attribute_id), UNIQUE (study_id, \"key\"),
    FOREIGN KEY (study_id) REFERENCES studies (study_id));
CREATE TABLE study_system_attributes (study_system_attribute_id {serial} NOT NULL, study_id INTEGER,
    \"key\" VARCHAR(512), value_json TEXT, PRIMARY KEY (study_system_attribute_id), UNIQUE (study_id, \"key\"),
    FOREIGN KEY (study_id) REFERENCES studies (study_id));
CREATE TABLE trials (trial_id {serial} NOT NULL, number INTEGER, study_id INTEGER, state {state} NOT NULL,
    datetime_start {time}, datetime_complete {time}, PRIMARY KEY (trial_id),
    FOREIGN KEY (study_id) REFERENCES studies (study_id));
CREATE INDEX ix_trials_study_id ON trials (study_id);
CREATE TABLE trial_user_attributes (trial_user_attribute_id {serial} NOT NULL, trial_id INTEGER, \"key\" VARCHAR(512),
    value_json TEXT, PRIMARY KEY (trial_user_attribute_id), UNIQUE (trial_id, \"key\"),
    FOREIGN KEY (trial_id) REFERENCES trials (trial_id));
CREATE TABLE trial_system_attributes (trial_system_attribute_id {serial} NOT NULL, trial_id INTEGER,
    \"key\" VARCHAR(512), value_json TEXT, PRIMARY KEY (trial_system_attribute_id), UNIQUE (trial_id, \"key\"),
    FOREIGN KEY (trial_id) REFERENCES trials (trial_id));
CREATE TABLE trial_params (param_id {serial} NOT NULL, trial_id INTEGER, param_name VARCHAR(512), param_value {float},
    distribution_json TEXT, PRIMARY KEY (param_id), UNIQUE (trial_id, param_name),
    FOREIGN KEY (trial_id) REFERENCES trials (trial_id));
CREATE TABLE trial_values (trial_value_id {serial} NOT NULL, trial_id INTEGER NOT NULL, objective INTEGER NOT NULL,
    value {float}, value_type {value_type} NOT NULL, PRIMARY KEY (trial_value_id), UNIQUE (trial_id, objective),
    FOREIGN KEY (trial_id) REFERENCES trials (trial_id));
CREATE TABLE trial_intermediate_values (trial_intermediate_value_id {serial} NOT NULL, trial_id INTEGER NOT NULL,
    step INTEGER NOT NULL, intermediate_value {float}, intermediate_value_type {intermediate_type} NOT NULL,
    PRIMARY KEY (trial_intermediate_value_id), UNIQUE (trial_id, step),
    FOREIGN KEY (trial_id) REFERENCES trials (trial_id));
CREATE TABLE trial_heartbeats (trial_heartbeat_id {serial} NOT NULL, trial_id INTEGER NOT NULL,
    heartbeat {time} NOT NULL, PRIMARY KEY (trial_heartbeat_id), UNIQUE (trial_id),
    FOREIGN KEY (trial_id) REFERENCES trials (trial_id));
CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL,
    CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num));
";

/// Each word in braces, with its replacements for PostgreSQL and SQLite.
const WORDS: [(&str, &str, &str); 7] = [
    ("{serial}", "SERIAL", "INTEGER"),
    ("{time}", "TIMESTAMP", "DATETIME"),
    ("{float}", "DOUBLE PRECISION", "FLOAT"),
    ("{direction}", "studydirection", "VARCHAR(8)"),
    ("{state}", "trialstate", "VARCHAR(8)"),
    ("{value_type}", "trialvaluetype", "VARCHAR(7)"),
    ("{intermediate_type}", "trialintermediatevaluetype", "VARCHAR(7)"),
];

/// Whether the database has Optuna's tables.
pub(super) fn is_there(connection: &mut Connection) -> Result<bool, DatabaseError> {
    connection.has_table("version_info")
}

/// Makes the tables if they do not exist. The caller has begun a transaction.
pub(super) fn make(connection: &mut Connection) -> Result<(), DatabaseError> {
    connection.lock_tables()?;
    if is_there(connection)? {
        return Ok(());
    }
    let is_sqlite = connection.is_sqlite();
    let tables = WORDS.iter().fold(TABLES.to_owned(), |tables, (word, postgres, sqlite)| {
        tables.replace(word, if is_sqlite { sqlite } else { postgres })
    });
    if !is_sqlite {
        connection.run(ENUMERATIONS)?;
    }
    connection.run(&tables)?;
    let values = [Value::Int(SCHEMA), Value::text(LIBRARY)];
    connection.query(
        "INSERT INTO version_info (version_info_id, schema_version, library_version) VALUES (1, $1, $2)",
        &values,
    )?;
    connection.query("INSERT INTO alembic_version (version_num) VALUES ($1)", &[Value::text(REVISION)])?;
    Ok(())
}

/// Refuses tables of another version of Optuna's schema.
pub(super) fn check(connection: &mut Connection, storage: &str) -> Result<(), JournalError> {
    let failed = |source| JournalError::Database { storage: storage.to_owned(), source };
    let number = connection.query("SELECT schema_version FROM version_info", &[]).map_err(failed)?;
    let revision = connection.query("SELECT version_num FROM alembic_version", &[]).map_err(failed)?;
    let number = number.first().and_then(|row| row.first()?.as_int()).unwrap_or_default();
    let revision = revision.first().and_then(|row| row.first()?.as_text()).unwrap_or("none").to_owned();
    if number == SCHEMA && revision == REVISION {
        return Ok(());
    }
    Err(JournalError::OtherSchema { storage: storage.to_owned(), found: format!("{number} ({revision})") })
}
