//! A study in a database: facts become rows of Optuna's tables, and the rows that others change become facts. A recorded
//! fact is in the database before the call that records it returns, unless facts are held back.

use super::database::{Database, Dead, Head, Look, TrialRows};
use super::decode::study_attribute_fact;
use super::fact::{Fact, NewTrial, Refusal};
use super::format;
use super::replay::Known;
use super::state::Times;
use super::storage::Storage;
use super::{JournalError, Study, content};
use ferrotune_space::record::Runner;
use std::borrow::Cow;
use std::fs::File;
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
        let new_rows = self.database.new_rows()?;
        self.apply_rows(known, new_rows)?;
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
    fn apply_rows(&mut self, known: &mut Known, rows: Vec<TrialRows>) -> Result<(), JournalError> {
        known.has_news |= !rows.is_empty();
        let me = self.database.supervisor().to_owned();
        for rows in rows {
            self.database.remember_rows(&rows)?;
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
    fn read_again(&mut self, known: &mut Known, mut refused: Vec<u64>) -> Result<(), JournalError> {
        refused.dedup();
        let rows = self.database.rows_of(&refused)?;
        self.apply_rows(known, rows)
    }

    fn append(&mut self, known: &mut Known, facts: Vec<Fact<'_>>) -> Result<(), JournalError> {
        self.check_is_whole()?;
        let refused = self.database.write(&facts, &known.replay.study)?;
        known.apply(facts);
        self.read_again(known, refused)
    }

    fn check_is_whole(&self) -> Result<(), JournalError> {
        let storage = || self.database.storage();
        if self.database.is_behind { Err(JournalError::Lost { storage: storage() }) } else { Ok(()) }
    }
}

impl Storage for InDatabase {
    fn begin_study(
        &mut self,
        known: &mut Known,
        due: &dyn Fn(&Known) -> Vec<Fact<'static>>,
    ) -> Result<(), JournalError> {
        let facts = due(known);
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

    fn read_others(&mut self, known: &mut Known) -> Result<(), JournalError> {
        let rows = self.database.poll()?;
        self.apply_rows(known, rows)
    }

    fn record(&mut self, known: &mut Known, facts: Vec<Fact<'_>>) -> Result<(), JournalError> {
        if !self.is_holding {
            return self.append(known, facts);
        }
        self.check_is_whole()?;
        self.database.hold(&facts, &known.replay.study);
        known.apply(facts);
        Ok(())
    }

    fn hold(&mut self) {
        self.is_holding = true;
    }

    fn release(&mut self, known: &mut Known) -> Result<(), JournalError> {
        self.is_holding = false;
        self.sync(known)
    }

    fn sync(&mut self, known: &mut Known) -> Result<(), JournalError> {
        self.append(known, Vec::new())
    }

    fn create(&mut self, known: &mut Known, trial: NewTrial, most: Option<u64>) -> Result<Option<u64>, JournalError> {
        self.check_is_whole()?;
        let mut created = self.database.create(&trial, most)?;
        let new_rows = std::mem::take(&mut created.new_rows);
        self.apply_rows(known, new_rows)?;
        let state = trial.state;
        if self.database.remember_created(&created, state) {
            known.apply(vec![Fact::TrialCreated(trial)]);
        }
        self.read_again(known, created.refused)?;
        Ok(created.number)
    }

    fn begin(&mut self, known: &mut Known, number: u64, times: Times) -> Result<bool, JournalError> {
        self.sync(known)?;
        let is_ours = self.database.begin(number, times)?;
        self.read_again(known, vec![number])?;
        Ok(is_ours)
    }

    fn while_waiting(&self, look: Look) {
        self.database.while_waiting(look);
    }

    fn beat(&mut self, known: &mut Known) -> Result<(), JournalError> {
        let lost = self.database.beat()?;
        self.read_again(known, lost)
    }

    fn dead(&mut self) -> Result<Vec<Dead>, JournalError> {
        self.database.dead()
    }

    fn any_has_signs(&mut self, numbers: &[u64]) -> Result<bool, JournalError> {
        self.database.any_has_signs(numbers)
    }

    fn take_over(&mut self, known: &mut Known, dead: &Dead) -> Result<bool, JournalError> {
        let is_ours = self.database.take_over(dead)?;
        self.read_again(known, vec![dead.number])?;
        Ok(is_ours)
    }

    fn leave(&mut self, known: &mut Known, leaves_trials: bool) -> Result<(), JournalError> {
        if self.database.is_behind {
            return Ok(());
        }
        self.database.hurry();
        self.release(known)?;
        self.database.leave(leaves_trials)
    }

    fn publish(&mut self, text: &str, files: &[(&str, &File, u64)]) -> Result<(), JournalError> {
        content::publish(&mut self.database, text, files)
    }
}

/// Reads the study in the database that the folder names; none if the folder names no database.
pub(super) fn read(folder: &Path) -> Result<Option<Study>, JournalError> {
    super::database::found(folder)?.map(|database| study(database, folder)).transpose()
}

/// Reads a study in a database. `folder` is the study's place for messages.
pub(super) fn study(database: Database, folder: &Path) -> Result<Study, JournalError> {
    let mut known = Known { name: database.name().to_owned(), ..Known::default() };
    let mut store = InDatabase::new(database);
    let missing = || JournalError::Missing { folder: folder.to_owned() };
    if !store.read_study(&mut known)? {
        return Err(missing());
    }
    let study = known.replay.study;
    let spec = study.spec.ok_or_else(missing)?;
    Ok(Study { spec, trials: study.trials, times: study.times, defaults: study.defaults })
}
