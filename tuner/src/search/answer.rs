//! The answers to a trial's requests, whether the trial runs in a worker or in this process.

use super::outcome::{Answer, Obstacle, Outcome, answered, ended_early};
use super::{Search, SearchError};
use ferrotune_journal::study_folder;
use ferrotune_journal::{End, JournalError, Usage};
use ferrotune_oracle::EarlyEnd;
use ferrotune_space::record::{Ending, mean};
use ferrotune_space::seed::derived;
use ferrotune_space::wire::{Assignment, Reply, Request, Verdict};
use std::collections::BTreeMap;

/// A running trial.
#[derive(Debug)]
pub(crate) struct RunningTrial {
    pub(crate) number: u64,
    pub(crate) instructions: Instructions,
    /// The outcome of the objective's own result, once the objective has given one.
    pub(crate) outcome: Option<Outcome>,
    /// Whether the objective has returned.
    pub(crate) has_returned: bool,
    /// The number of epochs that the trial had trained, if it waited for more.
    pub(crate) continued_from: Option<u64>,
    /// The checkpoint of another trial with which this trial begins.
    pub(crate) inherited: Option<String>,
    /// The seconds that the trial has run and that no other record will contain.
    pub(crate) unrecorded_s: f64,
}

/// The instructions that a running trial has received.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Instructions {
    pub(crate) to_stop: bool,
    /// The early end that the trial must make now, if any.
    pub(crate) early_end: Option<EarlyEnd>,
    /// The epoch, exclusive, up to which the trial may train, and the number of epochs of a whole training.
    pub(crate) epochs: Option<(u64, u64)>,
}

impl Instructions {
    fn verdict(self) -> Verdict {
        match (self.to_stop, self.early_end) {
            (true, _) => Verdict::Stop,
            (false, Some(_)) => Verdict::Prune,
            (false, None) => Verdict::Continue,
        }
    }
}

impl Search {
    /// Prepares the folder of a trial that begins or continues now.
    pub(crate) fn begin(&mut self, number: u64) -> Result<RunningTrial, SearchError> {
        let inherited = self.provide_checkpoints(number)?;
        let record = self.record(number);
        Ok(RunningTrial {
            number,
            instructions: Instructions::default(),
            outcome: None,
            has_returned: false,
            // A trial that was interrupted after its pause has reports beyond the pause, and is not stuck if it adds none.
            continued_from: record.paused_at.filter(|at| record.epochs_done() == *at),
            inherited,
            unrecorded_s: 0.0,
        })
    }

    /// Answers a request of a trial. `is_stopping` says whether the trial stops at its next report.
    pub(crate) fn answer(
        &mut self,
        trial: &mut RunningTrial,
        request: &Request,
        is_stopping: bool,
    ) -> Result<Reply, SearchError> {
        let number = trial.number;
        if trial.outcome.is_some() {
            return Ok(refused(format!("the objective of trial {number} has returned already")));
        }
        match request {
            Request::Hello => Ok(Reply::Assignment(self.assignment(number))),
            Request::Suggest { name, distribution, default, place } => {
                self.suggest(number, name, distribution, default.as_ref(), place)
            }
            Request::Device { device } => {
                self.journal.device(number, device)?;
                Ok(Reply::Done)
            }
            Request::Epochs { total, resume_at } => self.epochs(trial, *total, *resume_at),
            Request::Report { step, metrics } => self.report(trial, *step, metrics, is_stopping),
            Request::Checkpoint { step, file } => {
                self.journal.checkpoint(number, *step, file)?;
                Ok(Reply::Done)
            }
            Request::UserAttribute { name, value } => match self.journal.user_attribute(number, name, value) {
                Err(error @ JournalError::UserAttribute { .. }) => Ok(refused(error.to_string())),
                written => Ok(written.map(|()| Reply::Done)?),
            },
            Request::StopSearch => {
                self.is_stopped = true;
                Ok(Reply::Done)
            }
            Request::Finish { values } => self.end(trial, Answer::Returned(values.clone())),
            Request::Postpone { reason } => {
                self.end(trial, Answer::Postponed(Obstacle::Unreadable { reason: reason.clone() }))
            }
            Request::DiskFull { reason } => {
                self.end(trial, Answer::Postponed(Obstacle::DiskFull { reason: reason.clone() }))
            }
            Request::Fail { ending } => self.end(trial, Answer::broke(ending.clone())),
        }
    }

    /// The facts that the objective of a trial needs before it begins.
    fn assignment(&self, number: u64) -> Assignment {
        let record = self.record(number);
        let execution = record.executions.len() as u64;
        Assignment {
            trial: number,
            folder: study_folder::of_trial(&self.folder, number),
            device: self.spec.device.clone(),
            checkpoint: record.checkpoint.clone(),
            seed: execution_seed(self.spec.seed.unwrap_or_default(), number, execution),
            execution,
            profile: self.spec.supervision.profile,
            debug_nans: self.spec.supervision.debug_nans,
            items: self.spec.supervision.items.clone(),
            reported: record.metrics.clone(),
            objectives: self.spec.objectives.clone(),
            objective: self.spec.objective().clone(),
        }
    }

