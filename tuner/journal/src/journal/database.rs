//! A study in Optuna's tables of a database: several searches and Optuna's own processes work on it at once. This module
//! reads the changes of others, and writes facts of the trials that its supervisor owns; the trials of others stay
//! unchanged. Decides nothing about trials.

mod changes;
mod connect;
mod connection;
mod content;
mod error;
mod heartbeat;
mod link;
mod owner;
mod reading;
mod rows;
mod schema;
mod statements;
mod url;
mod waiting;

pub(in crate::journal) use rows::TrialRows;
pub(in crate::journal) use statements::Head;

pub(in crate::journal) use content::PART_BYTES;
pub use error::DatabaseError;
pub use heartbeat::Dead;
use heartbeat::Signs;
pub(super) use owner::{address, address_shown};
pub(super) use reading::{found, named};
pub use url::{StorageUrl, StorageUrlError};
pub use waiting::Look;

use super::JournalError;
use super::fact::{Fact, NewTrial};
use super::format::TrialState;
use super::state::{StudyState, Times};
use changes::{Changes, direction_name, local, upsert};
use connect::Absent;
use connection::Value;
use ferrotune_space::objective::Direction;
use link::Link;
use owner::{Owner, Place};
use rows::Which;
use statements::{head, insert, lock, own, put, standing};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};

/// The shortest time between two polls for changes of others (`POLL`), and between two reads of a trial that another
/// program runs (`READ`).
const POLL: Duration = Duration::from_millis(50);
const READ: Duration = Duration::from_secs(1);

/// A study in a database.
#[derive(Debug)]
pub(super) struct Database {
    link: Link,
    name: String,
    /// The id of the study's row; none until the study exists.
    study: Option<i64>,
    owner: Owner,
    /// The ids of the trials' rows, by the trials' numbers.
    ids: Vec<i64>,
    /// The states of trials that had not ended when they were last read.
    open: BTreeMap<u64, String>,
    /// The open trials that this supervisor owns.
    own: BTreeSet<u64>,
    /// Facts that were recorded and are not in the database yet.
    held: Changes,
    /// Whether facts that were acknowledged are lost.
    pub(super) is_behind: bool,
    polled: Option<Instant>,
    read: Option<Instant>,
    signs: Signs,
}

/// The result of a request for a new trial.
#[derive(Debug, Default)]
pub(super) struct Created {
    /// New trials of others.
    pub(super) new_rows: Vec<TrialRows>,
    /// Trials whose facts were not written, because another supervisor owns them.
    pub(super) refused: Vec<u64>,
    /// The id of the new trial's row; none if the trial is among the `news`, or if the study has enough trials.
    id: Option<i64>,
    /// The number of the trial; none if the study has enough trials.
    pub(super) number: Option<u64>,
}

/// Fails if the supervisor of another folder runs a trial of the study `name` at an address.
pub(super) fn refuse_others(folder: &Path, storage: &str, name: &str) -> Result<(), JournalError> {
    let url = StorageUrl::parse(storage).map_err(JournalError::Storage)?;
    let own = Place::of(folder)?.map(|place| place.supervisor).unwrap_or_default();
    let mut database = Database::new(Link::new(url, Absent::Make), name.to_owned(), Owner::of(&own, folder, None));
    database.head()?;
    database.refuse_living()
}

impl Database {
    fn new(link: Link, name: String, owner: Owner) -> Database {
        Database {
            link,
            name,
            study: None,
            owner,
            ids: Vec::new(),
            open: BTreeMap::new(),
            own: BTreeSet::new(),
            held: Changes::default(),
            is_behind: false,
            polled: None,
            read: None,
            signs: Signs::default(),
        }
    }

