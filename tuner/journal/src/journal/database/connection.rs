//! A connection to PostgreSQL or SQLite, with values that fit Optuna's columns in both. Every statement uses the common SQL
//! of the two, with `$1`, `$2`, … in the order in which they appear. Knows no table.

use super::error::DatabaseError;
use super::waiting::Waiting;
use chrono::NaiveDateTime;
use rusqlite::types::{ToSqlOutput, ValueRef};
use std::collections::HashMap;
use std::error::Error;
use tokio::runtime::Runtime;
use tokio_postgres::Config;
use tokio_postgres::types::private::BytesMut;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};
use tokio_postgres_rustls::MakeRustlsConnect;

/// The format in which SQLAlchemy writes a time into SQLite.
const TIME: &str = "%Y-%m-%d %H:%M:%S%.6f";

/// The key of PostgreSQL's advisory lock that keeps two programs from making tables at once.
const ADVISORY_LOCK: i64 = 0x6665_7272_6f74_756e;

/// A value of a column.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Null,
    Int(i64),
    Float(f64),
    /// A text, or a name of an enumeration.
    Text(String),
    Time(NaiveDateTime),
    Bytes(Vec<u8>),
}

impl Value {
    pub(super) fn text(text: impl Into<String>) -> Value {
        Value::Text(text.into())
    }

    pub(super) fn as_int(&self) -> Option<i64> {
        match self {
            Value::Int(value) => Some(*value),
            _ => None,
        }
    }

    /// The value as a float. SQLite returns a float without a fraction as an integer.
    pub(super) fn as_float(&self) -> Option<f64> {
        match self {
            Value::Float(value) => Some(*value),
            Value::Int(value) => Some(*value as f64),
            _ => None,
        }
    }

