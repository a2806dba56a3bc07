//! What trials ask and tell, wherever they run: the oracle's answers, and the facts that are in the journal before the
//! answer goes out. Knows no processes and no time.

use super::SupervisorError;
use super::outcome::{Answer, Outcome, answered, pruned_values};
use crate::given::Values;
use crate::journal::Journal;
use crate::oracle::Oracle;
use crate::record::{Ending, Parameter, Runner, TrialRecord, mean};
use crate::space::{Distribution, Value};
use crate::spec::StudySpec;
use crate::wire::{Assignment, Verdict};
use std::collections::{BTreeMap, VecDeque};
use std::path::Path;

/// A search's records, and what they are made and kept with.
pub(super) struct Ledger<'a> {
    pub(super) spec: &'a StudySpec,
    pub(super) journal: &'a mut Journal,
    pub(super) oracle: &'a mut dyn Oracle,
    pub(super) trials: &'a mut Vec<TrialRecord>,
}

/// A parameter as an objective asks for it.
pub(super) struct Question {
    pub(super) name: String,
    pub(super) distribution: Distribution,
    pub(super) default: Option<Value>,
    /// Where in its source it does.
    pub(super) place: String,
}

/// What a trial has been told by the time it gives its last word.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Told {
    pub(super) to_stop: bool,
    pub(super) to_prune: bool,
    /// The epoch, exclusive, up to which it may train, and the epochs of a whole training.
    pub(super) epochs: Option<(u64, u64)>,
}

impl Told {
    /// Whether the trial goes on.
    pub(super) fn verdict(self) -> Verdict {
        match (self.to_stop, self.to_prune) {
            (true, _) => Verdict::Stop,
            (false, true) => Verdict::Prune,
            (false, false) => Verdict::Continue,
        }
    }
}

