//! The session of one trial in its worker: its start, the checks of its limits, and its end.

use super::code::Code;
use super::guard::{Kill, Limits, Ward};
use super::resident::{Tenure, grace};
use super::{Program, Supervisor, SupervisorError, TICK};
use crate::process::{Entry, Exit, Launch, Machine, Worker};
use crate::search::{Outcome, RunningTrial};
use ferrotune_journal::folder;
use ferrotune_journal::study_folder::{self, file_error};
use ferrotune_machine::process_tree::Held;
use ferrotune_space::event::Event;
use ferrotune_space::record::{DeviceUse, Ending, MemoryCheck};
use ferrotune_space::spec::Supervision;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::time::{Duration, Instant};

/// The numbers of these signals are the same on every Linux.
const SIGKILL: i32 = 9;
const SIGTERM: i32 = 15;
/// The longest delay with which the supervisor gets a signal that was sent to both the supervisor and a trial.
const SIGNAL_DELAY: Duration = Duration::from_millis(200);
/// The machine's memory is read in one of this many ticks: that read costs more than the read of a trial's memory, and the
/// machine has more memory left.
const MACHINE_TICKS: u64 = 4;

/// A running trial in a worker, and the supervisor's state about it.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) trial: RunningTrial,
    pub(super) worker: Worker,
    /// The time at which the trial last ended a step, or began.
    pub(super) last_step: Instant,
    pub(super) killed: Option<Kill>,
    /// The time at which a worker that was asked to exit is killed.
    pub(super) kill_at: Option<Instant>,
    /// The history of the worker, if the worker is resident.
    pub(super) tenure: Option<Tenure>,
    /// The device, once the worker has reported it.
    pub(super) device: Option<DeviceUse>,
    /// The state of the machine before the trial began.
    machine: Machine,
    pub(super) held: Held,
    peak_bytes: u64,
    limits: Limits,
}

impl Session {
    /// Whether the trial no longer runs: its worker has exited, or stays without it.
    pub(super) fn is_over(&self) -> bool {
        self.worker.has_exited() || self.worker.has_returned()
    }

    /// Ends the worker of this trial at once. A worker whose device may stay busy after a kill is first asked to exit, and
    /// is killed if it does not exit in time.
    pub(super) fn end_worker(&mut self, supervision: &Supervision) {
        if self.tenure.is_some() {
            self.worker.ask_to_leave();
        }
        self.let_return(supervision);
    }

    /// Gives a refused trial time to return if its worker is resident; otherwise kills the worker.
    pub(super) fn let_return(&mut self, supervision: &Supervision) {
        if self.tenure.is_none() {
            self.worker.kill();
        } else {
            self.kill_at = Some(Instant::now() + grace(supervision));
        }
    }

    /// Kills a worker that was asked to exit, if its time is over or `is_urgent` is set.
    pub(super) fn kill_if_late(&mut self, is_urgent: bool) {
        if self.kill_at.is_some_and(|kill_at| is_urgent || Instant::now() >= kill_at) {
            self.kill_at = None;
            self.worker.kill();
        }
    }
}

