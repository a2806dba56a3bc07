//! Heartbeats, in Optuna's table. A supervisor writes a heartbeat for each of its trials, and looks for supervisors whose
//! heartbeats have not changed for two of their intervals, which is also Optuna's default grace
//! (<https://optuna.readthedocs.io/en/stable/reference/generated/optuna.storages.RDBStorage.html>). The observer measures
//! that time with its own clock, from when it first sees a heartbeat, as the holders of leases in Kubernetes do
//! (<https://pkg.go.dev/k8s.io/client-go/tools/leaderelection>): the clocks of two hosts need not agree. Time during which
//! the database cannot be reached does not count, because nobody could write a heartbeat then.

use super::connection::{Connection, Row, Value};
use super::error::DatabaseError;
use super::owner::Owner;
use super::rows::{self, TrialRows, Which};
use super::statements::{beat, own, standing, standing_unless_held, unless_held};
use super::waiting::Look;
use super::{Database, JournalError};
use crate::journal::format;
use ferrotune_space::record::Ending;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The number of its intervals without a heartbeat after which a supervisor is dead.
const GRACE: u64 = 2;

/// The shortest time between two checks for heartbeats of others.
const ASK: Duration = Duration::from_millis(500);

/// A trial whose supervisor is dead, or has released the trial.
#[derive(Clone, Debug, PartialEq)]
pub struct Dead {
    /// The trial's number.
    pub number: u64,
    /// The ending of the trial; none if its supervisor has released it in an orderly way.
    pub ending: Option<Ending>,
    /// The folder with the trial's checkpoints, if this host can read it, and the name of the last checkpoint.
    pub checkpoint: Option<(PathBuf, String)>,
    /// The id of the supervisor that owned the trial.
    supervisor: String,
    /// The trial's last heartbeat.
    heartbeat: Value,
}

/// A running trial's last heartbeat.
struct Sign {
    /// The id of the trial's row.
    id: i64,
    heartbeat: Value,
    /// The age of the heartbeat by the clock of the database.
    age_s: f64,
    owner: Owner,
}

/// The times at which heartbeats were written and read.
#[derive(Debug, Default)]
pub(super) struct Signs {
    given: Option<Instant>,
    looked: Option<Instant>,
    /// The time of the last check for heartbeats of others, with its result.
    asked: Option<(Instant, bool)>,
    /// The heartbeats of others, each with the time at which it was first seen, by the ids of the trials' rows.
    seen: BTreeMap<i64, (Value, Instant)>,
}

impl Signs {
    /// Compares the present heartbeats with the earlier ones. Returns those that are unchanged for too long, each with that
    /// time, and those of supervisors that have left. `reached` is the time at which the database was first reached, or
    /// reached again after an outage.
    fn look(&mut self, signs: Vec<Sign>, reached: Instant) -> Vec<(Sign, Duration)> {
        let before = std::mem::take(&mut self.seen);
        let mut dead = Vec::new();
        for sign in signs {
            let same = before.get(&sign.id).filter(|(heartbeat, _)| *heartbeat == sign.heartbeat);
            let since = same.map_or_else(Instant::now, |(_, since)| *since).max(reached);
            self.seen.insert(sign.id, (sign.heartbeat.clone(), since));
            if sign.owner.has_left || sign.owner.grace().is_some_and(|grace| since.elapsed() > grace) {
                dead.push((sign, since.elapsed()));
            }
        }
        dead
    }
}

impl Owner {
    /// The longest time between two heartbeats of this supervisor; none if it writes no heartbeats.
    fn grace(&self) -> Option<Duration> {
        self.heartbeat_s.map(|interval| Duration::from_secs(GRACE.saturating_mul(interval.max(1))))
    }
}

/// Writes the heartbeat of a trial whose row another transaction has locked, unless that transaction has also locked the
/// heartbeat. No other supervisor can own the trial before that transaction ends.
fn beat_held(connection: &mut Connection, id: i64) -> Result<(), DatabaseError> {
    let skip = unless_held(connection);
    let sql = format!(
        "UPDATE trial_heartbeats SET heartbeat = CURRENT_TIMESTAMP WHERE trial_id IN \
         (SELECT trial_id FROM trial_heartbeats WHERE trial_id = $1{skip})"
    );
    connection.query(&sql, &[Value::Int(id)])?;
    Ok(())
}

