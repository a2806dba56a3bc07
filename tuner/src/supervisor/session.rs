//! One worker's life: started, answered, watched against its limits, and taken leave of.

use super::code::Code;
use super::error::file_error;
use super::ledger::Told;
use super::outcome::{self, Outcome};
use super::{GRACE, Search, SupervisorError, Workers};
use crate::event::{Event, Finish};
use crate::folder;
use crate::process::{Entry, Exit, Launch, MOST_TASKS, Machine, Shortage, Worker};
use crate::record::{Ending, MemoryCheck};
use ferrotune_machine::process_tree::Held;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Its number on every Linux.
const SIGKILL: i32 = 9;
/// The machine's memory is looked at once in so many ticks: it costs more to read, and more is left of it.
const MACHINE_TICKS: u64 = 4;

/// A trial that runs: its worker, and what the supervisor keeps about it.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) number: u64,
    pub(super) worker: Worker,
    pub(super) folder: PathBuf,
    pub(super) told: Told,
    /// What the objective's own word has come to; in the journal, unless the trial is to go on another time.
    pub(super) outcome: Option<Outcome>,
    /// Whether that word was that it returned.
    pub(super) returned: bool,
    /// When it last came to the end of a step, or began.
    pub(super) last_step: Instant,
    /// Epochs that it had been through, where it had waited for more.
    continued_from: Option<u64>,
    killed: Option<Ending>,
    /// The machine before it began.
    machine: Machine,
    pub(super) held: Held,
    peak_bytes: u64,
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
    pub(super) memory: MemoryCheck,
    /// Epochs that the trial had been through, where it had waited for more.
    pub(super) continued_from: Option<u64>,
    /// Whether the objective broke after it had come so far that a metric it never reported is missing, rather than
    /// still to come.
    pub(super) reports_were_due: bool,
}

