//! One worker's life: started, answered, watched against its limits, and taken leave of.

use super::error::file_error;
use super::events::Current;
use super::outcome::{self, Outcome};
use super::{GRACE, Search, SupervisorError};
use crate::folder;
use crate::process::{Launch, Shortage, Worker};
use crate::record::Ending;
use crate::wire::{Event, Finish};
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How often a running worker's memory is looked at.
const TICK: Duration = Duration::from_millis(10);
/// The machine's memory is looked at once in so many ticks: it costs more to read, and more is left of it.
const MACHINE_TICKS: u64 = 4;

/// What the supervisor keeps about the worker that runs.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) number: u64,
    pub(super) folder: PathBuf,
    /// The epoch, exclusive, up to which it may train, and the epochs of a whole training.
    pub(super) epochs: Option<(u64, u64)>,
    /// What the objective's own word has come to; in the journal, unless the trial is to go on another time.
    pub(super) outcome: Option<Outcome>,
    /// Whether that word was that it returned.
    pub(super) returned: bool,
    pub(super) told_to_stop: bool,
    /// Whether the oracle has given up on the trial.
    pub(super) told_to_prune: bool,
    killed: Option<Ending>,
    peak_bytes: u64,
    ticks: u64,
    /// When it will have run too long, and what limit that is.
    deadline: Option<(Instant, u64)>,
}

/// What one worker came to.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) outcome: Outcome,
    /// Whether the journal has that outcome.
    pub(super) is_journaled: bool,
    pub(super) seconds: f64,
    pub(super) peak_bytes: u64,
    /// Whether the objective has come so far that a metric it never reported is missing, rather than still to come.
    pub(super) reports_were_due: bool,
}

impl Search<'_> {
    /// Runs one worker of a trial to its end, and journals what it tells.
    pub(super) fn run_worker(&mut self, number: u64) -> Result<Ended, SupervisorError> {
        let folder = self.folder.join("trials").join(number.to_string());
        folder::create_and_sync(&folder).map_err(file_error("create", &folder))?;
        if self.record(number).paused_at.is_some() {
            // The record keeps the epoch, from which the oracle tells how far the trial may train now.
            self.journal.trial_continued(number)?;
        }
        let mut worker = Worker::start(&Launch {
            program: self.program,
            library: &self.library,
            symbol: &self.spec.symbol,
            study: &self.spec.project,
            number,
            folder: &folder,
            shared: self.shared.as_ref().map(|file| file.as_fd()),
        })?;
        self.watcher.send(&Event::TrialStarted { trial: number, pid: worker.pid() });
        let mut session = self.session(number, folder);
        loop {
            let wake = worker.wait(&self.signals, TICK)?;
            while let Some(request) = worker.next_request() {
                let reply = self.answer(&mut session, request)?;
                worker.reply(&reply)?;
            }
            if wake.exited {
                break;
            }
            self.interrupts += wake.signals;
            self.watch(&mut session, &worker)?;
        }
        let seconds = worker.elapsed().as_secs_f64();
        let exit = worker.end()?;
        let Session { outcome, returned, killed, peak_bytes, .. } = session;
        let reports_were_due = returned || outcome.is_some() && !self.record(number).metrics.is_empty();
        let is_journaled = outcome.is_some();
        // The objective's own word counts first.
        let outcome = outcome.unwrap_or_else(|| outcome::unanswered(killed, exit));
        Ok(Ended { outcome, is_journaled, seconds, peak_bytes, reports_were_due })
    }

    fn session(&self, number: u64, folder: PathBuf) -> Session {
        let deadline = self.spec.trial_timeout_s.map(|limit| {
            let left = (limit - self.record(number).seconds).max(0.0);
            // A limit beyond what the clock can hold is none that anyone will see.
            let left = Duration::try_from_secs_f64(left).unwrap_or(Duration::from_secs(u32::MAX.into()));
            (Instant::now() + left, limit.ceil() as u64)
        });
        Session {
            number,
            folder,
            epochs: None,
            outcome: None,
            returned: false,
            told_to_stop: false,
            told_to_prune: false,
            killed: None,
            peak_bytes: 0,
            ticks: 0,
            deadline,
        }
    }

    /// Looks at what the worker holds and how long it has run, and kills it where that is too much.
    fn watch(&mut self, session: &mut Session, worker: &Worker) -> Result<(), SupervisorError> {
        self.look_for_a_stop()?;
        let memory_bytes = worker.memory_bytes();
        session.peak_bytes = session.peak_bytes.max(memory_bytes);
        session.ticks += 1;
        if session.killed.is_none() {
            session.killed = self.reason_to_kill(session, memory_bytes)?;
            if session.killed.is_some() {
                worker.kill();
            }
        }
        self.tick_progress(Current { trial: session.number, elapsed: worker.elapsed(), memory_bytes });
        Ok(())
    }

    fn reason_to_kill(&mut self, session: &Session, memory_bytes: u64) -> Result<Option<Ending>, SupervisorError> {
        let is_due = session.ticks.is_multiple_of(MACHINE_TICKS);
        let machine_bytes = if is_due { self.budget.machine_shortage()? } else { None };
        match self.budget.shortage(memory_bytes, machine_bytes) {
            Some(Shortage::OfTrial) => {
                let budget_bytes = self.budget.trial_bytes;
                return Ok(Some(Ending::OutOfMemory { peak_bytes: memory_bytes, budget_bytes }));
            }
            // The trial goes on another time, and so does the search.
            Some(Shortage::Elsewhere { available_bytes }) => {
                self.shortage_bytes = Some(available_bytes);
                return Ok(Some(Ending::Cancelled));
            }
            None => {}
        }
        if let Some((deadline, after_s)) = session.deadline
            && Instant::now() >= deadline
        {
            return Ok(Some(Ending::TimedOut { after_s }));
        }
        let out_of_grace = self.stopped_at.is_some_and(|stopped_at| stopped_at.elapsed() >= GRACE);
        let at_once = self.interrupts > 1 || self.watcher.is_gone();
        let stopped = match self.stop {
            None => false,
            Some(Finish::Timeout) => out_of_grace || self.interrupts > 0,
            Some(_) => out_of_grace || at_once,
        };
        Ok(stopped.then_some(Ending::Cancelled))
    }
}