    /// Answers up to which epoch, of `total`, a trial may train.
    fn epochs(&mut self, trial: &mut RunningTrial, total: u64, resume_at: u64) -> Result<Reply, SearchError> {
        let number = trial.number;
        if total == 0 {
            return Ok(refused("trial.epochs(0) trains nothing; give at least 1".to_owned()));
        }
        match self.record(number).epochs {
            Some(known) if known != total => {
                return Ok(refused(format!(
                    "trial {number} asks for {total} epochs after {known}; a whole training has one length; use another --project or --overwrite if you have changed it"
                )));
            }
            Some(_) => {}
            None => self.journal.epochs(number, total)?,
        }
        let stop = self.oracle.epochs(number, total, self.journal.trials()).clamp(1, total);
        trial.instructions.epochs = Some((stop, total));
        Ok(Reply::Epochs { start: resume_at.min(stop), stop })
    }

    /// Records a step's metrics, and decides whether the trial continues.
    fn report(
        &mut self,
        trial: &mut RunningTrial,
        step: u64,
        metrics: &BTreeMap<String, Option<f64>>,
        is_stopping: bool,
    ) -> Result<Reply, SearchError> {
        let (number, instructions) = (trial.number, &mut trial.instructions);
        if let Some((stop, _)) = instructions.epochs.filter(|(stop, _)| step >= *stop && self.oracle.pauses()) {
            let last = stop - 1;
            return Ok(refused(format!(
                "steps are epochs counted from 0: report({step}) but this trial's epochs end at {last}"
            )));
        }
        self.journal.report(number, step, metrics)?;
        let record = &self.journal.trials()[number as usize];
        // Another search may have declared this search dead, or another program may have ended the trial.
        instructions.to_stop |= is_stopping || record.runs_elsewhere();
        if !instructions.to_stop && instructions.early_end.is_none() {
            instructions.early_end = match record.ending {
                Some(_) => Some(EarlyEnd::Pruned),
                None => self.oracle.ends(number, self.journal.trials()),
            };
        }
        Ok(Reply::Verdict { verdict: instructions.verdict() })
    }

    /// Records the outcome of the objective's result for its trial.
    fn end(&mut self, trial: &mut RunningTrial, answer: Answer) -> Result<Reply, SearchError> {
        trial.has_returned = matches!(answer, Answer::Returned(_));
        trial.outcome = Some(self.record_result(trial, answer)?);
        Ok(Reply::Done)
    }

    fn record_result(&mut self, trial: &RunningTrial, answer: Answer) -> Result<Outcome, SearchError> {
        let number = trial.number;
        let record = self.record(number);
        if let Some(ending) = &record.ending {
            // Another program has ended the trial, and the first end is final.
            return Ok(Outcome::Ended { ending: ending.clone(), values: record.values.clone() });
        }
        if record.runs_elsewhere() {
            return Ok(Outcome::Interrupted);
        }
        let usage = Usage { seconds: record.seconds + trial.unrecorded_s, ..Usage::of(record) };
        let mut executions = record.executions.clone();
        let outcome = match (answer, trial.instructions) {
            (Answer::Postponed(obstacle @ Obstacle::DiskFull { .. }), _) => Outcome::Postponed(obstacle),
            (answer, Instructions { early_end: Some(end), .. }) => ended_early(end, answer, record, &self.spec),
            (answer, reply) => answered(answer, reply.to_stop, reply.epochs, record, &self.spec),
        };
        let outcome = match outcome {
            Outcome::Ended { ending: Ending::Finished, values }
                if self.spec.executions > 1 || !executions.is_empty() =>
            {
                executions.push(values);
                if (executions.len() as u64) < self.spec.executions {
                    Outcome::Executed
                } else {
                    Outcome::Ended { ending: Ending::Finished, values: mean(&executions) }
                }
            }
            outcome => outcome,
        };
        match &outcome {
            Outcome::Interrupted | Outcome::Postponed(_) => {}
            Outcome::Executed => self.journal.executed(number, executions.pop().unwrap_or_default())?,
            Outcome::Paused { at } => self.journal.trial_paused(number, Usage { paused_at: Some(*at), ..usage })?,
            Outcome::Ended { ending, values } => {
                let end = End { ending: ending.clone(), values: values.clone(), executions };
                self.journal.trial_ended(number, usage, end)?;
            }
        }
        Ok(outcome)
    }
}

/// A reply that refuses a request, with the reason.
pub(super) fn refused(reason: String) -> Reply {
    Reply::Refused { reason }
}

/// The seed of an execution; the first execution has the trial's seed.
fn execution_seed(study_seed: u64, number: u64, execution: u64) -> u64 {
    let seed = derived(study_seed, number);
    execution.checked_sub(1).map_or(seed, |later| derived(seed, later))
}
