//! The errors of a database, and whether another try may help.

use rusqlite::ErrorCode;
use std::fmt;
use tokio_postgres::error::SqlState;

/// The reason why a database operation failed.
#[derive(Debug, thiserror::Error)]
pub enum DatabaseError {
    /// An error of PostgreSQL, or of the connection to it.
    #[error("{}", Told(.0))]
    Postgres(#[from] tokio_postgres::Error),
    /// An error of SQLite.
    #[error("{0}")]
    Sqlite(#[from] rusqlite::Error),
    /// The server does not answer.
    #[error("no answer for {seconds} s")]
    Silent {
        /// The time for which an answer was awaited, in seconds.
        seconds: u64,
    },
    /// The client of a server cannot be set up.
    #[error("the connection cannot be set up: {0}")]
    Client(std::io::Error),
    /// The encryption of a connection cannot be set up.
    #[error("the connection cannot be encrypted: {reason}")]
    Encryption {
        /// The reason.
        reason: String,
    },
    /// A row has a value that Optuna never writes.
    #[error("{what}")]
    Row {
        /// Which row, and what is wrong with it.
        what: String,
    },
}

/// The remedy for an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Remedy {
    /// Repeat the transaction: another transaction conflicted with it.
    Repeat,
    /// Repeat the transaction once the server is available again.
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
    // The server stops, starts, has ended an idle transaction, or accepts no further connection.
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

/// Whether the server was not reached, or closed the connection.
fn is_refused_connection(error: &tokio_postgres::Error) -> bool {
    // A wrong certificate is also an error of the connection, but stays wrong.
    encryption_error(error).is_none()
        && (error.is_closed() || causes(error).any(|cause| cause.downcast_ref::<std::io::Error>().is_some()))
}

/// The encryption error of a connection, if that is why it failed.
fn encryption_error(error: &tokio_postgres::Error) -> Option<&rustls::Error> {
    causes(error).find_map(|cause| {
        let in_io = || cause.downcast_ref::<std::io::Error>()?.get_ref()?.downcast_ref();
        cause.downcast_ref().or_else(in_io)
    })
}

/// An error followed by its chain of causes.
fn causes(error: &tokio_postgres::Error) -> impl Iterator<Item = &(dyn std::error::Error + 'static)> {
    std::iter::successors(Some(error as &(dyn std::error::Error + 'static)), |error| error.source())
}

/// A PostgreSQL error, displayed with the server's own message.
struct Told<'a>(&'a tokio_postgres::Error);

impl fmt::Display for Told<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(server) = self.0.as_db_error() {
            return formatter.write_str(server.message());
        }
        write!(formatter, "{}", self.0)?;
        let mut message = self.0.to_string();
        for cause in causes(self.0).skip(1) {
            let text = cause.to_string();
            if !message.contains(&text) {
                write!(formatter, ": {text}")?;
                message = text;
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
