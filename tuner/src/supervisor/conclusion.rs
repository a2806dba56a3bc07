//! Records the outcome of a worker that has exited, and decides whether that outcome ends the search.

use super::guard::Kill;
use super::session::{Ended, Session};
use super::{Supervisor, SupervisorError};
use crate::search::{Obstacle, Outcome};
use ferrotune_journal::{End, Usage};
use ferrotune_space::event::Event;
use ferrotune_space::record::Ending;
use std::time::Instant;

impl Supervisor<'_> {
    /// Records the outcome of a worker, while the workers of `sessions` keep running.
    pub(super) fn conclude(&mut self, ended: Ended, sessions: &[Session]) -> Result<(), SupervisorError> {
        let (number, retries) = (ended.trial.number, self.search.spec.supervision.retries);
        let record = self.search.record(number);
        let may_retry = (record.retried.len() as u64) < retries;
        let usage = Usage {
            seconds: record.seconds + ended.seconds,
            peak_bytes: record.peak_bytes.max(ended.peak_bytes),
            unended_workers: 0,
            memory: Some(ended.memory),
            ..Usage::of(record)
        };
        let has_result = ended.trial.outcome.is_some();
        match &ended.outcome {
            Outcome::Postponed(Obstacle::Unreadable { reason }) if may_retry => {
                return self.try_again(number, usage, Ending::Failed { reason: reason.clone() });
            }
            Outcome::Ended { ending: ending @ (Ending::Signalled { .. } | Ending::Failed { .. }), .. }
                if may_retry && !has_result =>
            {
                return self.try_again(number, usage, ending.clone());
            }
            Outcome::Ended { ending, values } if !has_result => {
                let end = End { values: values.clone(), ..End::without_value(ending.clone(), record) };
                self.search.journal.trial_ended(number, usage, end)?;
            }
            // The journal has had the outcome since the objective's result, but not the resources that the worker used.
            Outcome::Paused { .. } | Outcome::Executed | Outcome::Ended { .. } => {
                self.search.journal.trial_paused(number, usage)?;
            }
            Outcome::Interrupted | Outcome::Postponed(_) => {
                self.search.journal.trial_paused(number, Usage { paused_at: None, ..usage })?;
            }
        }
        self.search.put_back(number, &ended.outcome);
        self.announce(number, &ended.outcome);
        self.remove_losers()?;
        self.mirror_journal();
        self.send_progress(sessions);
        if let Some(Kill::Shortage { available_bytes }) = ended.killed {
            return Err(SupervisorError::MachineShort { available_bytes });
        }
        if let Outcome::Postponed(obstacle) = &ended.outcome {
            self.change_phase(|phase| phase.obstructed(obstacle.clone().of_trial(number), Instant::now()));
        }
        Ok(self.search.judge(&ended.trial, &ended.outcome)?)
    }

    /// Sends a trial's outcome to the watcher and the mirror.
    fn announce(&mut self, number: u64, outcome: &Outcome) {
        let record = self.search.record(number);
        match outcome {
            Outcome::Paused { .. } => {}
            Outcome::Executed => {
                if let Some(mirror) = &self.mirror {
                    // The next execution counts its checkpoints from the first again.
                    mirror.forget(number);
                }
                let execution = record.executions.len().saturating_sub(1) as u64;
                let values = record.executions.last().cloned().unwrap_or_default();
                self.watcher.send(&Event::Executed { trial: number, execution, values });
            }
            Outcome::Ended { .. } => self.announce_end(number),
            Outcome::Interrupted | Outcome::Postponed(_) => {
                let mut record = record.without_reports();
                // The journal leaves the trial open, so that it continues in the next search; the watcher receives a
                // cancelled trial.
                record.ending = Some(Ending::Cancelled);
                self.watcher.send(&Event::TrialEnded { record });
            }
        }
    }

    /// Sends the end of a trial, which the journal already has, to the watcher.
    pub(super) fn announce_end(&mut self, number: u64) {
        let record = self.search.record(number).without_reports();
        self.watcher.send(&Event::TrialEnded { record });
    }

    /// Continues a trial at once in another worker, after its last worker ended with `ending`.
    fn try_again(&mut self, number: u64, mut usage: Usage, ending: Ending) -> Result<(), SupervisorError> {
        usage.retried.push(ending);
        self.search.journal.trial_paused(number, Usage { paused_at: None, ..usage })?;
        self.search.queue.push_front(number);
        Ok(())
    }

    /// Makes the mirror copy the journal in its present state.
    pub(super) fn mirror_journal(&self) {
        if let Some(mirror) = &self.mirror {
            mirror.journal();
        }
    }
}
