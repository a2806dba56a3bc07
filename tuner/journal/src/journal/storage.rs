//! The storage of a study's facts, as the journal uses it. It has two implementations: a file of the study's folder
//! (`in_file`) and a database (`in_database`). Other programs may write to either.

use super::JournalError;
use super::database::{Dead, Look};
use super::fact::{Fact, NewTrial};
use super::replay::Known;
use super::state::Times;
use std::fmt::Debug;
use std::fs::File;

/// A storage of facts. Each operation first applies the facts of other programs that it comes upon to what the search
/// knows of the study, and then the search's own.
pub(super) trait Storage: Debug + Send {
    /// Writes the first facts of a search. A storage may apply the facts of other programs before it asks which are due.
    fn begin_study(
        &mut self,
        known: &mut Known,
        due: &dyn Fn(&Known) -> Vec<Fact<'static>>,
    ) -> Result<(), JournalError>;

    /// Reads and applies the facts of other programs.
    fn read_others(&mut self, known: &mut Known) -> Result<(), JournalError>;

    /// Writes these facts, unless facts are held back, and then applies them to the records.
    fn record(&mut self, known: &mut Known, facts: Vec<Fact<'_>>) -> Result<(), JournalError>;

    /// Holds back the facts that are recorded from now on, until the next trial begins.
    fn hold(&mut self);

    /// Writes the facts that were held back to disk, and stops holding back.
    fn release(&mut self, known: &mut Known) -> Result<(), JournalError>;

    /// Writes all recorded facts to disk.
    fn sync(&mut self, known: &mut Known) -> Result<(), JournalError>;

    /// Adds a trial after those of other programs, and returns its number; none if other searches have made the study's
    /// trials as many as `most`.
    fn create(&mut self, known: &mut Known, trial: NewTrial, most: Option<u64>) -> Result<Option<u64>, JournalError>;

    /// Begins a waiting trial, unless another program has begun it. Returns whether this search owns the trial.
    fn begin(&mut self, known: &mut Known, number: u64, times: Times) -> Result<bool, JournalError>;

    /// Sets a callback that runs while the storage does not answer. A storage that always answers at once never calls it.
    fn while_waiting(&self, _look: Look) {}

    /// Writes this search's heartbeat. The storage of one search at a time needs none.
    fn beat(&mut self, _known: &mut Known) -> Result<(), JournalError> {
        Ok(())
    }

    /// The trials of searches that are dead or have released their trials. The storage of one search at a time has none.
    fn dead(&mut self) -> Result<Vec<Dead>, JournalError> {
        Ok(Vec::new())
    }

    /// Whether another search runs one of these trials, or has died while it ran the trial.
    fn any_has_signs(&mut self, _numbers: &[u64]) -> Result<bool, JournalError> {
        Ok(false)
    }

    /// Makes a dead search's trial this search's own. Returns whether it did.
    fn take_over(&mut self, _known: &mut Known, _dead: &Dead) -> Result<bool, JournalError> {
        Ok(false)
    }

    /// Takes leave of the other searches, which may continue this search's open trials at once if it `leaves_trials`. The
    /// storage of one search at a time writes nothing here, not even facts that are held back.
    fn leave(&mut self, _known: &mut Known, _leaves_trials: bool) -> Result<(), JournalError> {
        Ok(())
    }

    /// Publishes a text for workers on other hosts, and the files that it names with their hashes and lengths. Only a
    /// storage that such workers reach can.
    fn publish(&mut self, _text: &str, _files: &[(&str, &File, u64)]) -> Result<(), JournalError> {
        Err(JournalError::NotShared)
    }
}
