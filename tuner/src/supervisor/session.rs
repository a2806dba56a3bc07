//! One trial's life in its worker: begun, watched against its limits, and taken leave of.

use super::code::Code;
use super::conclusion::without_result;
use super::guard::{Limits, Ward};
use super::resident::{Tenure, grace};
use super::{Program, Supervisor, SupervisorError, TICK};
use crate::process::{Entry, Exit, Launch, Machine, Worker};
use crate::search::{Outcome, RunningTrial};
use ferrotune_journal::folder;
use ferrotune_journal::study_folder::{self, file_error};
use ferrotune_machine::process_tree::Held;
use ferrotune_space::event::Event;
use ferrotune_space::record::{DeviceUse, Ending, MemoryCheck};
use std::os::fd::AsFd as _;
use std::path::Path;
use std::time::{Duration, Instant};

/// Its number on every Linux.
const SIGKILL: i32 = 9;
const SIGTERM: i32 = 15;
/// How much later than a trial the supervisor may get a signal that was sent to both.
const SIGNAL_DELAY: Duration = Duration::from_millis(200);
/// The machine's memory is read once in this many ticks: it costs more to read than a trial's, and more of it is left.
const MACHINE_TICKS: u64 = 4;

/// A trial that runs in a worker, and what the supervisor keeps about it.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) trial: RunningTrial,
    pub(super) worker: Worker,
    /// When it last came to the end of a step, or began.
    pub(super) last_step: Instant,
    pub(super) killed: Option<Kill>,
    /// When a worker that was asked to leave is killed.
    pub(super) kill_at: Option<Instant>,
    /// Of a worker that stays.
    pub(super) tenure: Option<Tenure>,
    /// The device, once the worker has told.
    pub(super) device: Option<DeviceUse>,
    /// The machine before it began.
    machine: Machine,
    pub(super) held: Held,
    peak_bytes: u64,
    limits: Limits,
}

impl Session {
    /// Whether its trial runs no more: its worker has left, or stays without it.
    pub(super) fn is_over(&self) -> bool {
        self.worker.has_exited() || self.worker.has_returned()
    }
}

/// Why the supervisor ends a worker.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Kill {
    /// The trial is beyond a limit, and ends so.
    Trial(Ending),
    /// The search stops.
    Stop,
    /// Something other than a trial takes the machine's memory. The trial goes on another time, and so does the search.
    Shortage {
        /// What the machine has left, in bytes.
        available_bytes: u64,
    },
}

/// What one worker came to.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) trial: RunningTrial,
    pub(super) outcome: Outcome,
    pub(super) killed: Option<Kill>,
    pub(super) seconds: f64,
    pub(super) peak_bytes: u64,
    pub(super) memory: MemoryCheck,
}

