//! The succession of trials when several searches share a study: this search takes over the trials of a search that is dead or
//! has released its trials. A trial continues from its checkpoint, if this host can read that checkpoint, or else from its
//! beginning. A trial of a dead search has failed if `--retries` allows no further retry.

use super::inheritance::adopt;
use super::{Search, SearchError};
use ferrotune_journal::folder;
use ferrotune_journal::study_folder::{self, file_error, refuse_links_of_trial};
use ferrotune_journal::{Dead, End, Usage};
use ferrotune_space::checkpoint::checkpoint_generation;

impl Search {
    /// Takes over the trials of searches whose heartbeats have stopped, or which have released their trials.
    pub(super) fn succeed_the_dead(&mut self) -> Result<(), SearchError> {
        for dead in self.journal.dead()? {
            if self.journal.take_over(&dead)? {
                self.succeed(dead)?;
            }
        }
        Ok(())
    }

    fn succeed(&mut self, dead: Dead) -> Result<(), SearchError> {
        let number = dead.number;
        let record = self.record(number);
        if let Some(ending) = &dead.ending {
            tracing::warn!(trial = number, %ending, "the trial of a dead supervisor is taken over");
            if record.retried.len() as u64 >= self.spec.supervision.retries {
                let end = End::without_value(ending.clone(), record);
                return Ok(self.journal.trial_ended(number, Usage::of(self.record(number)), end)?);
            }
        }
        if self.record(number).checkpoint.is_some() && !self.adopt_checkpoint(&dead)? {
            self.journal.checkpoint_removed(number)?;
        }
        let record = self.record(number);
        let retried = record.retried.iter().cloned().chain(dead.ending).collect();
        let is_paused = record.paused_at.is_some();
        let usage = Usage { retried, paused_at: record.paused_at, ..Usage::of(record) };
        self.journal.trial_paused(number, usage)?;
        // The oracle decides about a trial that waits for more epochs.
        if !is_paused && !self.queue.contains(&number) {
            self.queue.push_back(number);
        }
        Ok(())
    }

    /// Gives a trial the checkpoints that it had under its last search, if they are on this host. Returns whether they are.
    fn adopt_checkpoint(&self, dead: &Dead) -> Result<bool, SearchError> {
        let Some((study, file)) = &dead.checkpoint else { return Ok(false) };
        let source = study_folder::of_trial(study, dead.number);
        let Some(last) = checkpoint_generation(file).filter(|_| source.join(file).is_file()) else {
            return Ok(false);
        };
        let target = study_folder::of_trial(&self.folder, dead.number);
        refuse_links_of_trial(&source)?;
        let adopted = folder::create_and_sync(&target).and_then(|()| adopt(&source, &target, last));
        adopted.map_err(file_error("copy the dead supervisor's checkpoints to", &target))?;
        Ok(true)
    }
}
