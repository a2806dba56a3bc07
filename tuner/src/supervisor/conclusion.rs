//! What is written down when a worker has left, and when that ends the search.

use super::outcome::{self, Outcome};
use super::session::{Ended, Session};
use super::{Search, SupervisorError};
use crate::event::Event;
use crate::record::Ending;

/// A trial that begins and does not end so often, without a checkpoint, is what ends its supervisor.
const MOST_UNENDED_WORKERS: u64 = 5;

impl Search<'_> {
    /// Writes down what came of a worker.
    pub(super) fn conclude(&mut self, number: u64, ended: &Ended, sessions: &[Session]) -> Result<(), SupervisorError> {
        let retries = self.spec.supervision.retries;
        let record = self.record_mut(number);
        record.seconds += ended.seconds;
        record.peak_bytes = record.peak_bytes.max(ended.peak_bytes);
        record.unended_workers = 0;
        record.memory = Some(ended.memory.clone());
        match &ended.outcome {
            Outcome::Paused { at } => {
                record.paused_at = Some(*at);
                let record = record.clone();
                self.journal.trial_paused(&record)?;
            }
            Outcome::Executed => {
                let record = record.clone();
                self.journal.trial_paused(&record)?;
                self.unfinished.push_front(number);
                if let Some(mirror) = &self.mirror {
                    // The next one counts its checkpoints from the first again.
                    mirror.forget(number);
                }
                let execution = record.executions.len().saturating_sub(1) as u64;
                let values = record.executions.last().cloned().unwrap_or_default();
                self.watcher.send(&Event::Executed { trial: number, execution, values });
            }
            // Its end is in the journal since the objective told it; what its worker used is not.
            Outcome::Ended { .. } if ended.is_journaled => {
                let record = record.without_reports();
                self.journal.trial_paused(&record)?;
                self.watcher.send(&Event::TrialEnded { record });
            }
            Outcome::Postponed { reason } if (record.retried.len() as u64) < retries => {
                let ending = Ending::Failed { reason: reason.clone() };
                return self.try_again(number, ending);
            }
            Outcome::Interrupted | Outcome::Postponed { .. } => {
                record.paused_at = None;
                let mut record = record.without_reports();
                self.journal.trial_paused(&record)?;
                // The journal leaves the trial open, so that it goes on next time; the watcher hears how it ended now.
                record.ending = Some(Ending::Cancelled);
                self.watcher.send(&Event::TrialEnded { record });
            }
            Outcome::Ended { ending: ending @ (Ending::Signalled { .. } | Ending::Failed { .. }), .. }
                if (record.retried.len() as u64) < retries =>
            {
                let ending = ending.clone();
                return self.try_again(number, ending);
            }
            Outcome::Ended { ending, values } => {
                record.ending = Some(ending.clone());
                record.values.clone_from(values);
                self.settle(number)?;
            }
        }
        self.remove_losers()?;
        self.mirror_journal();
        self.send_progress(sessions);
        if let Some(available_bytes) = self.shortage_bytes {
            return Err(SupervisorError::MachineShort { available_bytes });
        }
        if let Outcome::Postponed { reason } = &ended.outcome {
            self.obstacle.get_or_insert(SupervisorError::Postponed { number, reason: reason.clone() });
        }
        let record = self.record(number);
        // The oracle had it go on, and it came back as it went.
        if let Some(before) = ended.continued_from
            && record.ending.is_none()
            && self.stop.is_none()
            && record.epochs_done() <= before
        {
            return Err(SupervisorError::Stuck { number, epochs: before });
        }
        let record = &self.trials[number as usize];
        self.failures.judge(&self.spec, record, &ended.outcome, ended.reports_were_due)
    }

    /// Lets a trial go on at once, in another worker, after this end of its last one.
    fn try_again(&mut self, number: u64, ending: Ending) -> Result<(), SupervisorError> {
        let record = self.record_mut(number);
        record.retried.push(ending);
        record.paused_at = None;
        let record = record.clone();
        self.journal.trial_paused(&record)?;
        self.unfinished.push_front(number);
        Ok(())
    }

    pub(super) fn prune(&mut self, number: u64) -> Result<(), SupervisorError> {
        let values = outcome::pruned_values(self.record(number), &self.spec);
        let record = self.record_mut(number);
        (record.ending, record.values) = (Some(Ending::Pruned), values);
        self.settle(number)
    }

    /// Has the mirror take the journal as it is now.
    pub(super) fn mirror_journal(&self) {
        if let Some(mirror) = &self.mirror {
            mirror.journal();
        }
    }

    fn settle(&mut self, number: u64) -> Result<(), SupervisorError> {
        let record = self.record(number).clone();
        self.journal.trial_ended(&record)?;
        self.watcher.send(&Event::TrialEnded { record: record.without_reports() });
        Ok(())
    }

    /// Ends a trial that has brought down its supervisor, or the machine, again and again; says whether it did.
    pub(super) fn give_up(&mut self, number: u64) -> Result<bool, SupervisorError> {
        let unended = self.record(number).unended_workers;
        if unended < MOST_UNENDED_WORKERS {
            return Ok(false);
        }
        let reason = format!("its supervisor or the machine went down {unended} times in a row while it ran");
        self.record_mut(number).ending = Some(Ending::Failed { reason });
        self.settle(number)?;
        Ok(true)
    }
}