impl Ledger<'_> {
    /// What the objective of a trial needs to know before it begins.
    pub(super) fn assignment(&self, number: u64, folder: &Path) -> Assignment {
        let record = self.record(number);
        let execution = record.executions.len() as u64;
        Assignment {
            trial: number,
            folder: folder.to_path_buf(),
            device: self.spec.device.clone(),
            checkpoint: record.checkpoint.clone(),
            seed: execution_seed(self.spec.seed.unwrap_or_default(), number, execution),
            execution,
            reported: record.metrics.clone(),
            objectives: self.spec.objectives.clone(),
            objective: self.spec.objective().clone(),
        }
    }

    /// The value of a parameter, or why it cannot have one.
    pub(super) fn suggest(
        &mut self,
        number: u64,
        question: Question,
    ) -> Result<Result<Value, String>, SupervisorError> {
        if let Some(reason) = self.objection(number, &question) {
            let place = question.place;
            return Ok(Err(if place.is_empty() { reason } else { format!("{place}: {reason}") }));
        }
        let Question { name, distribution, default, place } = question;
        let default = default.and_then(|default| distribution.clamp_to_lattice(&default));
        if let Some(known) = self.record(number).parameters.get(&name) {
            return Ok(Ok(known.value.clone()));
        }
        if let Some(default) = &default {
            self.journal.defaults_to(&name, default)?;
        }
        let preset = &self.record(number).preset;
        let value = match self.spec.given.value(preset, &name, &distribution, default.as_ref()) {
            Err(reason) => return Ok(Err(reason)),
            Ok(Some(given)) => given,
            Ok(None) => match default {
                Some(default) if number == 0 => default,
                _ => self.oracle.suggest(number, &name, &distribution, self.trials),
            },
        };
        let parameter = Parameter { distribution, value: value.clone() };
        self.journal.asked_at(&name, &place)?;
        self.journal.parameter(number, &name, &parameter)?;
        self.record_mut(number).parameters.insert(name, parameter);
        Ok(Ok(value))
    }

    /// What is wrong with a question: by itself, or beside those of its trial and of the others.
    fn objection(&self, number: u64, question: &Question) -> Option<String> {
        let Question { name, distribution, default, .. } = question;
        if let Err(error) = distribution.validate(name) {
            return Some(error.to_string());
        }
        if let Some(default) = default.as_ref().filter(|default| !distribution.contains(default)) {
            return Some(format!("the default {default} of `{name}` is not {distribution}"));
        }
        let place = || self.journal.place_of(name).map_or_else(String::new, |place| format!(" at {place}"));
        if let Some(known) = self.record(number).parameters.get(name) {
            let before = &known.distribution;
            return (!before.is_alike(distribution)).then(|| {
                let place = place();
                format!(
                    "trial {number} asks for `{name}` as {distribution} after {before}{place}; give every parameter one range"
                )
            });
        }
        // Bounds may change from trial to trial: a search that is taken up again may look further than it did.
        let mut others = self.trials.iter().filter_map(|trial| Some((trial.number, trial.parameters.get(name)?)));
        let (other, known) = others.next()?;
        let before = &known.distribution;
        (std::mem::discriminant(before) != std::mem::discriminant(distribution)).then(|| {
            let place = place();
            format!(
                "`{name}` is {distribution} here and {before} in trial {other}{place}; use another name, another --project or --overwrite"
            )
        })
    }

    /// The epoch, exclusive, up to which a trial may train, of `total`; or why there is none.
    pub(super) fn epochs(&mut self, number: u64, total: u64) -> Result<Result<u64, String>, SupervisorError> {
        if total == 0 {
            return Ok(Err("trial.epochs(0) trains nothing; give at least 1".to_owned()));
        }
        match self.record(number).epochs {
            Some(known) if known != total => {
                return Ok(Err(format!(
                    "trial {number} asks for {total} epochs after {known}; a whole training has one length; use another --project or --overwrite if you have changed it"
                )));
            }
            Some(_) => {}
            None => {
                self.journal.epochs(number, total)?;
                self.record_mut(number).epochs = Some(total);
            }
        }
        Ok(Ok(self.oracle.epochs(number, total, self.trials).clamp(1, total)))
    }

    /// Takes a step's metrics down, or says why they cannot be those of a step.
    pub(super) fn report(
        &mut self,
        number: u64,
        told: Told,
        step: u64,
        metrics: &BTreeMap<String, Option<f64>>,
    ) -> Result<Result<(), String>, SupervisorError> {
        if let Some((stop, _)) = told.epochs.filter(|(stop, _)| step >= *stop && self.oracle.pauses()) {
            let last = stop - 1;
            return Ok(Err(format!(
                "steps are epochs counted from 0: report({step}) but this trial's epochs end at {last}"
            )));
        }
        self.journal.report(number, step, metrics)?;
        let known = self.record_mut(number).metrics.entry(step).or_default();
        known.extend(metrics.iter().map(|(name, value)| (name.clone(), *value)));
        Ok(Ok(()))
    }

    /// A checkpoint of a trial is on disk.
    pub(super) fn checkpoint(&mut self, number: u64, step: u64, file: &str) -> Result<(), SupervisorError> {
        self.journal.checkpoint(number, step, file)?;
        let record = self.record_mut(number);
        (record.checkpoint, record.unended_workers) = (Some(file.to_owned()), record.unended_workers.min(1));
        Ok(())
    }

    /// Takes down what an objective's last word means for its trial.
    pub(super) fn settle(&mut self, number: u64, answer: Answer, told: Told) -> Result<Outcome, SupervisorError> {
        let answer = match answer {
            Answer::Broke(ending) if !matches!(ending, Ending::Failed { .. } | Ending::Panicked { .. }) => {
                Answer::Broke(Ending::Failed { reason: format!("the worker called itself '{ending}'") })
            }
            answer => answer,
        };
        let record = self.record(number);
        if let Some(ending) = &record.ending {
            // Another program has ended it, and the first end counts.
            return Ok(Outcome::Ended { ending: ending.clone(), values: record.values.clone() });
        }
        let outcome = match told.to_prune {
            true => Outcome::Ended { ending: Ending::Pruned, values: pruned_values(record, self.spec) },
            false => answered(answer, told.to_stop, told.epochs, record, self.spec),
        };
        let outcome = self.count_execution(number, outcome);
        match &outcome {
            Outcome::Interrupted | Outcome::Postponed { .. } => {}
            Outcome::Executed => {
                let record = self.record(number).clone();
                self.journal.executed(&record)?;
            }
            Outcome::Paused { at } => {
                self.record_mut(number).paused_at = Some(*at);
                let record = self.record(number).clone();
                self.journal.trial_paused(&record)?;
            }
            Outcome::Ended { ending, values } => {
                let record = self.record_mut(number);
                (record.ending, record.values) = (Some(ending.clone()), values.clone());
                let record = record.clone();
                self.journal.trial_ended(&record)?;
            }
        }
        Ok(outcome)
    }

    /// What an execution's end means for its trial: another one follows, or their means are the trial's values.
    fn count_execution(&mut self, number: u64, outcome: Outcome) -> Outcome {
        let wanted = self.spec.executions;
        let record = self.record_mut(number);
        match outcome {
            Outcome::Ended { ending: Ending::Finished, values } if wanted > 1 || !record.executions.is_empty() => {
                record.executions.push(values);
                if record.executions.len() as u64 >= wanted {
                    return Outcome::Ended { ending: Ending::Finished, values: mean(&record.executions) };
                }
                // The next one begins afresh.
                record.metrics.clear();
                record.checkpoint = None;
                Outcome::Executed
            }
            outcome => outcome,
        }
    }

    /// Puts trials with these values at the head of the search, but for those that the study has had already; gives
    /// their numbers.
    pub(super) fn enqueue(&mut self, enqueued: &[Values]) -> Result<Vec<u64>, SupervisorError> {
        let mut numbers = Vec::new();
        for preset in enqueued {
            if self.trials.iter().any(|trial| trial.preset == *preset) {
                continue;
            }
            numbers.push(self.journal.enqueue_trial(preset, self.trials)?);
        }
        Ok(numbers)
    }

    /// Takes in what other programs have written, and puts the trials that they have enqueued at the end of `queue`; says
    /// whether there was anything.
    pub(super) fn hear_others(&mut self, queue: &mut VecDeque<u64>) -> Result<bool, SupervisorError> {
        let is_news = self.journal.read_on(self.trials)?;
        if is_news {
            let enqueued = self.trials.iter().filter(|trial| trial.is_enqueued()).map(|trial| trial.number);
            let new: Vec<u64> = enqueued.filter(|number| !queue.contains(number)).collect();
            queue.extend(new);
        }
        Ok(is_news)
    }

    /// Takes a trial from the queue, unless another program has begun or ended it meanwhile; says whether it may run.
    pub(super) fn take_up(&mut self, number: u64) -> Result<bool, SupervisorError> {
        let record = self.record(number);
        Ok(match record.runner {
            Runner::Search => record.ending.is_none(),
            Runner::Nobody => self.journal.begin_enqueued_trial(number, self.trials)?,
            Runner::Other => false,
        })
    }

    pub(super) fn record(&self, number: u64) -> &TrialRecord {
        &self.trials[number as usize]
    }

    pub(super) fn record_mut(&mut self, number: u64) -> &mut TrialRecord {
        &mut self.trials[number as usize]
    }
}

