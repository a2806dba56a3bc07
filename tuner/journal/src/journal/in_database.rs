//! A study in a database: facts become rows of Optuna's tables, and the rows that others change become facts. A recorded
//! fact is in the database before the call that records it returns, unless facts are held back.

use super::database::{Database, Dead, Head, Look, TrialRows};
use super::decode::study_attribute_fact;
use super::fact::{Fact, NewTrial, Refusal};
use super::format;
use super::known::Known;
use super::state::Times;
use super::{JournalError, Study};
use ferrotune_space::record::Runner;
use std::borrow::Cow;
use std::path::Path;

/// The database, and whether facts are held back.
#[derive(Debug)]
pub(super) struct InDatabase {
    database: Database,
    is_holding: bool,
}

impl InDatabase {
    pub(super) fn new(database: Database) -> InDatabase {
        InDatabase { database, is_holding: false }
    }

    /// Deletes the study, unless another supervisor runs one of its trials.
    pub(super) fn delete_study(&mut self) -> Result<(), JournalError> {
        self.database.head()?;
        self.database.delete_study()
    }

    /// Reads the study. Returns whether it exists.
    pub(super) fn read_study(&mut self, known: &mut Known) -> Result<bool, JournalError> {
        let Some(head) = self.database.head()? else { return Ok(false) };
        self.take_head(known, head)?;
        let news = self.database.news()?;
        self.take_in(known, news)?;
        Ok(true)
    }

    fn take_head(&mut self, known: &mut Known, head: Head) -> Result<(), JournalError> {
        let study = &mut known.replay.study;
        (study.name, study.directions) = (Some(known.name.clone()), head.directions);
        let own = format!("{}:{}", format::SPEC, self.database.supervisor());
        // This supervisor's own spec is applied after those of others, so it is the one in force.
        let (last, others): (Vec<_>, Vec<_>) = head.attributes.into_iter().partition(|(name, _)| *name == own);
        for (name, text) in others.iter().chain(&last) {
            let name = if *name == own { format::SPEC } else { name };
            let refused = |refusal| self.refused(&known.name, refusal);
            let value = serde_json::from_str(text).map_err(|error| refused(Refusal::Damaged(error.to_string())))?;
            let applied = study_attribute_fact(name, &value).and_then(|fact| fact.apply(Runner::Search, study));
            applied.map_err(refused)?;
        }
        Ok(())
    }

    fn refused(&self, study: &str, refusal: Refusal) -> JournalError {
        match refusal {
            Refusal::Newer(found) => JournalError::NewerVersion { study: study.to_owned(), found },
            Refusal::Damaged(reason) => self.database.damaged(reason),
        }
    }

    /// Applies these rows to the records.
    fn take_in(&mut self, known: &mut Known, told: Vec<TrialRows>) -> Result<(), JournalError> {
        known.has_news |= !told.is_empty();
        let me = self.database.supervisor().to_owned();
        for rows in told {
            self.database.take_down(&rows)?;
            let (writer, facts) = known
                .replay
                .with_decoder(|decoder| rows.facts(&me, decoder))
                .map_err(|refusal| self.refused(&known.name, refusal))?;
            for fact in facts {
                let applied = fact.apply(writer, &mut known.replay.study);
                applied.map_err(|refusal| self.refused(&known.name, refusal))?;
            }
        }
        Ok(())
    }

    /// Reads the trials whose facts were not written because others own or have ended them.
    fn take_in_refused(&mut self, known: &mut Known, mut refused: Vec<u64>) -> Result<(), JournalError> {
        refused.dedup();
        let told = self.database.told(&refused)?;
        self.take_in(known, told)
    }

    /// Reads the changes of others.
    pub(super) fn read_others(&mut self, known: &mut Known) -> Result<(), JournalError> {
        let told = self.database.poll()?;
        self.take_in(known, told)
    }

    /// Writes the first facts of a study, unless the study exists.
    pub(super) fn begin_study(&mut self, known: &mut Known, facts: Vec<Fact<'_>>) -> Result<(), JournalError> {
        for fact in &facts {
            if let Fact::StudyCreated { directions, .. } = fact {
                let directions = self.database.create_study(directions)?;
                let name = Cow::Owned(known.name.clone());
                known.apply(vec![Fact::StudyCreated { name, directions }]);
            }
        }
        let facts = facts.into_iter().filter(|fact| !matches!(fact, Fact::StudyCreated { .. })).collect();
        self.append(known, facts)
    }