/// The result of one trial in one worker.
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
    /// Gives a trial to the idle worker, or starts a worker for the trial.
    pub(super) fn begin(&mut self, number: u64) -> Result<Session, SupervisorError> {
        let folder = study_folder::of_trial(&self.search.folder, number);
        folder::create_and_sync(&folder).map_err(file_error("create", &folder))?;
        let trial = self.search.begin(number)?;
        if let (Some(mirror), Some(file)) = (&self.mirror, &trial.inherited) {
            mirror.checkpoint(number, file);
        }
        self.search.journal.worker_started(number)?;
        let spec = &self.search.spec;
        // Memory that remains in use on a device can be attributed to a trial only if the trial ran alone.
        let runs_alone = spec.supervision.concurrency <= 1;
        // What a driver gives to a device process, the process keeps for later trials.
        let is_watched = runs_alone && self.devices.is_none();
        let machine = Machine::now(Some(spec.device.as_str()).filter(|_| is_watched))?;
        let (worker, tenure) = match self.residence.as_mut().and_then(|residence| residence.idle.take()) {
            Some((mut worker, tenure)) => {
                worker.assign(&folder)?;
                (worker, Some(tenure))
            }
            None => (self.start_worker(number, &folder)?, self.has_staying_worker().then(Tenure::default)),
        };
        let record = self.search.record(number);
        let execution = record.executions.len() as u64;
        self.watcher.send(&Event::TrialStarted { trial: number, execution, pid: worker.pid() });
        let now = Instant::now();
        let deadline = self.search.spec.trial_timeout_s.map(|limit| {
            let left = (limit - record.seconds).max(0.0);
            // A limit that the clock cannot represent is never reached in practice.
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
            // Device libraries reserve far more memory than they use.
            allocation_limit_bytes: Some(limit_bytes).filter(|_| spec.device.starts_with("cpu")),
            cgroups: workers.cgroups.as_ref().map(|cgroups| (cgroups, limit_bytes)),
            device_memory: self.devices.map(|_| match spec.supervision.device_memory_bytes {
                Some(bytes) => bytes.to_string(),
                None => format!("1/{}", spec.supervision.concurrency.max(1)),
            }),
            stays: self.has_staying_worker(),
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

    /// The limit at which the system itself refuses a trial's allocations, in case the trial grows faster than the
    /// supervisor's checks.
    fn allocation_limit_bytes(&self) -> Result<u64, SupervisorError> {
        let data_bytes =
            self.workers.files.shared.as_ref().map_or(Ok(0), |file| file.metadata().map(|file| file.len()));
        let data_bytes = data_bytes.map_err(file_error("look at the shared data in", &self.search.folder))?;
        Ok(self.budget.allocation_limit_bytes(self.workers.threads, data_bytes))
    }

    /// Ends the session of a trial that is over, while the workers with the process ids `living` keep running.
    pub(super) fn end(&mut self, session: Session, living: &[u32]) -> Result<Ended, SupervisorError> {
        let Session { trial, mut worker, mut killed, mut peak_bytes, machine, tenure, device, .. } = session;
        if let Some(ward) = self.guard.lock().remove(trial.number) {
            peak_bytes = peak_bytes.max(ward.peak_bytes);
            worker.was_killed_with(&ward.below);
            killed = killed.or(ward.killed);
        }
        let (seconds, budget_bytes) = (worker.elapsed().as_secs_f64(), self.budget.trial_bytes);
        // The objective's own result takes precedence.
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
            // The system killed the trial before the supervisor did.
            exit = Exit::Starved(0);
        }
        if exit == Exit::Signal(SIGTERM) && killed.is_none() && self.is_told_to_stop()? {
            killed = Some(Kill::Stop);
        }
        let outcome = outcome(exit, killed.as_ref());
        let memory = machine.check(left, living.is_empty())?;
        Ok(Ended { trial, outcome, killed, seconds, peak_bytes, memory })
    }

    /// Whether this process has to stop, after a trial received SIGTERM: Slurm sends a signal to all processes of a job.
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

    /// Checks the memory and the time of the workers, and kills workers that exceed a limit.
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
        // If the machine is short of memory, only the trial that holds most is killed.
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

/// The outcome of a worker whose objective gave no result. The supervisor's reason to kill the worker takes precedence over
/// the exit of its process. `held_bytes` is the largest amount of memory that the worker held.
fn without_result(killed: Option<&Kill>, exit: Exit, held_bytes: u64, budget_bytes: u64) -> Outcome {
    let ending = match (killed, exit) {
        (Some(Kill::Stop | Kill::Shortage { .. }), _) => return Outcome::Interrupted,
        (Some(Kill::Trial(ending)), _) => ending.clone(),
        (None, Exit::Starved(bytes)) => {
            Ending::OutOfMemory { peak_bytes: held_bytes.saturating_add(bytes), budget_bytes }
        }
        (None, Exit::Signal(signal)) => Ending::Signalled { signal },
        (None, Exit::Code(code)) => {
            Ending::Failed { reason: format!("exited with {code} before the objective returned") }
        }
    };
    Outcome::Ended { ending, values: Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kill_tells_more_than_the_exit_and_no_result_is_a_failure_whatever_the_status() {
        let failed = |reason: &str| Ending::Failed { reason: reason.to_owned() };
        let timed_out = Ending::TimedOut { after_s: 1 };
        for (killed, exit, ending) in [
            (None, Exit::Code(0), Some(failed("exited with 0 before the objective returned"))),
            (None, Exit::Code(3), Some(failed("exited with 3 before the objective returned"))),
            (None, Exit::Signal(6), Some(Ending::Signalled { signal: 6 })),
            (None, Exit::Starved(7), Some(Ending::OutOfMemory { peak_bytes: 12, budget_bytes: 9 })),
            (Some(Kill::Trial(timed_out.clone())), Exit::Signal(9), Some(timed_out)),
            (Some(Kill::Stop), Exit::Signal(9), None),
            (Some(Kill::Shortage { available_bytes: 1 }), Exit::Signal(9), None),
        ] {
            let outcome = without_result(killed.as_ref(), exit, 5, 9);
            let expected = ending.map_or(Outcome::Interrupted, |ending| Outcome::Ended { ending, values: Vec::new() });
            assert_eq!(outcome, expected, "{killed:?}");
        }
    }
}