/// The last heartbeats of a study's running trials.
fn signs(connection: &mut Connection, study: i64) -> Result<Vec<Sign>, DatabaseError> {
    let age = if connection.is_sqlite() {
        "(julianday('now') - julianday(h.heartbeat)) * 86400.0"
    } else {
        "CAST(EXTRACT(EPOCH FROM (LOCALTIMESTAMP - h.heartbeat)) AS DOUBLE PRECISION)"
    };
    let sql = format!(
        "SELECT t.trial_id, h.heartbeat, {age}, x.value_json FROM trials t \
         JOIN trial_heartbeats h ON h.trial_id = t.trial_id \
         JOIN trial_user_attributes x ON x.trial_id = t.trial_id AND x.key = '{}' \
         WHERE t.study_id = $1 AND t.state = 'RUNNING' ORDER BY t.trial_id",
        format::SUPERVISOR
    );
    let rows = connection.query(&sql, &[Value::Int(study)])?;
    let read = |row: &Row| {
        let owner = serde_json::from_str(row[3].as_text()?).ok()?;
        Some(Sign { id: row[0].as_int()?, heartbeat: row[1].clone(), age_s: row[2].as_float()?, owner })
    };
    Ok(rows.iter().filter_map(read).collect())
}

/// The dead trials, with the present rows of their heartbeats. A trial that no longer has rows is left out.
fn dead_of(rows: &[TrialRows], dead: Vec<(Sign, Duration)>) -> Vec<Dead> {
    let rows: BTreeMap<i64, &TrialRows> = rows.iter().map(|rows| (rows.id, rows)).collect();
    let found = dead.into_iter().filter_map(|(Sign { id, heartbeat, owner, .. }, silent)| {
        let rows = rows.get(&id)?;
        let file = rows.attribute::<serde_json::Value>(format::CHECKPOINT);
        let file = file.and_then(|checkpoint| Some(checkpoint["file"].as_str()?.to_owned()));
        let reason = || format!("its supervisor on {} gave no sign of life for {} s", owner.host, silent.as_secs());
        Some(Dead {
            number: rows.number?,
            ending: (!owner.has_left).then(|| Ending::Failed { reason: reason() }),
            checkpoint: file.filter(|_| owner.is_here()).map(|file| (owner.folder, file)),
            supervisor: owner.id,
            heartbeat,
        })
    });
    found.collect()
}

impl Database {
    fn interval(&self) -> Option<Duration> {
        self.owner.heartbeat_s.map(|seconds| Duration::from_secs(seconds.max(1)))
    }

    /// Writes a heartbeat for each trial of this supervisor, twice per interval. Returns the trials that this supervisor no
    /// longer owns.
    pub(in crate::journal) fn beat(&mut self) -> Result<Vec<u64>, JournalError> {
        let Some(interval) = self.interval() else { return Ok(Vec::new()) };
        // Heartbeats are at most half an interval apart: twice as often as other supervisors expect.
        if self.own.is_empty() || self.signs.given.is_some_and(|given| given.elapsed() < interval / 2) {
            return Ok(Vec::new());
        }
        self.signs.given = Some(Instant::now());
        let (ids, own, me) = (&self.ids, &self.own, self.owner.id.as_str());
        self.link.write(|connection| {
            let mut lost = Vec::new();
            for number in own {
                let id = ids[*number as usize];
                let Some((state, owner)) = standing_unless_held(connection, id)? else {
                    beat_held(connection, id)?;
                    continue;
                };
                if state == "RUNNING" && owner.is_some_and(|owner| owner.id == me) {
                    beat(connection, id)?;
                } else {
                    lost.push(*number);
                }
            }
            Ok(lost)
        })
    }

    /// The trials whose supervisors are dead. Reads heartbeats at most twice per interval.
    pub(in crate::journal) fn dead(&mut self) -> Result<Vec<Dead>, JournalError> {
        let Some(interval) = self.interval() else { return Ok(Vec::new()) };
        if self.signs.looked.is_some_and(|looked| looked.elapsed() < interval / 2) {
            return Ok(Vec::new());
        }
        self.signs.looked = Some(Instant::now());
        let (study, me) = (self.study()?, self.owner.id.clone());
        let mut signs = self.link.read(|connection| signs(connection, study))?;
        // A new trial is ignored until its rows have been read.
        signs.retain(|sign| sign.owner.id != me && self.ids.contains(&sign.id));
        let dead = self.signs.look(signs, self.link.reached());
        if dead.is_empty() {
            return Ok(Vec::new());
        }
        let which = Which::Of(dead.iter().map(|(sign, _)| sign.id).collect());
        let rows = self.link.read(|connection| rows::read(connection, &which))?;
        Ok(dead_of(&rows, dead))
    }