impl Supervisor<'_> {
    /// Gives a trial to the worker that has stayed, or starts one for it.
    pub(super) fn begin(&mut self, number: u64) -> Result<Session, SupervisorError> {
        let folder = study_folder::of_trial(&self.search.folder, number);
        folder::create_and_sync(&folder).map_err(file_error("create", &folder))?;
        let trial = self.search.begin(number)?;
        if let (Some(mirror), Some(file)) = (&self.mirror, &trial.inherited) {
            mirror.checkpoint(number, file);
        }
        self.search.journal.worker_started(number)?;
        let spec = &self.search.spec;
        // What a device has left says something about a trial only where that runs alone.
        let runs_alone = spec.supervision.concurrency <= 1;
        let machine = Machine::now(Some(spec.device.as_str()).filter(|_| runs_alone))?;
        let (worker, tenure) = match self.residence.as_mut().and_then(|residence| residence.idle.take()) {
            Some((mut worker, tenure)) => {
                worker.assign(&folder)?;
                (worker, Some(tenure))
            }
            None => (self.start_worker(number, &folder)?, self.residence.as_ref().map(|_| Tenure::default())),
        };
        let record = self.search.record(number);
        let execution = record.executions.len() as u64;
        self.watcher.send(&Event::TrialStarted { trial: number, execution, pid: worker.pid() });
        let now = Instant::now();
        let deadline = self.search.spec.trial_timeout_s.map(|limit| {
            let left = (limit - record.seconds).max(0.0);
            // A limit beyond what the clock can hold is none that anyone will see.
            let longest = Duration::from_secs(u32::MAX.into());
            let left = Duration::try_from_secs_f64(left).map_or(longest, |left| left.min(longest));
            (now + left, limit.ceil() as u64)
        });
        let grace = tenure.is_some().then(|| grace(&self.search.spec.supervision));
        self.guard.lock().add(Ward::new(number, worker.reach()?, Limits { deadline }, grace));
        Ok(Session {
            trial,
            worker,
            last_step: now,
            killed: None,
            kill_at: None,
            tenure,
            device: None,
            machine,
            held: Held::default(),
            peak_bytes: 0,
            limits: Limits { deadline },
        })
    }

    fn start_worker(&self, number: u64, folder: &Path) -> Result<Worker, SupervisorError> {
        let spec = &self.search.spec;
        let limit_bytes = self.allocation_limit_bytes()?;
        let study = spec.directory.join(&spec.project);
        let workers = &self.workers;
        let launch = Launch {
            entry: self.entry(&study),
            study: &spec.project,
            number,
            folder,
            shared: workers.files.shared.as_ref().map(|file| file.as_fd()),
            plugin: workers.program.plugin(),
            threads: workers.threads,
            niceness: workers.niceness,
            budget_bytes: self.budget.trial_bytes,
            // Device libraries reserve far more than they use.
            allocation_limit_bytes: Some(limit_bytes).filter(|_| spec.device.starts_with("cpu")),
            cgroups: workers.cgroups.as_ref().map(|cgroups| (cgroups, limit_bytes)),
            stays: self.residence.is_some(),
        };
        Ok(Worker::start(&launch)?)
    }

    fn entry<'a>(&'a self, study: &'a Path) -> Entry<'a> {
        match &self.workers.program {
            Program::Library { program, code: Code { objective, linked, .. } } => {
                Entry::Library { program, library: objective, linked, symbol: &self.search.spec.symbol }
            }
            Program::Itself => Entry::Main { study },
        }
    }

    /// What the system itself lets a trial allocate, in case that it grows faster than the watch looks.
    fn allocation_limit_bytes(&self) -> Result<u64, SupervisorError> {
        let data_bytes =
            self.workers.files.shared.as_ref().map_or(Ok(0), |file| file.metadata().map(|file| file.len()));
        let data_bytes = data_bytes.map_err(file_error("look at the shared data in", &self.search.folder))?;
        Ok(self.budget.allocation_limit_bytes(self.workers.threads, data_bytes))
    }

    /// Takes leave of a trial that is over, while the workers with the process ids `living` run on.
    pub(super) fn end(&mut self, session: Session, living: &[u32]) -> Result<Ended, SupervisorError> {
        let Session { trial, mut worker, mut killed, mut peak_bytes, machine, tenure, device, .. } = session;
        if let Some(ward) = self.guard.lock().remove(trial.number) {
            peak_bytes = peak_bytes.max(ward.peak_bytes);
            worker.was_killed_with(&ward.below);
            killed = killed.or(ward.killed);
        }
        let (seconds, budget_bytes) = (worker.elapsed().as_secs_f64(), self.budget.trial_bytes);
        // The objective's own result counts first.
        let outcome = |exit, killed: Option<&Kill>| {
            let own = trial.outcome.clone();
            own.unwrap_or_else(|| without_result(killed, exit, peak_bytes, budget_bytes))
        };
        if let Some(tenure) = tenure
            && !worker.has_exited()
        {
            let (outcome, left) =
                self.settle(worker, tenure, device.as_ref(), |status| outcome(Exit::Code(status), killed.as_ref()))?;
            let memory = machine.check(left, false)?;
            return Ok(Ended { trial, outcome, killed, seconds, peak_bytes, memory });
        }
        let (mut exit, left) = worker.end(living, &mut self.shared_memory)?;
        if exit == Exit::Signal(SIGKILL) && killed.is_none() && machine.has_killed() {
            // The system was faster.
            exit = Exit::Starved(0);
        }
        if exit == Exit::Signal(SIGTERM) && killed.is_none() && self.is_told_to_stop()? {
            killed = Some(Kill::Stop);
        }
        let outcome = outcome(exit, killed.as_ref());
        let memory = machine.check(left, living.is_empty())?;
        Ok(Ended { trial, outcome, killed, seconds, peak_bytes, memory })
    }

    /// Whether this process is to stop, where a trial has been told so: Slurm sends a signal to all processes of a job.
    fn is_told_to_stop(&mut self) -> Result<bool, SupervisorError> {
        let deadline = Instant::now() + SIGNAL_DELAY;
        loop {
            self.look_outside(0)?;
            if self.phase.is_stopping() || Instant::now() >= deadline {
                return Ok(self.phase.is_stopping());
            }
            std::thread::sleep(TICK);
        }
    }

    /// Looks at what the workers hold and how long they have run, and kills those for which that is too much.
    pub(super) fn watch(&mut self, sessions: &mut [Session]) -> Result<(), SupervisorError> {
        self.look_outside(0)?;
        for session in sessions.iter_mut() {
            session.held = session.worker.held();
            if session.killed.is_none()
                && let Some(reason) = self.guard.lock().killed(session.trial.number)
            {
                session.killed = Some(reason);
                session.end_worker(&self.search.spec.supervision);
            }
            session.peak_bytes = session.peak_bytes.max(session.held.memory_bytes);
        }
        self.ticks += 1;
        let machine_bytes =
            if self.ticks.is_multiple_of(MACHINE_TICKS) { self.budget.machine_shortage()? } else { None };
        // Where the machine is short, the one that holds most has to go, and no other.
        let largest =
            sessions.iter().max_by_key(|session| session.held.memory_bytes).map(|session| session.trial.number);
        for session in sessions.iter_mut().filter(|session| session.killed.is_none()) {
            let machine_bytes = machine_bytes.filter(|_| largest == Some(session.trial.number));
            session.killed = self.reason_to_kill(session, machine_bytes);
            if session.killed.is_some() {
                session.end_worker(&self.search.spec.supervision);
            }
        }
        sessions.iter_mut().for_each(|session| session.kill_if_late(machine_bytes.is_some()));
        self.tick_progress(sessions);
        Ok(())
    }

    fn reason_to_kill(&self, session: &Session, machine_bytes: Option<u64>) -> Option<Kill> {
        let now = Instant::now();
        let out_of_grace =
            || self.phase.is_out_of_grace(session.last_step, self.longest_step, now).then_some(Kill::Stop);
        session.limits.broken(session.held, &self.budget, machine_bytes).or_else(out_of_grace)
    }
}