    pub(super) fn as_text(&self) -> Option<&str> {
        match self {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    pub(super) fn into_bytes(self) -> Option<Vec<u8>> {
        match self {
            Value::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// The value as a time. SQLite stores times as texts, with or without a fraction of the second.
    pub(super) fn as_time(&self) -> Option<NaiveDateTime> {
        match self {
            Value::Time(time) => Some(*time),
            Value::Text(text) => NaiveDateTime::parse_from_str(text, "%Y-%m-%d %H:%M:%S%.f").ok(),
            _ => None,
        }
    }
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Value {
        value.map_or(Value::Null, Into::into)
    }
}

impl From<f64> for Value {
    fn from(value: f64) -> Value {
        Value::Float(value)
    }
}

impl From<NaiveDateTime> for Value {
    fn from(value: NaiveDateTime) -> Value {
        Value::Time(value)
    }
}

impl From<String> for Value {
    fn from(value: String) -> Value {
        Value::Text(value)
    }
}

/// A row of a result.
pub(super) type Row = Vec<Value>;

/// A connection to one of the two databases.
pub(super) enum Connection {
    Postgres(Box<Server>),
    Sqlite(rusqlite::Connection),
}

/// A connection to a PostgreSQL server, with the wait for the server's answers.
pub(super) struct Server {
    /// The client, declared before the runtime that drives it, so that it is dropped first.
    client: tokio_postgres::Client,
    statements: HashMap<String, tokio_postgres::Statement>,
    runtime: Runtime,
    waiting: Waiting,
}

impl Server {
    /// Connects to a server, and runs these statements.
    pub(super) fn connect(
        config: &Config,
        encryption: MakeRustlsConnect,
        statements: &str,
        waiting: &Waiting,
    ) -> Result<Server, DatabaseError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(DatabaseError::Client)?;
        let (client, connection) = waiting.wait_for(&runtime, config.connect(encryption))?;
        // This task ends with the client, or when the server closes the connection. The next call of the client then fails.
        runtime.spawn(async {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection to the database has ended");
            }
        });
        let server = Server { client, statements: HashMap::new(), runtime, waiting: waiting.clone() };
        server.run(statements)?;
        Ok(server)
    }

    fn run(&self, statements: &str) -> Result<(), DatabaseError> {
        self.waiting.wait_for(&self.runtime, self.client.batch_execute(statements))
    }

    fn query(&mut self, sql: &str, values: &[Value]) -> Result<Vec<Row>, DatabaseError> {
        let statement = match self.statements.get(sql) {
            Some(known) => known.clone(),
            None => {
                let statement = self.waiting.wait_for(&self.runtime, self.client.prepare(sql))?;
                self.statements.entry(sql.to_owned()).or_insert(statement).clone()
            }
        };
        let values: Vec<&(dyn ToSql + Sync)> = values.iter().map(|value| value as &(dyn ToSql + Sync)).collect();
        let rows = self.waiting.wait_for(&self.runtime, self.client.query(&statement, &values))?;
        rows.iter()
            .map(|row| (0..row.len()).map(|column| Ok(row.try_get(column)?)).collect::<Result<Row, _>>())
            .collect()
    }
}

impl Connection {
    pub(super) fn is_sqlite(&self) -> bool {
        matches!(self, Connection::Sqlite(_))
    }

    /// Begins a transaction, which is rolled back unless it is committed.
    pub(super) fn begin(&mut self) -> Result<(), DatabaseError> {
        match self {
            Connection::Postgres(server) => server.run("BEGIN"),
            // A transaction that reads first and then writes could otherwise be refused in the middle.
            Connection::Sqlite(connection) => Ok(connection.execute_batch("BEGIN IMMEDIATE")?),
        }
    }

    /// Runs several statements without values, for example `COMMIT` or `ROLLBACK`, which end a transaction.
    pub(super) fn run(&mut self, statements: &str) -> Result<(), DatabaseError> {
        match self {
            Connection::Postgres(server) => server.run(statements),
            Connection::Sqlite(connection) => Ok(connection.execute_batch(statements)?),
        }
    }

    /// Keeps other programs from making tables until the end of the transaction. SQLite allows only one writing transaction
    /// anyway.
    pub(super) fn lock_tables(&mut self) -> Result<(), DatabaseError> {
        if !self.is_sqlite() {
            self.query("SELECT 1 FROM pg_advisory_xact_lock($1)", &[Value::Int(ADVISORY_LOCK)])?;
        }
        Ok(())
    }

    /// Whether there is a table of this name, which is one of ours or of Optuna's.
    pub(super) fn has_table(&mut self, name: &str) -> Result<bool, DatabaseError> {
        let sql = if self.is_sqlite() {
            "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = $1"
        } else {
            "SELECT 1 WHERE to_regclass($1) IS NOT NULL"
        };
        Ok(!self.query(sql, &[Value::text(name)])?.is_empty())
    }

    /// Runs a statement, which stays prepared; returns the rows of its result.
    pub(super) fn query(&mut self, sql: &str, values: &[Value]) -> Result<Vec<Row>, DatabaseError> {
        match self {
            Connection::Postgres(server) => server.query(sql, values),
            Connection::Sqlite(connection) => {
                let mut statement = connection.prepare_cached(sql)?;
                let columns = statement.column_count();
                let mut rows = statement.query(rusqlite::params_from_iter(values))?;
                let mut found = Vec::new();
                while let Some(row) = rows.next()? {
                    found
                        .push((0..columns).map(|column| row.get_ref(column).map(of_sqlite)).collect::<Result<_, _>>()?);
                }
                Ok(found)
            }
        }
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(if self.is_sqlite() { "Sqlite" } else { "Postgres" })
    }
}

impl rusqlite::ToSql for Value {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(match self {
            Value::Null => ToSqlOutput::Borrowed(ValueRef::Null),
            Value::Int(value) => ToSqlOutput::from(*value),
            Value::Float(value) => ToSqlOutput::from(*value),
            Value::Text(text) => ToSqlOutput::from(text.as_str()),
            Value::Time(time) => ToSqlOutput::from(time.format(TIME).to_string()),
            Value::Bytes(bytes) => ToSqlOutput::from(bytes.as_slice()),
        })
    }
}

fn of_sqlite(value: ValueRef<'_>) -> Value {
    match value {
        ValueRef::Integer(value) => Value::Int(value),
        ValueRef::Real(value) => Value::Float(value),
        ValueRef::Text(text) => Value::Text(String::from_utf8_lossy(text).into_owned()),
        ValueRef::Blob(bytes) => Value::Bytes(bytes.to_vec()),
        ValueRef::Null => Value::Null,
    }
}

type Failed = Box<dyn Error + Sync + Send>;

impl ToSql for Value {
    fn to_sql(&self, column: &Type, out: &mut BytesMut) -> Result<IsNull, Failed> {
        match self {
            Value::Null => Ok(IsNull::Yes),
            Value::Int(value) if *column == Type::INT4 => {
                let short = i32::try_from(*value).map_err(|_| format!("{value} does not fit a column of 32 bits"))?;
                short.to_sql(column, out)
            }
            Value::Int(value) => value.to_sql(column, out),
            Value::Float(value) => value.to_sql(column, out),
            // A text and an enumeration's name have the same bytes.
            Value::Text(text) => text.as_str().to_sql(&Type::TEXT, out),
            Value::Time(time) => time.to_sql(column, out),
            Value::Bytes(bytes) => bytes.to_sql(column, out),
        }
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

impl<'a> FromSql<'a> for Value {
    fn from_sql(column: &Type, raw: &'a [u8]) -> Result<Value, Failed> {
        Ok(match *column {
            Type::INT4 => Value::Int(i32::from_sql(column, raw)?.into()),
            Type::INT8 => Value::Int(i64::from_sql(column, raw)?),
            Type::FLOAT8 => Value::Float(f64::from_sql(column, raw)?),
            Type::TIMESTAMP => Value::Time(NaiveDateTime::from_sql(column, raw)?),
            Type::BYTEA => Value::Bytes(raw.to_vec()),
            Type::BOOL => Value::Int(bool::from_sql(column, raw)?.into()),
            _ => Value::Text(std::str::from_utf8(raw)?.to_owned()),
        })
    }

    fn from_sql_null(_: &Type) -> Result<Value, Failed> {
        Ok(Value::Null)
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}
