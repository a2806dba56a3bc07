//! The driver of a search whose trials are processes: it starts a worker for each trial, passes the worker's requests to
//! the search, and watches the worker's memory and time. Single-threaded; trains nothing itself.

mod answers;
mod backlog;
mod checkpoints;
mod code;
mod conclusion;
mod devices;
mod elsewhere;
mod entry;
mod error;
mod estimate;
mod events;
mod files;
mod guard;
mod mirror;
mod phase;
mod publication;
mod remaining;
mod resident;
mod session;
mod study_progress;
mod token;
mod trust;
mod workers;

pub use code::Code;
pub use devices::Devices;
pub use elsewhere::{Crew, Engine, Which};
pub use entry::{FindEngine, main, main_of_program};
pub use error::{PublicationError, SupervisorError};
pub use events::last_status;
pub use ferrotune_journal::study_folder::refuse_links_of_trial;
pub use files::{output_of, spec_of};
pub use publication::{Fetched, Objects, fetch, store_of};
pub use study_progress::study_progress;
pub use token::{TOKEN_VARIABLE, Token};
pub use trust::{Origin, Trust};
pub use workers::Workers;

use crate::process::{self, Budget, ProcessError, SharedMemory, Signals, TrialCgroups};
use crate::search::{self, Search, SearchError, Step};
use elsewhere::Elsewhere;
use events::{Earlier, Watcher};
use ferrotune_journal::study_folder::{self, file_error};
use ferrotune_journal::{Journal, JournalError};
use ferrotune_machine::own;
use ferrotune_space::event::{Event, Finish};
use ferrotune_space::spec::StudySpec;
use files::Files;
use mirror::Mirror;
use phase::{Outside, Phase};
use resident::Residence;
use session::Session;
use std::fs;
use std::io::Write;
use std::time::{Duration, Instant};
use workers::{Admitted, Program};

/// The interval at which the supervisor checks running workers.
const TICK: Duration = Duration::from_millis(10);

/// The length of the secret with which a study's owner signs code for workers.
const TOKEN_BYTES: usize = 32;

/// Runs or continues the search `spec` with these workers, until it is over or a signal stops it.
///
/// Code that comes from the study's folder is run only if the user trusts it: see [`Trust`]. Nothing is changed before that
/// check. The last event is [`Event::Finished`], unless an error is returned. `listener` is called with each event before
/// the event is written, also when nobody reads the events any more; the search waits for `listener`. The process must
/// belong to this call alone: every child process that is found after a trial is killed.
pub fn supervise<'a>(
    spec: StudySpec,
    workers: Workers<'a>,
    events: &'a mut dyn Write,
    listener: &'a mut dyn FnMut(&Event),
) -> Result<Finish, SupervisorError> {
    // Checks the settings before a study is opened, or overwritten.
    ferrotune_oracle::create(&spec).map_err(SearchError::from)?;
    if spec.takes_one_process() && spec.supervision.concurrency > 1 && workers.devices(&spec.device).is_none() {
        let concurrency = spec.supervision.concurrency;
        return Err(SupervisorError::OneAtATime { device: spec.device, concurrency });
    }
    process::check_proc()?;
    if spec.supervision.background {
        // `setsid` fails for the leader of a process group, so a search in the background needs a process of its own.
        rustix::process::setsid()
            .map_err(|errno| ProcessError::System { what: "leave the terminal's session", source: errno.into() })?;
    }
    let signals = Signals::hold().map_err(|source| ProcessError::System { what: "hold signals back", source })?;
    own::adopt_orphans().map_err(|source| ProcessError::System { what: "become the reaper of the trials", source })?;
    let niceness = process::go_first()?;
    process::take_reserve();
    let mut supervisor = Supervisor::open(spec, workers, niceness, signals, Watcher::new(events, listener))?;
    let reason = supervisor.run();
    let dismissed = supervisor.dismiss_idle();
    let reason = reason.and_then(|reason| dismissed.map(|()| reason));
    // After an error, processes that the trials have started may still run.
    process::remove_strays()?;
    let reason = reason.inspect_err(|error| supervisor.watcher.note(&Event::Error { message: error.to_string() }))?;
    supervisor.watcher.send(&Event::Finished { reason: reason.clone() });
    Ok(reason)
}

/// The settings with which workers are started.
struct WorkerSettings<'a> {
    program: Program<'a>,
    files: Files,
    /// The cgroups of the trials, if this process may create cgroups.
    cgroups: Option<TrialCgroups>,
    /// The number of threads of each trial.
    threads: u64,
    /// The niceness of each trial.
    niceness: i32,
}