    /// Opens the study `name` at the address `storage`, as the supervisor of `folder`, which is locked. Makes the tables if
    /// they do not exist; changes nothing else.
    pub(super) fn open(
        folder: &Path,
        storage: &str,
        name: &str,
        heartbeat_s: Option<u64>,
    ) -> Result<Database, JournalError> {
        let url = StorageUrl::parse(storage).map_err(JournalError::Storage)?;
        let mut link = Link::new(url.clone(), Absent::Make);
        link.write(schema::make)?;
        let place = match Place::of(folder)? {
            Some(place) if place.storage == url.to_string() && place.study == name => place,
            Some(place) => {
                let (folder, found) = (folder.to_owned(), place.storage);
                return Err(JournalError::OtherStorage { folder, found });
            }
            None => Place::write(folder, &url, name)?,
        };
        let folder = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
        let owner = Owner::of(&place.supervisor, &folder, heartbeat_s);
        let mut database = Database::new(link, name.to_owned(), owner);
        database.link.be_patient();
        Ok(database)
    }

    pub(super) fn storage(&self) -> String {
        self.link.storage()
    }

    /// The study's name.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn supervisor(&self) -> &str {
        &self.owner.id
    }

    /// The study's own rows, if the study exists. Fails if the tables are of another version.
    pub(super) fn head(&mut self) -> Result<Option<Head>, JournalError> {
        let storage = self.link.storage();
        if !self.link.read(schema::is_there)? {
            return Ok(None);
        }
        let checked = self.link.read(|connection| Ok(schema::check(connection, &storage)))?;
        checked?;
        let name = Value::text(&self.name);
        let found = self.link.read(|connection| {
            let studies =
                connection.query("SELECT study_id FROM studies WHERE study_name = $1", std::slice::from_ref(&name))?;
            let Some(study) = studies.first().and_then(|row| row[0].as_int()) else { return Ok(None) };
            Ok(Some((study, head(connection, study)?)))
        })?;
        Ok(found.map(|(study, head)| {
            self.study = Some(study);
            head
        }))
    }

    /// Begins the study, unless another program has begun it meanwhile; returns the directions of its objectives.
    pub(super) fn create_study(&mut self, directions: &[Direction]) -> Result<Vec<Direction>, JournalError> {
        let name = Value::text(&self.name);
        let (study, head) = self.link.write(|connection| {
            let sql = "INSERT INTO studies (study_name) VALUES ($1) ON CONFLICT (study_name) DO NOTHING";
            connection.query(sql, std::slice::from_ref(&name))?;
            let studies =
                connection.query("SELECT study_id FROM studies WHERE study_name = $1", std::slice::from_ref(&name))?;
            let study = studies.first().and_then(|row| row[0].as_int()).unwrap_or_default();
            let mut found = head(connection, study)?;
            if found.directions.is_empty() {
                let rows = directions.iter().zip(0..).map(|(direction, index)| {
                    vec![Value::Int(study), Value::Int(index), Value::text(direction_name(*direction))]
                });
                upsert(connection, &changes::DIRECTIONS, rows)?;
                found.directions = directions.to_vec();
            }
            Ok((study, found))
        })?;
        self.study = Some(study);
        Ok(head.directions)
    }

    /// Deletes the study, unless another supervisor runs one of its trials.
    pub(super) fn delete_study(&mut self) -> Result<(), JournalError> {
        let Some(study) = self.study else { return Ok(()) };
        self.refuse_living()?;
        self.link.write(|connection| statements::delete(connection, study))?;
        self.study = None;
        Ok(())
    }

    fn study(&self) -> Result<i64, JournalError> {
        self.study.ok_or_else(|| self.damaged("the study is not there any more".to_owned()))
    }

    pub(super) fn damaged(&self, what: String) -> JournalError {
        JournalError::Database { storage: self.storage(), source: DatabaseError::Row { what } }
    }

    /// The trials that others have added since the last call.
    pub(super) fn new_rows(&mut self) -> Result<Vec<TrialRows>, JournalError> {
        let which = self.unknown()?;
        self.link.read(|connection| rows::read(connection, &which))
    }

    fn unknown(&self) -> Result<Which, JournalError> {
        Ok(Which::Beyond { study: self.study()?, id: self.ids.last().copied().unwrap_or(-1) })
    }

    /// Reads the present rows of these trials.
    pub(super) fn rows_of(&mut self, numbers: &[u64]) -> Result<Vec<TrialRows>, JournalError> {
        if numbers.is_empty() {
            return Ok(Vec::new());
        }
        let which = Which::Of(self.ids_of(numbers.iter()));
        self.link.read(|connection| rows::read(connection, &which))
    }

    fn ids_of<'a>(&self, numbers: impl Iterator<Item = &'a u64>) -> Vec<i64> {
        numbers.map(|number| self.ids[*number as usize]).collect()
    }

    /// The changes of others since the last poll: new trials, and trials that others run or have ended. Polls at most every
    /// 50 ms.
    pub(super) fn poll(&mut self) -> Result<Vec<TrialRows>, JournalError> {
        if self.polled.is_some_and(|polled| polled.elapsed() < POLL) {
            return Ok(Vec::new());
        }
        self.polled = Some(Instant::now());
        let changed = self.changed()?;
        let mut rows = self.rows_of(&changed)?;
        rows.extend(self.new_rows()?);
        Ok(rows)
    }

    /// The open trials whose state has changed, and, once per second, the trials that others run.
    fn changed(&mut self) -> Result<Vec<u64>, JournalError> {
        if self.open.is_empty() {
            return Ok(Vec::new());
        }
        let ids = self.ids_of(self.open.keys());
        let found = self.link.read(|connection| {
            let mut found = Vec::with_capacity(ids.len());
            for (places, values) in rows::lists(&ids) {
                let sql = format!("SELECT trial_id, state FROM trials WHERE trial_id IN ({places})");
                found.extend(connection.query(&sql, &values)?);
            }
            Ok(found)
        })?;
        let states: BTreeMap<i64, &str> =
            found.iter().filter_map(|row| Some((row[0].as_int()?, row[1].as_text()?))).collect();
        let is_due = self.read.is_none_or(|read| read.elapsed() >= READ);
        if is_due {
            self.read = Some(Instant::now());
        }
        let is_changed = |(number, known): &(&u64, &String)| {
            let state = states.get(&self.ids[**number as usize]).copied();
            let is_read = is_due && known.as_str() == "RUNNING" && !self.own.contains(*number);
            is_read || state != Some(known.as_str())
        };
        Ok(self.open.iter().filter(is_changed).map(|(number, _)| *number).collect())
    }

    /// Stores the row id and the state of a trial whose record now equals its rows. Fails if the trial's number is neither
    /// known nor the next one.
    pub(super) fn remember_rows(&mut self, rows: &TrialRows) -> Result<(), JournalError> {
        let number = rows.number.filter(|number| *number <= self.ids.len() as u64);
        let Some(number) = number else {
            let what = format!("row {} of the table trials has no number, or not the next one", rows.id);
            return Err(self.damaged(what));
        };
        if number == self.ids.len() as u64 {
            self.ids.push(rows.id);
        }
        let is_own = rows.owner().is_some_and(|owner| owner.id == self.owner.id) && rows.state == "RUNNING";
        if rows.has_ended() {
            self.close(number);
        } else {
            self.open.insert(number, rows.state.clone());
            if is_own {
                self.own.insert(number)
            } else {
                self.own.remove(&number)
            };
        }
        Ok(())
    }

    fn close(&mut self, number: u64) {
        self.open.remove(&number);
        self.own.remove(&number);
    }

    /// Holds back these facts of `study` until the next write.
    pub(super) fn hold(&mut self, facts: &[Fact<'_>], study: &StudyState) {
        self.held.add(facts, study, &self.owner.id);
    }

    /// Writes the facts that were held back and these facts of `study`. Returns the trials whose facts were not all
    /// written, because others own or have ended them.
    pub(super) fn write(&mut self, facts: &[Fact<'_>], study: &StudyState) -> Result<Vec<u64>, JournalError> {
        let is_acknowledged = !self.held.is_empty();
        self.hold(facts, study);
        let changes = std::mem::take(&mut self.held);
        if changes.is_empty() {
            return Ok(Vec::new());
        }
        let (study, ids, me) = (self.study()?, &self.ids, self.owner.id.as_str());
        let written = self.link.write(|connection| put(connection, study, &changes, ids, me));
        // The callers that recorded the held-back facts do not learn that the facts are lost.
        self.is_behind |= written.is_err() && is_acknowledged;
        let refused = written?;
        self.close_ended(&changes);
        Ok(refused)
    }

    fn close_ended(&mut self, changes: &Changes) {
        let ended = changes.trials.iter().filter(|(_, trial)| trial.is_end()).map(|(number, _)| *number);
        ended.for_each(|number| self.close(number));
    }

    /// Adds a trial after those of others, in a transaction that assigns its number; none if the study has `most` trials by
    /// then. Writes the facts that were held back.
    pub(super) fn create(&mut self, trial: &NewTrial, most: Option<u64>) -> Result<Created, JournalError> {
        let (study, held, unknown) = (self.study()?, std::mem::take(&mut self.held), self.unknown()?);
        let (ids, owner, state) = (&self.ids, &self.owner, trial.state.unwrap_or(TrialState::Running));
        let created = self.link.write(|connection| {
            let refused = put(connection, study, &held, ids, &owner.id)?;
            lock(connection, "SELECT study_id FROM studies WHERE study_id = $1", study)?;
            let new_rows = rows::read(connection, &unknown)?;
            // An earlier attempt, whose commit was not confirmed, may have made the trial.
            let made = new_rows.iter().find(|rows| rows.owner().is_some_and(|owner| owner.id == self.owner.id));
            let (made, next) = (made.and_then(|rows| rows.number), (ids.len() + new_rows.len()) as u64);
            if made.is_some() || most.is_some_and(|most| next >= most) {
                return Ok(Created { new_rows, refused, id: None, number: made });
            }
            let id = insert(connection, study, next, (trial, state))?;
            own(connection, id, owner, state == TrialState::Running)?;
            Ok(Created { new_rows, refused, id: Some(id), number: Some(next) })
        });
        self.is_behind |= created.is_err() && !held.is_empty();
        let created = created?;
        self.close_ended(&held);
        Ok(created)
    }

    /// Stores the row id and the state of the created trial, after the trials that are new before it. Returns whether this
    /// search has no record of it yet.
    pub(super) fn remember_created(&mut self, created: &Created, state: Option<TrialState>) -> bool {
        let Some((id, number)) = created.id.zip(created.number) else { return false };
        self.ids.push(id);
        self.open.insert(number, state.unwrap_or(TrialState::Running).name().to_owned());
        if state.is_none() {
            self.own.insert(number);
        }
        true
    }

    /// Begins a waiting trial, unless another program has begun it. Returns whether this supervisor owns the trial.
    pub(super) fn begin(&mut self, number: u64, times: Times) -> Result<bool, JournalError> {
        let (id, owner) = (self.ids[number as usize], &self.owner);
        self.link.write(|connection| {
            let (state, known) = standing(connection, id)?;
            if state != "WAITING" {
                return Ok(state == "RUNNING" && known.is_some_and(|known| known.id == owner.id));
            }
            let sql = "UPDATE trials SET state = 'RUNNING', datetime_start = $1 WHERE trial_id = $2";
            connection.query(sql, &[Value::from(times.started.map(local)), Value::Int(id)])?;
            own(connection, id, owner, true)?;
            Ok(true)
        })
    }
}

#[cfg(test)]
mod tests;
