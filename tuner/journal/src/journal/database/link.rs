//! The link to a database: transactions that are repeated after conflicts, and that wait for an unavailable server. The
//! work of a transaction must be repeatable: if the link breaks during a commit, its result is unknown.

use super::connect::{Absent, connect};
use super::connection::Connection;
use super::error::{DatabaseError, Remedy};
use super::url::StorageUrl;
use super::waiting::Waiting;
use crate::journal::JournalError;
use std::time::{Duration, Instant};

/// The longest wait for an unavailable server.
const LONGEST_OUTAGE: Duration = Duration::from_secs(600);
/// The longest wait for an unavailable server when this process is about to end.
const LAST_OUTAGE: Duration = Duration::from_secs(10);
/// The shortest and the longest pause between two attempts to reach the server.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));
/// The largest number of repeats of a transaction that conflicts with others.
const MOST_REPEATS: u32 = 50;

/// A link to one database.
#[derive(Debug)]
pub(super) struct Link {
    url: StorageUrl,
    absent: Absent,
    connection: Option<Connection>,
    /// The time at which the connection, or else the link, was made.
    reached: Instant,
    /// The longest wait for an unavailable server: zero until the server has been reached.
    patience: Duration,
    /// The callback that runs during a wait.
    waiting: Waiting,
}

/// An outage of a server.
struct Outage {
    since: Instant,
    pause: Duration,
}

impl Link {
    pub(super) fn new(url: StorageUrl, absent: Absent) -> Link {
        Link {
            url,
            absent,
            connection: None,
            reached: Instant::now(),
            patience: Duration::ZERO,
            waiting: Waiting::default(),
        }
    }

    /// The address, without a password.
    pub(super) fn storage(&self) -> String {
        self.url.to_string()
    }

    /// The time since which the database has answered.
    pub(super) fn reached(&self) -> Instant {
        self.reached
    }

    /// Makes later calls wait for an unavailable server.
    pub(super) fn be_patient(&mut self) {
        self.patience = LONGEST_OUTAGE;
    }

    /// The callback that runs while a server is awaited.
    pub(super) fn waiting(&self) -> &Waiting {
        &self.waiting
    }

    /// Limits later waits to some seconds: this process is about to end.
    pub(super) fn hurry(&mut self) {
        self.patience = self.patience.min(LAST_OUTAGE);
    }

    /// Runs `work` in a transaction, once or more often. All its changes are on the server's disk when this function
    /// returns.
    pub(super) fn write<T>(
        &mut self,
        mut work: impl FnMut(&mut Connection) -> Result<T, DatabaseError>,
    ) -> Result<T, JournalError> {
        self.persist(&mut |connection| {
            connection.begin()?;
            let done = work(connection);
            match done {
                Ok(done) => connection.run("COMMIT").map(|()| done),
                Err(error) => {
                    // A broken connection has nothing to roll back, and the first error is more informative.
                    if let Err(second) = connection.run("ROLLBACK") {
                        tracing::debug!(%second, "a transaction is left to the server to undo");
                    }
                    Err(error)
                }
            }
        })
    }

    /// Runs the queries of `work`, once or more often.
    pub(super) fn read<T>(
        &mut self,
        mut work: impl FnMut(&mut Connection) -> Result<T, DatabaseError>,
    ) -> Result<T, JournalError> {
        self.persist(&mut work)
    }

    fn persist<T>(
        &mut self,
        work: &mut dyn FnMut(&mut Connection) -> Result<T, DatabaseError>,
    ) -> Result<T, JournalError> {
        let (mut outage, mut repeats) = (None, 0);
        loop {
            let error = match self.attempt(work) {
                Ok(done) => {
                    if let Some(Outage { since, .. }) = outage {
                        let seconds = since.elapsed().as_secs();
                        eprintln!("ferrotune: the storage {} answers again after {seconds} s", self.url);
                    }
                    return Ok(done);
                }
                Err(error) => error,
            };
            match error.remedy() {
                Remedy::Repeat if repeats < MOST_REPEATS => repeats += 1,
                Remedy::Reconnect if self.is_waited_for(&mut outage, &error) => {}
                _ => return Err(JournalError::Database { storage: self.storage(), source: error }),
            }
        }
    }

    fn attempt<T>(
        &mut self,
        work: &mut dyn FnMut(&mut Connection) -> Result<T, DatabaseError>,
    ) -> Result<T, DatabaseError> {
        let connection = match &mut self.connection {
            Some(connection) => connection,
            none => {
                let connection = connect(&self.url, self.absent, &self.waiting)?;
                self.reached = Instant::now();
                none.insert(connection)
            }
        };
        work(connection)
    }

    /// Drops the connection, and waits before the next attempt. Returns whether there is a next attempt.
    fn is_waited_for(&mut self, outage: &mut Option<Outage>, error: &DatabaseError) -> bool {
        self.connection = None;
        let outage = outage.get_or_insert_with(|| {
            if !self.patience.is_zero() {
                eprintln!("ferrotune: the storage {} does not answer ({error}); the search waits for it", self.url);
            }
            let silence = if let DatabaseError::Silent { seconds } = error { *seconds } else { 0 };
            let now = Instant::now();
            Outage { since: now.checked_sub(Duration::from_secs(silence)).unwrap_or(now), pause: PAUSES.0 }
        });
        if outage.since.elapsed() >= self.patience {
            return false;
        }
        let pause = outage.pause;
        outage.pause = (2 * pause).min(PAUSES.1);
        self.waiting.pause(pause, outage.since)
    }
}
