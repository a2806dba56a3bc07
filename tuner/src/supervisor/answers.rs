//! The answers to a worker's requests. Whatever a request tells is in the journal before its answer goes out.

use super::outcome::{Answer, Outcome, answered, pruned_values};
use super::session::Session;
use super::{Search, SupervisorError, estimate};
use crate::record::{Ending, Parameter};
use crate::space::{Distribution, Value};
use crate::wire::{Assignment, Reply, Request, Verdict};
use std::collections::BTreeMap;
use std::time::Instant;

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
            Ok(Request::Suggest { name, distribution, default }) => self.suggest(session, name, distribution, default),
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
        let record = self.record_mut(session.number);
        match &outcome {
            Outcome::Interrupted => {}
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

    fn assignment(&self, session: &Session) -> Assignment {
        let record = self.record(session.number);
        Assignment {
            trial: session.number,
            folder: session.folder.clone(),
            device: self.spec.device.clone(),
            checkpoint: record.checkpoint.clone(),
            seed: trial_seed(self.spec.seed.unwrap_or_default(), session.number),
            reported: record.metrics.clone(),
            objectives: self.spec.objectives.clone(),
            objective: self.spec.objective().clone(),
        }
    }

    fn suggest(
        &mut self,
        session: &mut Session,
        name: String,
        distribution: Distribution,
        default: Option<Value>,
    ) -> Result<Reply, SupervisorError> {
        let number = session.number;
        let refused = |reason| Ok(Reply::Refused { reason });
        if let Err(error) = distribution.validate(&name) {
            return refused(error.to_string());
        }
        if let Some(default) = default.as_ref().filter(|default| !distribution.contains(default)) {
            return refused(format!("the default {default} of `{name}` is not {}", describe(&distribution)));
        }
        if let Some(known) = self.record(number).parameters.get(&name) {
            if known.distribution != distribution {
                let (now, before) = (describe(&distribution), describe(&known.distribution));
                return refused(format!(
                    "trial {number} asks for `{name}` as {now} after {before}; give every parameter one range"
                ));
            }
            return Ok(Reply::Value { value: known.value.clone() });
        }
        let others = self.trials.iter().filter_map(|trial| Some((trial.number, trial.parameters.get(&name)?)));
        let kind = std::mem::discriminant(&distribution);
        if let Some((other, known)) =
            others.into_iter().find(|(_, known)| std::mem::discriminant(&known.distribution) != kind)
        {
            let (now, before) = (describe(&distribution), describe(&known.distribution));
            return refused(format!(
                "`{name}` is {now} here and {before} in trial {other}; use another name, another --project or --overwrite"
            ));
        }
        let value = match default {
            Some(default) if number == 0 => default,
            _ => self.oracle.suggest(number, &name, &distribution, &self.trials),
        };
        let parameter = Parameter { distribution, value: value.clone() };
        self.journal.parameter(number, &name, &parameter)?;
        self.record_mut(number).parameters.insert(name, parameter);
        self.refuse_what_cannot_fit(session)?;
        Ok(Reply::Value { value })
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

/// A seed of the trial's own: one step of SplitMix64 (Steele et al. 2014) from the study's seed and the number.
fn trial_seed(study_seed: u64, number: u64) -> u64 {
    let mut state = study_seed.wrapping_add((number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    state ^ (state >> 31)
}

/// A distribution in a few words, for messages.
fn describe(distribution: &Distribution) -> String {
    let scale = |log: &bool| if *log { ", log" } else { "" };
    match distribution {
        Distribution::Int { low, high, step, log } => {
            let step = if *step == 1 { String::new() } else { format!(", step {step}") };
            format!("an int {low}..={high}{step}{}", scale(log))
        }
        Distribution::Float { low, high, step, log } => {
            let step = step.map_or_else(String::new, |step| format!(", step {step}"));
            format!("a float {low:?}..={high:?}{step}{}", scale(log))
        }
        Distribution::Choice { values } => {
            let values: Vec<String> = values.iter().map(Value::to_string).collect();
            format!("a choice of {}", values.join(", "))
        }
    }
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

    #[test]
    fn distributions_are_described_in_the_users_words() {
        let units = Distribution::Int { low: 32, high: 512, step: 32, log: false };
        assert_eq!(describe(&units), "an int 32..=512, step 32");
        let lr = Distribution::Float { low: 1e-4, high: 0.1, step: None, log: true };
        assert_eq!(describe(&lr), "a float 0.0001..=0.1, log");
        let choice = Distribution::Choice { values: vec![Value::Text("adam".into()), Value::Text("sgd".into())] };
        assert_eq!(describe(&choice), "a choice of adam, sgd");
    }
}
