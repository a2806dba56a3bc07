//! The supervisor's own part in a worker's requests, in addition to the search's answer: it informs the mirror and the
//! watcher, and ends a trial that cannot fit into memory.

use super::guard::Kill;
use super::resident::parting;
use super::session::Session;
use super::{Program, Supervisor, SupervisorError, estimate};
use crate::search::Outcome;
use ferrotune_journal::{End, Usage};
use ferrotune_space::event::Event;
use ferrotune_space::record::Ending;
use ferrotune_space::wire::{Reply, Request};
use std::time::Instant;

impl Supervisor<'_> {
    /// Answers the requests that the worker has sent.
    pub(super) fn answer_requests(&mut self, session: &mut Session) -> Result<(), SupervisorError> {
        while let Some(request) = session.worker.next_request() {
            let reply = match (request, &session.killed) {
                (Err(reason), _) => Reply::Refused { reason },
                (Ok(request), None) => self.answer(session, &request)?,
                // A trial that stops with the search continues later from its last checkpoint.
                (Ok(request @ Request::Checkpoint { .. }), Some(Kill::Stop)) => self.answer(session, &request)?,
                // A request after the kill is not the objective's own decision.
                (Ok(request), Some(_)) => parting(&request),
            };
            session.worker.reply(&reply)?;
        }
        Ok(())
    }

    fn answer(&mut self, session: &mut Session, request: &Request) -> Result<Reply, SupervisorError> {
        let trial = session.trial.number;
        let parameters = self.search.record(trial).parameters.len();
        let reply = self.search.answer(&mut session.trial, request, self.phase.is_stopping())?;
        match (request, &reply) {
            (Request::Suggest { .. }, Reply::Value { .. })
                if self.search.record(trial).parameters.len() > parameters =>
            {
                if let Some(reason) = self.refuse_what_cannot_fit(session)? {
                    return Ok(Reply::Refused { reason });
                }
            }
            (Request::Device { device }, Reply::Done) => {
                if session.device.is_none() {
                    session.worker.keep_processes();
                }
                session.device = Some(device.clone());
            }
            (Request::Report { step, metrics }, Reply::Verdict { .. }) => {
                // Only a program has callbacks for reports. A notebook shows only the last steps, and may read slowly.
                if matches!(self.workers.program, Program::Itself) {
                    self.watcher.send(&Event::Reported { trial, step: *step, metrics: metrics.clone() });
                }
                self.longest_step = self.longest_step.max(session.last_step.elapsed());
                session.last_step = Instant::now();
            }
            (Request::Checkpoint { file, .. }, Reply::Done) => {
                if let Some(mirror) = &self.mirror {
                    mirror.checkpoint(trial, file);
                    mirror.journal();
                }
            }
            _ => {}
        }
        Ok(reply)
    }

    /// Ends a trial before it trains, if similar trials ran out of memory. Returns the reason.
    fn refuse_what_cannot_fit(&mut self, session: &mut Session) -> Result<Option<String>, SupervisorError> {
        let (number, budget_bytes) = (session.trial.number, self.budget.trial_bytes);
        let record = self.search.record(number);
        let Some(estimate_bytes) = estimate::refusal(record, self.search.trials(), budget_bytes) else {
            return Ok(None);
        };
        let ending = Ending::Refused { estimate_bytes, budget_bytes, device: None };
        let reason = ending.to_string();
        let (usage, end) = (Usage::of(record), End::without_value(ending.clone(), record));
        self.search.journal.trial_ended(number, usage, end)?;
        session.trial.outcome = Some(Outcome::Ended { ending, values: Vec::new() });
        session.let_return(&self.search.spec.supervision);
        Ok(Some(reason))
    }
}
