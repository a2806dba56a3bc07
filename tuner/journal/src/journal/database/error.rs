//! What a database refuses, and whether another try may help.

use rusqlite::ErrorCode;
use std::fmt;
use tokio_postgres::error::SqlState;

/// Why a database did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum DatabaseError {
    /// PostgreSQL, or the connection to it.
    #[error("{}", Told(.0))]
    Postgres(#[from] tokio_postgres::Error),
    /// SQLite.
    #[error("{0}")]
    Sqlite(#[from] rusqlite::Error),
    /// The server does not answer.
    #[error("no answer for {seconds} s")]
    Silent {
        /// For how long it was waited for.
        seconds: u64,
    },
    /// The client of a server cannot be set up.
    #[error("the connection cannot be set up: {0}")]
    Client(std::io::Error),
    /// The encryption of a connection cannot be set up.
    #[error("the connection cannot be encrypted: {reason}")]
    Encryption {
        /// Why.
        reason: String,
    },
    /// A row has what no row of Optuna's has.
    #[error("{what}")]
    Row {
        /// Which row, and what is wrong with it.
        what: String,
    },
}

/// What can be done after an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Remedy {
    /// The same transaction once more: another one was in its way.
    Repeat,
    /// The same once the server is there again.
    Reconnect,
    None,
}

impl DatabaseError {
    pub(super) fn remedy(&self) -> Remedy {
        match self {
            DatabaseError::Postgres(error) => match error.code() {
                Some(code) => of_code(code),
                None if is_refused_connection(error) => Remedy::Reconnect,
                None => Remedy::None,
            },
            DatabaseError::Sqlite(error) => match error.sqlite_error_code() {
                Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Remedy::Repeat,
                _ => Remedy::None,
            },
            DatabaseError::Silent { .. } => Remedy::Reconnect,
            DatabaseError::Client(_) | DatabaseError::Encryption { .. } | DatabaseError::Row { .. } => Remedy::None,
        }
    }
}

fn of_code(code: &SqlState) -> Remedy {
    let repeated = [&SqlState::T_R_SERIALIZATION_FAILURE, &SqlState::T_R_DEADLOCK_DETECTED];
    // The server stops, starts, has stopped an idle transaction, or has no place left for another connection.
    let gone = [
        &SqlState::ADMIN_SHUTDOWN,
        &SqlState::CRASH_SHUTDOWN,
        &SqlState::CANNOT_CONNECT_NOW,
        &SqlState::TOO_MANY_CONNECTIONS,
        &SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT,
        &SqlState::CONNECTION_EXCEPTION,
        &SqlState::CONNECTION_FAILURE,
    ];
    if repeated.contains(&code) {
        Remedy::Repeat
    } else if gone.contains(&code) {
        Remedy::Reconnect
    } else {
        Remedy::None
    }
}

/// Whether the server was not reached, or has left in the middle.
fn is_refused_connection(error: &tokio_postgres::Error) -> bool {
    // A certificate that does not fit comes as an error of the connection, too, and stays wrong.
    encryption_error(error).is_none()
        && (error.is_closed() || causes(error).any(|cause| cause.downcast_ref::<std::io::Error>().is_some()))
}

/// What is wrong with the encryption of a connection, if that is why it failed.
fn encryption_error(error: &tokio_postgres::Error) -> Option<&rustls::Error> {
    causes(error).find_map(|cause| {
        let in_io = || cause.downcast_ref::<std::io::Error>()?.get_ref()?.downcast_ref();
        cause.downcast_ref().or_else(in_io)
    })
}

/// An error, and what has caused it, and so on.
fn causes(error: &tokio_postgres::Error) -> impl Iterator<Item = &(dyn std::error::Error + 'static)> {
    std::iter::successors(Some(error as &(dyn std::error::Error + 'static)), |error| error.source())
}

/// An error of PostgreSQL with the server's own words.
struct Told<'a>(&'a tokio_postgres::Error);

impl fmt::Display for Told<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(server) = self.0.as_db_error() {
            return formatter.write_str(server.message());
        }
        write!(formatter, "{}", self.0)?;
        let mut told = self.0.to_string();
        for cause in causes(self.0).skip(1) {
            let text = cause.to_string();
            if !told.contains(&text) {
                write!(formatter, ": {text}")?;
                told = text;
            }
        }
        match encryption_error(self.0) {
            Some(rustls::Error::InvalidCertificate(_)) => formatter.write_str(
                "; give the certificate of the authority that has signed the server's, as sslrootcert=FILE in the address",
            ),
            _ => Ok(()),
        }
    }
}