/// A search that runs in processes.
struct Supervisor<'a> {
    search: Search,
    workers: WorkerSettings<'a>,
    budget: Budget,
    /// The checks that go on while the journal's database does not answer.
    guard: guard::Shared,
    /// The shared-memory objects of the trials, and the processes that made them.
    shared_memory: SharedMemory,
    mirror: Option<Mirror>,
    /// The device's turn and its idle worker, for a device that takes one process at a time.
    residence: Option<Residence>,
    /// The device processes of this host, if the trials share one.
    devices: Option<&'static dyn Devices>,
    /// Whether the device process has answered since the last trial ended.
    is_device_held: bool,
    /// The engine that starts the workers on other hosts, until the supervisor follows them; and what is known of their
    /// trials.
    engine: Option<&'a mut dyn Engine>,
    elsewhere: Option<Elsewhere>,
    watcher: Watcher<'a>,
    signals: Signals,
    phase: Phase,
    started: Instant,
    earlier: Earlier,
    /// The number of times that the supervisor has checked the workers.
    ticks: u64,
    /// The longest time between two reports of a trial in this search.
    longest_step: Duration,
}

impl<'a> Supervisor<'a> {
    fn open(
        spec: StudySpec,
        workers: Workers<'a>,
        niceness: i32,
        signals: Signals,
        watcher: Watcher<'a>,
    ) -> Result<Supervisor<'a>, SupervisorError> {
        let folder = spec.directory.join(&spec.project);
        if spec.storage.is_some() && spec.supervision.mirror.is_some() {
            return Err(JournalError::Mirrored.into());
        }
        let Admitted { program, engine, objects, devices } = Admitted::of(&spec, workers, &folder)?;
        let mirror = mirror::of(&spec)?;
        if let Some(mirror) = mirror.as_ref().filter(|_| !spec.overwrite) {
            mirror::restore(mirror, &folder)?;
        }
        let spec = search::warmed(&spec)?;
        // If the files cannot be installed, the study keeps its earlier state, and nothing of this search goes into the
        // journal. A study that is overwritten is already removed by then, because two studies may not fit on the disk; its
        // mirror is not.
        let install = || {
            let folder = fs::canonicalize(&folder).map_err(file_error("find", &folder))?;
            let files = Files::install(&spec, &folder)?;
            if let Some(mirror) = mirror.as_ref().filter(|_| spec.overwrite) {
                mirror::clear(mirror)?;
            }
            Ok::<_, SupervisorError>((files, folder))
        };
        let (mut journal, (files, folder)) = Journal::open_with(&folder, &study_folder::stored(&spec), install)?;
        if let Some(to) = &spec.supervision.publish {
            let (Program::Library { code, .. }, Some(objects)) = (&program, objects) else {
                return Err(PublicationError::OwnProgram.into());
            };
            publication::publish(&mut journal, &folder, &spec, (code, &files), to, objects)?;
        }
        process::remove_orphans();
        study_folder::remove_all_leftovers(&folder, journal.trials())?;
        let mirror = mirror.map(|mirror| Mirror::start(&folder, &mirror)).transpose()?;
        let concurrency = spec.supervision.concurrency.max(1);
        let budget = Budget::choose(spec.memory_budget_bytes, concurrency)?;
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
        let threads = spec.supervision.threads.unwrap_or(cores / concurrency).max(1);
        let (earlier, earlier_trials) = (Earlier::of(journal.trials()), journal.trials().len() as u64);
        let residence = spec.takes_one_process().then(Residence::new);
        let mut supervision = spec.supervision;
        // All workers together run this many trials side by side.
        supervision.concurrency *= spec.placement.and_then(|placement| placement.workers).unwrap_or(1);
        let reader = signals.reader().map_err(|source| ProcessError::System { what: "read signals", source })?;
        let guard = guard::Shared::new(reader, budget);
        let looking = guard.clone();
        journal.while_waiting(Box::new(move || looking.lock().look()));
        let search = Search::new(journal, folder.clone(), supervision)?;
        let mut watcher = watcher.of_study(&folder);
        watcher.send(&Event::Opened { folder, earlier_trials });
        let mut supervisor = Supervisor {
            search,
            workers: WorkerSettings { program, files, cgroups: TrialCgroups::find(), threads, niceness },
            budget,
            guard,
            shared_memory: SharedMemory::watched(),
            mirror,
            residence,
            devices,
            is_device_held: false,
            engine,
            elsewhere: None,
            watcher,
            signals,
            phase: Phase::Running,
            started: Instant::now(),
            earlier,
            ticks: 0,
            longest_step: Duration::ZERO,
        };
        supervisor.search.enqueue(&spec.given.enqueued)?;
        supervisor.remove_losers()?;
        supervisor.mirror_journal();
        Ok(supervisor)
    }

    fn run(&mut self) -> Result<Finish, SupervisorError> {
        let mut sessions = Vec::new();
        // A study that already has all its trials sends no other progress event.
        self.send_first_progress();
        if let Some(engine) = self.engine.take() {
            return self.follow(engine);
        }
        loop {
            self.look_outside(0)?;
            let over = if self.phase.is_stopping() { None } else { self.begin_trials(&mut sessions)? };
            if !sessions.is_empty() {
                self.turn(&mut sessions)?;
            } else if matches!(over, Some(Finish::MaxTrials | Finish::Exhausted)) && self.search.others_run()? {
                self.tick_progress(&sessions);
                std::thread::sleep(TICK);
            } else {
                // Other processes may have ended trials since this search's last progress event.
                self.send_progress(&sessions);
                let phase = std::mem::take(&mut self.phase);
                return Ok(phase.result(over.unwrap_or(Finish::Exhausted))?);
            }
        }
    }

    /// Starts workers for as many trials as may run side by side and have something to do. Returns the reason why no more
    /// trials will begin, if there is one.
    fn begin_trials(&mut self, sessions: &mut Vec<Session>) -> Result<Option<Finish>, SupervisorError> {
        while (sessions.len() as u64) < self.search.spec.supervision.concurrency.max(1) {
            if let Some(available_bytes) = self.budget.machine_shortage()?
                && !self.search.has_all_trials()?
            {
                // The idle worker may be the process that holds the memory.
                if sessions.is_empty() && self.has_idle_worker() {
                    self.dismiss_idle()?;
                    continue;
                }
                // Running trials may hold the memory. If none runs, a new trial would not fit either.
                return if sessions.is_empty() {
                    Err(SupervisorError::MachineShort { available_bytes })
                } else {
                    Ok(None)
                };
            }
            if sessions.is_empty() && !self.search.has_all_trials()? && !self.wait_for_device()? {
                return Ok(None);
            }
            if self.lacks_device() && !self.search.has_all_trials()? && !self.hold_device()? {
                return Ok(None);
            }
            let running: Vec<u64> = sessions.iter().map(|session| session.trial.number).collect();
            match self.search.next(&running)? {
                Step::Run { trial } => sessions.push(self.begin(trial)?),
                Step::Ended { trial } => self.announce_end(trial),
                Step::Wait => return Ok(None),
                Step::Over(finish) => return Ok(Some(finish)),
            }
        }
        Ok(None)
    }

    /// Waits for the workers, answers their requests, and ends the sessions of workers that have exited.
    fn turn(&mut self, sessions: &mut Vec<Session>) -> Result<(), SupervisorError> {
        let workers = sessions.iter_mut().map(|session| &mut session.worker);
        let interrupts = process::wait(workers, &self.signals, &mut self.shared_memory, TICK)?;
        self.look_outside(interrupts)?;
        self.search.journal.beat()?;
        let mut index = 0;
        while index < sessions.len() {
            self.answer_requests(&mut sessions[index])?;
            if !sessions[index].is_over() {
                index += 1;
                continue;
            }
            let session = sessions.remove(index);
            let living: Vec<u32> = sessions.iter().map(|session| session.worker.pid()).collect();
            let ended = self.end(session, &living)?;
            // What has ended the trial may have ended the device process.
            self.is_device_held = false;
            self.conclude(ended, sessions)?;
        }
        self.watch(sessions)
    }

    /// Updates the phase from `interrupts` and later signals, from a watcher that is gone, and from the search's time
    /// limit.
    fn look_outside(&mut self, interrupts: usize) -> Result<(), SupervisorError> {
        let signals = self.signals.take().map_err(|source| ProcessError::System { what: "read a signal", source })?;
        let elapsed_s = self.started.elapsed().as_secs_f64();
        let interrupts = interrupts + signals;
        let outside = Outside {
            interrupts: interrupts + self.guard.lock().exchange_stops(interrupts),
            is_abandoned: self.watcher.is_gone() && !self.search.spec.supervision.background,
            is_timed_out: self.search.spec.timeout_s.is_some_and(|limit| elapsed_s >= limit),
        };
        self.change_phase(|phase| phase.step(outside, Instant::now()));
        Ok(())
    }

    fn change_phase(&mut self, change: impl FnOnce(Phase) -> Phase) {
        self.phase = change(std::mem::take(&mut self.phase));
    }
}