    /// Writes these facts, unless facts are held back, and applies them to the records.
    pub(super) fn record(&mut self, known: &mut Known, facts: Vec<Fact<'_>>) -> Result<(), JournalError> {
        if !self.is_holding {
            return self.append(known, facts);
        }
        self.check_is_whole()?;
        self.database.hold(&facts, &known.replay.study);
        known.apply(facts);
        Ok(())
    }

    fn append(&mut self, known: &mut Known, facts: Vec<Fact<'_>>) -> Result<(), JournalError> {
        self.check_is_whole()?;
        let refused = self.database.write(&facts, &known.replay.study)?;
        known.apply(facts);
        self.take_in_refused(known, refused)
    }

    fn check_is_whole(&self) -> Result<(), JournalError> {
        let storage = || self.database.storage();
        if self.database.is_behind { Err(JournalError::Lost { storage: storage() }) } else { Ok(()) }
    }

    /// Holds back the facts that are recorded from now on, until the next trial begins.
    pub(super) fn hold(&mut self) {
        self.is_holding = true;
    }

    /// Writes the facts that were held back.
    pub(super) fn sync(&mut self, known: &mut Known) -> Result<(), JournalError> {
        self.append(known, Vec::new())
    }

    pub(super) fn release(&mut self, known: &mut Known) -> Result<(), JournalError> {
        self.is_holding = false;
        self.sync(known)
    }

    /// Adds a trial after those of others; none if the study has `most` trials by then.
    pub(super) fn create(
        &mut self,
        known: &mut Known,
        trial: NewTrial,
        most: Option<u64>,
    ) -> Result<Option<u64>, JournalError> {
        self.check_is_whole()?;
        let mut created = self.database.create(&trial, most)?;
        let news = std::mem::take(&mut created.news);
        self.take_in(known, news)?;
        let state = trial.state;
        if self.database.take_down_created(&created, state) {
            known.apply(vec![Fact::TrialCreated(trial)]);
        }
        self.take_in_refused(known, created.refused)?;
        Ok(created.number)
    }

    /// Begins a waiting trial, unless another program has begun it. Returns whether this search owns the trial.
    pub(super) fn begin(&mut self, known: &mut Known, number: u64, times: Times) -> Result<bool, JournalError> {
        self.sync(known)?;
        let is_ours = self.database.begin(number, times)?;
        self.take_in_refused(known, vec![number])?;
        Ok(is_ours)
    }

    /// Writes heartbeats, and reads the trials that another supervisor has taken over.
    pub(super) fn beat(&mut self, known: &mut Known) -> Result<(), JournalError> {
        let lost = self.database.beat()?;
        self.take_in_refused(known, lost)
    }

    /// The trials whose supervisors are dead.
    pub(super) fn dead(&mut self) -> Result<Vec<Dead>, JournalError> {
        self.database.dead()
    }

    /// Whether one of these trials has a heartbeat, of a supervisor that is alive or has died.
    pub(super) fn any_has_signs(&mut self, numbers: &[u64]) -> Result<bool, JournalError> {
        self.database.any_has_signs(numbers)
    }

    /// Makes a dead supervisor's trial this search's own. Returns whether it did.
    pub(super) fn take_over(&mut self, known: &mut Known, dead: &Dead) -> Result<bool, JournalError> {
        let is_ours = self.database.take_over(dead)?;
        self.take_in_refused(known, vec![dead.number])?;
        Ok(is_ours)
    }

    /// Sets the callback that runs while the database is awaited.
    pub(super) fn while_waiting(&self, look: Look) {
        self.database.while_waiting(look);
    }

    /// The database, for the publication to workers on other hosts.
    pub(super) fn database(&mut self) -> &mut Database {
        &mut self.database
    }

    /// Writes the facts that were held back, and removes the heartbeats.
    pub(super) fn leave(&mut self, known: &mut Known, leaves_trials: bool) -> Result<(), JournalError> {
        if self.database.is_behind {
            return Ok(());
        }
        self.database.hurry();
        self.release(known)?;
        self.database.leave(leaves_trials)
    }
}

/// Reads the study in the database that the folder names; none if the folder names no database.
pub(super) fn read(folder: &Path) -> Result<Option<Study>, JournalError> {
    let Some(database) = super::database::found(folder)? else { return Ok(None) };
    let mut known = Known { name: database.name().to_owned(), ..Known::default() };
    let mut store = InDatabase::new(database);
    let missing = || JournalError::Missing { folder: folder.to_owned() };
    if !store.read_study(&mut known)? {
        return Err(missing());
    }
    let study = known.replay.study;
    let spec = study.spec.ok_or_else(missing)?;
    Ok(Some(Study { spec, trials: study.trials, times: study.times, defaults: study.defaults }))
}
