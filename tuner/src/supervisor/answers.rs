//! The answers to a worker's requests. Whatever a request tells is in the journal before its answer goes out.

use super::outcome::{Answer, Outcome, answered, pruned_values};
use super::session::Session;
use super::{Search, SupervisorError, estimate};
use crate::record::{Ending, Parameter, mean};
use crate::space::{Distribution, Value};
use crate::wire::{Assignment, Reply, Request, Verdict};
use std::collections::BTreeMap;
use std::time::Instant;

/// A parameter as an objective asks for it.
struct Question {
    name: String,
    distribution: Distribution,
    default: Option<Value>,
    place: String,
}

impl Search<'_> {
    /// Answers one line of the worker; `Err` tells why it is no request.
    pub(super) fn answer(
        &mut self,
        session: &mut Session,
        request: Result<Request, String>,
    ) -> Result<Reply, SupervisorError> {
        let number = session.number;
        if session.outcome.is_some() {
            return Ok(Reply::Refused { reason: format!("the objective of trial {number} has returned already") });
        }
        match request {
            Err(reason) => Ok(Reply::Refused { reason }),
            Ok(Request::Hello) => Ok(Reply::Assignment(self.assignment(session))),
            Ok(Request::Suggest { name, distribution, default, place }) => {
                let question = Question { name, distribution, default, place };
                match self.suggest(number, question)? {
                    Ok(value) => {
                        self.refuse_what_cannot_fit(session)?;
                        Ok(Reply::Value { value })
                    }
                    Err(reason) => Ok(Reply::Refused { reason }),
                }
            }
            Ok(Request::Epochs { total, resume_at }) => self.epochs(session, total, resume_at),
            Ok(Request::Report { step, metrics }) => self.report(session, step, metrics),
            Ok(Request::Checkpoint { step, file }) => {
                self.journal.checkpoint(number, step, &file)?;
                if let Some(mirror) = &self.mirror {
                    mirror.checkpoint(number, &file);
                    mirror.journal();
                }
                let record = self.record_mut(number);
                (record.checkpoint, record.unended_workers) = (Some(file), record.unended_workers.min(1));
                Ok(Reply::Done)
            }
            Ok(Request::Finish { values }) => {
                let finite = values.into_iter().map(|value| value.filter(|value| value.is_finite()));
                self.settle_answer(session, Answer::Returned(finite.collect()))
            }
            Ok(Request::Fail { ending }) => {
                let ending = match ending {
                    Ending::Failed { .. } | Ending::Panicked { .. } => ending,
                    other => Ending::Failed { reason: format!("the worker called itself '{other}'") },
                };
                self.settle_answer(session, Answer::Broke(ending))
            }
        }
    }

    /// Journals what the objective's last word means for its trial; what the worker has used by the time it is gone
    /// follows then.
    fn settle_answer(&mut self, session: &mut Session, answer: Answer) -> Result<Reply, SupervisorError> {
        session.returned = matches!(answer, Answer::Returned(_));
        let record = self.record(session.number);
        let outcome = match session.told_to_prune {
            true => Outcome::Ended { ending: Ending::Pruned, values: pruned_values(record, &self.spec) },
            false => answered(answer, session.told_to_stop, session.epochs, record, &self.spec),
        };
        let outcome = self.count_execution(session.number, outcome);
        let record = self.record_mut(session.number);
        match &outcome {
            Outcome::Interrupted => {}
            Outcome::Executed => {
                let record = record.clone();
                self.journal.executed(&record)?;
            }
            Outcome::Paused { at } => {
                record.paused_at = Some(*at);
                let record = record.clone();
                self.journal.trial_paused(&record)?;
            }
            Outcome::Ended { ending, values } => {
                (record.ending, record.values) = (Some(ending.clone()), values.clone());
                let record = record.clone();
                self.journal.trial_ended(&record)?;
            }
        }
        session.outcome = Some(outcome);
        Ok(Reply::Done)
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

    fn assignment(&self, session: &Session) -> Assignment {
        let record = self.record(session.number);
        let execution = record.executions.len() as u64;
        Assignment {
            trial: session.number,
            folder: session.folder.clone(),
            device: self.spec.device.clone(),
            checkpoint: record.checkpoint.clone(),
            seed: execution_seed(self.spec.seed.unwrap_or_default(), session.number, execution),
            execution,
            reported: record.metrics.clone(),
            objectives: self.spec.objectives.clone(),
            objective: self.spec.objective().clone(),
        }
    }

    /// The value of a parameter, or why it cannot have one.
    fn suggest(&mut self, number: u64, question: Question) -> Result<Result<Value, String>, SupervisorError> {
        if let Some(reason) = self.objection(number, &question) {
            let Question { place, .. } = question;
            return Ok(Err(if place.is_empty() { reason } else { format!("{place}: {reason}") }));
        }
        let Question { name, distribution, default, place } = question;
        if let Some(known) = self.record(number).parameters.get(&name) {
            return Ok(Ok(known.value.clone()));
        }
        let preset = &self.record(number).preset;
        let value = match self.spec.given.value(preset, &name, &distribution, default.as_ref()) {
            Err(reason) => return Ok(Err(reason)),
            Ok(Some(given)) => given,
            Ok(None) => match default {
                Some(default) if number == 0 => default,
                _ => self.oracle.suggest(number, &name, &distribution, &self.trials),
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
        let place = self.journal.place_of(name).map_or_else(String::new, |place| format!(" at {place}"));
        if let Some(known) = self.record(number).parameters.get(name) {
            let before = &known.distribution;
            return (before != distribution).then(|| {
                format!(
                    "trial {number} asks for `{name}` as {distribution} after {before}{place}; give every parameter one range"
                )
            });
        }
        // Bounds may change from trial to trial: a search that is taken up again may look further than it did.
        let kind = std::mem::discriminant(distribution);
        let mut others = self.trials.iter().filter_map(|trial| Some((trial.number, trial.parameters.get(name)?)));
        let (other, known) = others.find(|(_, known)| std::mem::discriminant(&known.distribution) != kind)?;
        let before = &known.distribution;
        Some(format!(
            "`{name}` is {distribution} here and {before} in trial {other}{place}; use another name, another --project or --overwrite"
        ))
    }

    /// Ends a trial before it trains, where its parameters need more memory than there is, as far as is known.
    fn refuse_what_cannot_fit(&mut self, session: &mut Session) -> Result<(), SupervisorError> {
        let budget_bytes = self.budget.trial_bytes;
        let record = self.record(session.number);
        let Some(estimate_bytes) =
            estimate::least_bytes(&record.parameters, &self.trials).filter(|bytes| *bytes > budget_bytes)
        else {
            return Ok(());
        };
        let ending = Ending::Refused { estimate_bytes, budget_bytes };
        let record = self.record_mut(session.number);
        record.ending = Some(ending.clone());
        let record = record.clone();
        self.journal.trial_ended(&record)?;
        session.outcome = Some(Outcome::Ended { ending, values: Vec::new() });
        session.worker.kill();
        Ok(())
    }

    fn epochs(&mut self, session: &mut Session, total: u64, resume_at: u64) -> Result<Reply, SupervisorError> {
        let number = session.number;
        let known = self.record(number).epochs;
        if total == 0 {
            return Ok(Reply::Refused { reason: "trial.epochs(0) trains nothing; give at least 1".to_owned() });
        }
        if let Some(known) = known.filter(|known| *known != total) {
            return Ok(Reply::Refused {
                reason: format!(
                    "trial {number} asks for {total} epochs after {known}; a whole training has one length; use another --project or --overwrite if you have changed it"
                ),
            });
        }
        if known.is_none() {
            self.journal.epochs(number, total)?;
            self.record_mut(number).epochs = Some(total);
        }
        let stop = self.oracle.epochs(number, total, &self.trials).clamp(1, total);
        session.epochs = Some((stop, total));
        Ok(Reply::Epochs { start: resume_at.min(stop), stop })
    }

    fn report(
        &mut self,
        session: &mut Session,
        step: u64,
        metrics: BTreeMap<String, Option<f64>>,
    ) -> Result<Reply, SupervisorError> {
        if let Some((stop, _)) = session.epochs.filter(|(stop, _)| step >= *stop && self.oracle.pauses()) {
            return Ok(Reply::Refused {
                reason: format!(
                    "steps are epochs counted from 0: report({step}) but this trial's epochs end at {}",
                    stop - 1
                ),
            });
        }
        self.journal.report(session.number, step, &metrics)?;
        self.record_mut(session.number).metrics.entry(step).or_default().extend(metrics);
        self.longest_step = self.longest_step.max(session.last_step.elapsed());
        session.last_step = Instant::now();
        session.told_to_stop |= self.stop.is_some();
        session.told_to_prune |= !session.told_to_stop && self.oracle.prunes(session.number, &self.trials);
        let verdict = match (session.told_to_stop, session.told_to_prune) {
            (true, _) => Verdict::Stop,
            (false, true) => Verdict::Prune,
            (false, false) => Verdict::Continue,
        };
        Ok(Reply::Verdict { verdict })
    }
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
        assert_eq!(trial_seed(7, 3), trial_seed(7, 3));
    }
}
