//! The answers to a worker's requests. Whatever a request tells is in the journal before its answer goes out.

use super::ledger::{Ledger, Question};
use super::outcome::{Answer, Outcome};
use super::session::Session;
use super::{Search, SupervisorError, Workers, estimate};
use crate::event::Event;
use crate::record::Ending;
use crate::wire::{Reply, Request};
use std::collections::BTreeMap;
use std::time::Instant;

impl Search<'_> {
    pub(super) fn ledger(&mut self) -> Ledger<'_> {
        let (spec, journal, oracle, trials) = (&self.spec, &mut self.journal, &mut *self.oracle, &mut self.trials);
        Ledger { spec, journal, oracle, trials }
    }

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
            Ok(Request::Hello) => Ok(Reply::Assignment(self.ledger().assignment(number, &session.folder))),
            Ok(Request::Suggest { name, distribution, default, place }) => {
                self.suggest(session, Question { name, distribution, default, place })
            }
            Ok(Request::Epochs { total, resume_at }) => self.epochs(session, total, resume_at),
            Ok(Request::Report { step, metrics }) => self.report(session, step, metrics),
            Ok(Request::Checkpoint { step, file }) => {
                self.ledger().checkpoint(number, step, &file)?;
                if let Some(mirror) = &self.mirror {
                    mirror.checkpoint(number, &file);
                    mirror.journal();
                }
                Ok(Reply::Done)
            }
            Ok(Request::Finish { values }) => {
                let finite = values.into_iter().map(|value| value.filter(|value| value.is_finite()));
                self.settle_answer(session, Answer::Returned(finite.collect()))
            }
            Ok(Request::Postpone { reason }) => self.settle_answer(session, Answer::Postponed(reason)),
            Ok(Request::DiskFull { reason }) => {
                // Its last checkpoint and the journal stay valid: it goes on another time.
                session.outcome = Some(Outcome::Interrupted);
                self.obstacle.get_or_insert(SupervisorError::DiskFull { number, reason });
                Ok(Reply::Done)
            }
            Ok(Request::Fail { ending }) => self.settle_answer(session, Answer::Broke(ending)),
        }
    }

    /// Journals what the objective's last word means for its trial; what the worker has used by the time it is gone
    /// follows then.
    fn settle_answer(&mut self, session: &mut Session, answer: Answer) -> Result<Reply, SupervisorError> {
        session.returned = matches!(answer, Answer::Returned(_));
        session.outcome = Some(self.ledger().settle(session.number, answer, session.told)?);
        Ok(Reply::Done)
    }

    fn suggest(&mut self, session: &mut Session, question: Question) -> Result<Reply, SupervisorError> {
        let is_new = !self.record(session.number).parameters.contains_key(&question.name);
        match self.ledger().suggest(session.number, question)? {
            Ok(value) => {
                if is_new {
                    self.refuse_what_cannot_fit(session)?;
                }
                Ok(Reply::Value { value })
            }
            Err(reason) => Ok(Reply::Refused { reason }),
        }
    }

    /// Ends a trial before it trains, where trials like it ran out of memory.
    fn refuse_what_cannot_fit(&mut self, session: &mut Session) -> Result<(), SupervisorError> {
        let budget_bytes = self.budget.trial_bytes;
        let record = self.record(session.number);
        let Some(estimate_bytes) = estimate::refusal(record, &self.trials, budget_bytes) else { return Ok(()) };
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
        Ok(match self.ledger().epochs(session.number, total)? {
            Ok(stop) => {
                session.told.epochs = Some((stop, total));
                Reply::Epochs { start: resume_at.min(stop), stop }
            }
            Err(reason) => Reply::Refused { reason },
        })
    }

    fn report(
        &mut self,
        session: &mut Session,
        step: u64,
        metrics: BTreeMap<String, Option<f64>>,
    ) -> Result<Reply, SupervisorError> {
        let trial = session.number;
        if let Err(reason) = self.ledger().report(trial, session.told, step, &metrics)? {
            return Ok(Reply::Refused { reason });
        }
        // A program has callbacks for it; a notebook shows the last steps alone, and may be slow to listen.
        if matches!(self.workers, Workers::Itself) {
            self.watcher.send(&Event::Reported { trial, step, metrics });
        }
        self.longest_step = self.longest_step.max(session.last_step.elapsed());
        session.last_step = Instant::now();
        let told = &mut session.told;
        told.to_stop |= self.stop.is_some();
        told.to_prune |= !told.to_stop && self.oracle.prunes(trial, &self.trials);
        Ok(Reply::Verdict { verdict: told.verdict() })
    }
}