/// The trials that an earlier search has left in the middle, or that wait to begin, by number.
pub(super) fn unfinished(trials: &[TrialRecord]) -> VecDeque<u64> {
    let unfinished = trials.iter().filter(|trial| trial.ending.is_none() && trial.paused_at.is_none());
    unfinished.filter(|trial| trial.runner != Runner::Other).map(|trial| trial.number).collect()
}

/// A seed of an execution's own; that of the first is the trial's.
fn execution_seed(study_seed: u64, number: u64, execution: u64) -> u64 {
    let seed = trial_seed(study_seed, number);
    execution.checked_sub(1).map_or(seed, |later| trial_seed(seed, later))
}

/// A seed of the trial's own: one step of SplitMix64 (Steele et al. 2014) from the study's seed and the number.
fn trial_seed(study_seed: u64, number: u64) -> u64 {
    let mut state = study_seed.wrapping_add((number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    state ^ (state >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trials_of_one_study_have_seeds_of_their_own() {
        let seeds: std::collections::HashSet<u64> = (0..1000).map(|number| trial_seed(7, number)).collect();
        assert_eq!(seeds.len(), 1000);
        // The published first outputs: https://rosettacode.org/wiki/Pseudo-random_numbers/Splitmix64
        assert_eq!([0, 1].map(|number| trial_seed(1_234_567, number)), [6457827717110365317, 3203168211198807973]);
    }
}