    /// Whether one of these trials has a heartbeat, of a supervisor that is alive or has died. The result is cached for
    /// half a second.
    pub(in crate::journal) fn any_has_signs(&mut self, numbers: &[u64]) -> Result<bool, JournalError> {
        if self.interval().is_none() || numbers.is_empty() {
            return Ok(false);
        }
        if let Some((_, found)) = self.signs.asked.filter(|(asked, _)| asked.elapsed() < ASK) {
            return Ok(found);
        }
        let ids = self.ids_of(numbers.iter());
        let found = self.link.read(|connection| {
            for (places, values) in rows::lists(&ids) {
                let sql = format!("SELECT trial_id FROM trial_heartbeats WHERE trial_id IN ({places}) LIMIT 1");
                if !connection.query(&sql, &values)?.is_empty() {
                    return Ok(true);
                }
            }
            Ok(false)
        })?;
        self.signs.asked = Some((Instant::now(), found));
        Ok(found)
    }

    /// Makes a dead supervisor's trial this supervisor's own. Does nothing if that supervisor is alive after all, if
    /// another supervisor was faster, or if a transaction has locked the trial: a search that waited for the lock could
    /// write no heartbeats.
    pub(in crate::journal) fn take_over(&mut self, dead: &Dead) -> Result<bool, JournalError> {
        let (study, id) = (self.study()?, self.ids[dead.number as usize]);
        let owner = &self.owner;
        self.link.write(|connection| {
            let Some((state, holder)) = standing_unless_held(connection, id)? else { return Ok(false) };
            let holder = holder.map(|holder| holder.id);
            if state == "RUNNING" && holder.as_ref() == Some(&owner.id) {
                return Ok(true);
            }
            let is_as_found = state == "RUNNING" && holder.as_ref() == Some(&dead.supervisor);
            let is_still_dead = |sign: &Sign| sign.id == id && sign.heartbeat == dead.heartbeat;
            if !is_as_found || !signs(connection, study)?.iter().any(is_still_dead) {
                return Ok(false);
            }
            own(connection, id, owner, true)?;
            Ok(true)
        })
    }

    /// Fails if another living supervisor has a trial of the study.
    pub(super) fn refuse_living(&mut self) -> Result<(), JournalError> {
        let Some(study) = self.study else { return Ok(()) };
        let me = self.owner.id.clone();
        let signs = self.link.read(|connection| signs(connection, study))?;
        let lives = |sign: &Sign| {
            !sign.owner.has_left && sign.owner.grace().is_none_or(|grace| sign.age_s <= grace.as_secs_f64())
        };
        match signs.into_iter().find(|sign| sign.owner.id != me && lives(sign)) {
            Some(sign) => {
                let holder = format!("a supervisor on {}", sign.owner.host);
                Err(JournalError::Locked { study: self.name.clone(), holder })
            }
            None => Ok(()),
        }
    }

    /// Sets the callback that runs while the database is awaited.
    pub(in crate::journal) fn while_waiting(&self, look: Look) {
        self.link.waiting().set(look);
    }

    /// Limits the wait for an unavailable server to some seconds.
    pub(in crate::journal) fn hurry(&mut self) {
        self.link.hurry();
    }

    /// Removes the heartbeats, because this supervisor leaves in an orderly way. Its open trials wait for its next start,
    /// or are released to others if `leaves_trials` is set.
    pub(in crate::journal) fn leave(&mut self, leaves_trials: bool) -> Result<(), JournalError> {
        let (ids, open) = (&self.ids, std::mem::take(&mut self.own));
        if open.is_empty() || self.owner.heartbeat_s.is_none() {
            return Ok(());
        }
        let gone = Owner { has_left: true, ..self.owner.clone() };
        let me = self.owner.id.as_str();
        self.link.write(|connection| {
            for number in &open {
                let id = ids[*number as usize];
                if !leaves_trials {
                    connection.query("DELETE FROM trial_heartbeats WHERE trial_id = $1", &[Value::Int(id)])?;
                    continue;
                }
                let (state, holder) = standing(connection, id)?;
                if state == "RUNNING" && holder.is_some_and(|holder| holder.id == me) {
                    own(connection, id, &gone, true)?;
                }
            }
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn signs_stay_with_their_trials_where_one_of_these_is_gone() {
        let sign = |id, supervisor| {
            let owner = Owner::of(supervisor, Path::new("/nowhere"), Some(1));
            (Sign { id, heartbeat: Value::text(supervisor), age_s: 9.0, owner }, Duration::from_secs(9))
        };
        let rows = |id: i64, number| {
            let mut rows = TrialRows::default();
            (rows.id, rows.number) = (id, Some(number));
            rows
        };
        let dead = vec![sign(7, "first"), sign(8, "second"), sign(9, "third")];
        let found = dead_of(&[rows(9, 2), rows(8, 1)], dead);
        let found: Vec<_> = found.iter().map(|dead| (dead.number, dead.supervisor.as_str())).collect();
        assert_eq!(found, [(1, "second"), (2, "third")]);
    }
}