impl Search<'_> {
    /// Starts a worker for a trial.
    pub(super) fn begin(&mut self, number: u64) -> Result<Session, SupervisorError> {
        let folder = self.folder.join("trials").join(number.to_string());
        folder::create_and_sync(&folder).map_err(file_error("create", &folder))?;
        let study = self.folder.clone();
        let inherited = self.ledger().provide_checkpoints(number, &study)?;
        if let (Some(mirror), Some(file)) = (&self.mirror, inherited) {
            mirror.checkpoint(number, &file);
        }
        let record = self.record_mut(number);
        let continued_from = record.paused_at.map(|_| record.epochs_done());
        record.unended_workers += 1;
        let unended = record.unended_workers;
        // The record keeps `paused_at`, from which the oracle tells how far the trial may train now.
        self.journal.worker_started(number, unended)?;
        // What a device has left says something about a trial only where that runs alone.
        let runs_alone = self.spec.supervision.concurrency <= 1;
        let machine = Machine::now(Some(self.spec.device.as_str()).filter(|_| runs_alone))?;
        let limit_bytes = self.allocation_limit_bytes()?;
        let study = self.spec.directory.join(&self.spec.project);
        let worker = Worker::start(&Launch {
            entry: self.entry(&study),
            study: &self.spec.project,
            number,
            folder: &folder,
            shared: self.files.shared.as_ref().map(|file| file.as_fd()),
            threads: self.threads,
            niceness: self.niceness,
            // Device libraries reserve far more than they use.
            allocation_limit_bytes: Some(limit_bytes).filter(|_| self.spec.device.starts_with("cpu")),
            cgroups: self.cgroups.as_ref().map(|cgroups| (cgroups, limit_bytes)),
        })?;
        let execution = self.record(number).executions.len() as u64;
        self.watcher.send(&Event::TrialStarted { trial: number, execution, pid: worker.pid() });
        let now = Instant::now();
        let deadline = self.spec.trial_timeout_s.map(|limit| {
            let left = (limit - self.record(number).seconds).max(0.0);
            // A limit beyond what the clock can hold is none that anyone will see.
            let left = Duration::try_from_secs_f64(left).unwrap_or(Duration::from_secs(u32::MAX.into()));
            (now + left, limit.ceil() as u64)
        });
        Ok(Session {
            number,
            worker,
            folder,
            told: Told::default(),
            outcome: None,
            returned: false,
            last_step: now,
            continued_from,
            killed: None,
            machine,
            held: Held::default(),
            peak_bytes: 0,
            deadline,
        })
    }

    fn entry<'a>(&'a self, study: &'a Path) -> Entry<'a> {
        match (self.workers, &self.code) {
            (Workers::Program { program, .. }, Some(Code { objective, linked, .. })) => {
                Entry::Library { program, library: objective, linked, symbol: &self.spec.symbol }
            }
            _ => Entry::Main { study },
        }
    }

    /// What the system itself lets a trial have: the net under the watch.
    fn allocation_limit_bytes(&self) -> Result<u64, SupervisorError> {
        let data_bytes = self.files.shared.as_ref().map_or(Ok(0), |file| file.metadata().map(|file| file.len()));
        let data_bytes = data_bytes.map_err(file_error("look at the shared data in", &self.folder))?;
        Ok(self.budget.allocation_limit_bytes(self.threads, data_bytes))
    }

    /// Answers what the worker has asked.
    pub(super) fn hear(&mut self, session: &mut Session) -> Result<(), SupervisorError> {
        while let Some(request) = session.worker.next_request() {
            // A word that comes after the kill is none of the objective's own will.
            if session.killed.is_none() {
                let reply = self.answer(session, request)?;
                session.worker.reply(&reply)?;
            }
        }
        Ok(())
    }

    /// Takes leave of a worker that has left, while those with the process ids `living` run on.
    pub(super) fn end(&mut self, session: Session, living: &[u32]) -> Result<Ended, SupervisorError> {
        let Session { worker, number, outcome, returned, killed, peak_bytes, continued_from, machine, .. } = session;
        let seconds = worker.elapsed().as_secs_f64();
        let (mut exit, left) = worker.end(living, &mut self.shared_memory)?;
        if exit == Exit::Signal(SIGKILL) && killed.is_none() && machine.has_killed() {
            // The system was faster.
            exit = Exit::Starved(0);
        }
        let reports_were_due = !returned && outcome.is_some() && !self.record(number).metrics.is_empty();
        let is_journaled = outcome.is_some();
        // The objective's own word counts first.
        let outcome =
            outcome.unwrap_or_else(|| outcome::unanswered(killed, exit, (peak_bytes, self.budget.trial_bytes)));
        let memory = machine.check(left, living.is_empty())?;
        Ok(Ended { outcome, is_journaled, seconds, peak_bytes, memory, continued_from, reports_were_due })
    }

    /// Looks at what the workers hold and how long they have run, and kills those for which that is too much.
    pub(super) fn watch(&mut self, sessions: &mut [Session]) -> Result<(), SupervisorError> {
        self.look_for_a_stop()?;
        for session in sessions.iter_mut() {
            session.held = session.worker.held();
            session.peak_bytes = session.peak_bytes.max(session.held.memory_bytes);
        }
        self.ticks += 1;
        let machine_bytes =
            if self.ticks.is_multiple_of(MACHINE_TICKS) { self.budget.machine_shortage()? } else { None };
        // Where the machine is short, the one that holds most has to go, and no other.
        let largest = sessions.iter().max_by_key(|session| session.held.memory_bytes).map(|session| session.number);
        for session in sessions.iter_mut().filter(|session| session.killed.is_none()) {
            let machine_bytes = machine_bytes.filter(|_| largest == Some(session.number));
            session.killed = self.reason_to_kill(session, machine_bytes);
            if session.killed.is_some() {
                session.worker.kill();
            }
        }
        self.tick_progress(sessions);
        Ok(())
    }

    fn reason_to_kill(&mut self, session: &Session, machine_bytes: Option<u64>) -> Option<Ending> {
        match self.budget.shortage(session.held.memory_bytes, machine_bytes) {
            Some(Shortage::OfTrial) => {
                let (peak_bytes, budget_bytes) = (session.held.memory_bytes, self.budget.trial_bytes);
                return Some(Ending::OutOfMemory { peak_bytes, budget_bytes });
            }
            // The trial goes on another time, and so does the search.
            Some(Shortage::Elsewhere { available_bytes }) => {
                self.shortage_bytes = Some(available_bytes);
                return Some(Ending::Cancelled);
            }
            None => {}
        }
        if session.held.tasks > MOST_TASKS {
            let tasks = session.held.tasks;
            let reason = format!("it ran {tasks} threads and processes at once; a trial may have {MOST_TASKS}");
            return Some(Ending::Failed { reason });
        }
        if let Some((deadline, after_s)) = session.deadline
            && Instant::now() >= deadline
        {
            return Some(Ending::TimedOut { after_s });
        }
        self.is_out_of_grace(session).then_some(Ending::Cancelled)
    }

    /// Whether the search is being stopped and the trial has had its time to come to the end of its step.
    fn is_out_of_grace(&self, session: &Session) -> bool {
        let (Some(stop), Some(stopped_at)) = (&self.stop, self.stopped_at) else { return false };
        // A step that takes minutes is worth waiting for: it ends with a checkpoint. So long, and as much again.
        let grace = GRACE.max((2 * self.longest_step).saturating_sub(stopped_at.duration_since(session.last_step)));
        let at_once = match stop {
            Finish::Timeout => self.interrupts > 0,
            _ => self.interrupts > 1 || self.watcher.is_gone() && !self.spec.supervision.background,
        };
        at_once || stopped_at.elapsed() >= grace
    }
}
