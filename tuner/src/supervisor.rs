//! Runs one search: asks the oracle, starts a worker for each trial, answers it, and journals every fact before the
//! worker hears of it. Single-threaded; trains nothing itself.

mod answers;
mod backlog;
mod code;
mod conclusion;
mod error;
mod estimate;
mod events;
mod failures;
mod files;
mod inheritance;
mod ledger;
mod local;
mod mirror;
mod outcome;
mod session;
mod trust;

pub use error::SupervisorError;
pub use events::last_status;
pub use files::{output_of, refuse_links_of_trial, spec_of};
pub use local::{Local, Writing};
pub use trust::{Origin, Trust};

use crate::event::{Event, Finish};
use crate::journal::Journal;
use crate::oracle::{self, Next, Oracle};
use crate::process::{self, Budget, OWN_PROGRAM, ProcessError, SharedMemory, Signals, TrialCgroups};
use crate::record::TrialRecord;
use crate::spec::StudySpec;
use backlog::Backlog;
use code::Code;
use error::file_error;
use events::Watcher;
use failures::Failures;
use files::Files;
use mirror::Mirror;
use session::Session;
use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// How long a trial may go on at least after the search is stopped, to come to its next report.
const GRACE: Duration = Duration::from_secs(2);
/// How often running workers are looked at.
const TICK: Duration = Duration::from_millis(10);

/// The hidden subcommand `supervise SPEC.json`: runs the search with [`Event`]s on standard output, as far as `trust` goes.
pub fn main(spec_path: &Path, trust: &Trust) -> ExitCode {
    // Past Rust's own buffer, which does not know what to do with half a line that was not taken.
    let stdout = io::stdout().as_fd().try_clone_to_owned().map(File::from);
    let mut events = match stdout.and_then(Backlog::new) {
        Ok(events) => events,
        Err(error) => {
            eprintln!("ferrotune supervise: cannot write to standard output: {error}");
            return ExitCode::FAILURE;
        }
    };
    supervise_file(spec_path, Workers::Program { program: Path::new(OWN_PROGRAM), trust }, &mut events)
}

/// The same in a program that has the objective in it: the search `spec_path` with [`Event`]s to `watcher`, and the
/// program itself as its trials' worker.
pub fn main_of_program(spec_path: &Path, watcher: OwnedFd) -> ExitCode {
    match Backlog::new(File::from(watcher)) {
        Ok(mut events) => supervise_file(spec_path, Workers::Itself, &mut events),
        Err(error) => {
            tracing::error!(%error, "the search's events cannot be written");
            ExitCode::FAILURE
        }
    }
}

fn supervise_file(spec_path: &Path, workers: Workers<'_>, events: &mut dyn Write) -> ExitCode {
    let Err(error) = read_spec(spec_path).and_then(|spec| supervise(spec, workers, events)) else {
        return ExitCode::SUCCESS;
    };
    let message = error.to_string();
    Watcher::new(events).send(&Event::Error { message });
    ExitCode::FAILURE
}

fn read_spec(path: &Path) -> Result<StudySpec, SupervisorError> {
    let read = || Ok(serde_json::from_slice(&fs::read(path)?)?);
    read().map_err(|source| SupervisorError::Spec { path: path.to_path_buf(), source })
}

/// What the trials' workers are.
#[derive(Clone, Copy, Debug)]
pub enum Workers<'a> {
    /// This program, run as `PROGRAM worker …`: it loads the library that the search names, if that may be run.
    Program {
        /// The program.
        program: &'a Path,
        /// Whether the study's folder may have a say in what is run.
        trust: &'a Trust,
    },
    /// The supervisor's own program, run as it was itself: it has the objective in it.
    Itself,
}

/// Runs or continues the search `spec` with these workers, until it is over or a signal stops it.
///
/// Code that comes from the study's folder is run only where the user has stood for it: see [`Trust`]. Nothing is changed
/// before that. The last event is [`Event::Finished`], unless an error is returned. The process must belong to this call alone:
/// every child that is found after a trial is killed.
pub fn supervise(spec: StudySpec, workers: Workers<'_>, events: &mut dyn Write) -> Result<Finish, SupervisorError> {
    // Checks the settings before a study is opened, or overwritten.
    oracle::create(&spec)?;
    process::check_proc()?;
    if spec.supervision.background {
        // Fails for the leader of a process group: whoever starts a search in the background starts a process for it.
        rustix::process::setsid()
            .map_err(|errno| ProcessError::System { what: "leave the terminal's session", source: errno.into() })?;
    }
    let signals = Signals::hold().map_err(|source| ProcessError::System { what: "hold signals back", source })?;
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
        .map_err(|errno| ProcessError::System { what: "become the reaper of the trials", source: errno.into() })?;
    let niceness = process::go_first()?;
    process::take_reserve();
    let mut search = Search::open(spec, workers, niceness, signals, events)?;
    let reason = search.run();
    // Where the search broke off, what its trials have started is still there.
    process::remove_strays()?;
    let reason = reason.inspect_err(|error| search.watcher.note(&Event::Error { message: error.to_string() }))?;
    search.watcher.send(&Event::Finished { reason: reason.clone() });
    Ok(reason)
}

/// The code that is to be run, and may be.
fn admitted(spec: &StudySpec, workers: Workers<'_>, study: &Path) -> Result<Option<Code>, SupervisorError> {
    let Workers::Program { trust, .. } = workers else { return Ok(None) };
    let code = Code::read(spec, study)?;
    trust.admit_code(&code.facts, study)?;
    spec.supervision.mirror.as_ref().map_or(Ok(()), |mirror| trust.admit_mirror(mirror, study))?;
    Ok(Some(code))
}

/// A search that runs.
struct Search<'a> {
    /// As the journal has it: with the seed filled in.
    spec: StudySpec,
    workers: Workers<'a>,
    /// The study's folder, absolute.
    folder: PathBuf,
    /// `None` where the program has its objective in it.
    code: Option<Code>,
    files: Files,
    mirror: Option<Mirror>,
    /// What is in shared memory, and who has made it.
    shared_memory: SharedMemory,
    journal: Journal,
    oracle: Box<dyn Oracle>,
    trials: Vec<TrialRecord>,
    /// Trials that an earlier supervisor left in the middle.
    unfinished: VecDeque<u64>,
    budget: Budget,
    /// Where trials have cgroups of their own, if this process may make them.
    cgroups: Option<TrialCgroups>,
    /// Threads of each trial.
    threads: u64,
    /// Niceness of each trial.
    niceness: i32,
    signals: Signals,
    watcher: Watcher<'a>,
    started: Instant,
    /// Why the search is over, once nothing is left to begin.
    finish: Option<Finish>,
    /// Why the search is being stopped, once it is.
    stop: Option<Finish>,
    /// When that began.
    stopped_at: Option<Instant>,
    /// What the machine had left, in bytes, when something other than a trial had taken its memory.
    shortage_bytes: Option<u64>,
    /// Why no trial can go on now. It stops the search as an interrupt does, and is its result.
    obstacle: Option<SupervisorError>,
    /// How often the workers have been looked at.
    ticks: u64,
    /// The longest time between two reports of a trial so far.
    longest_step: Duration,
    /// Requests to stop received so far.
    interrupts: usize,
    failures: Failures,
}

impl<'a> Search<'a> {
    fn open(
        spec: StudySpec,
        workers: Workers<'a>,
        niceness: i32,
        signals: Signals,
        events: &'a mut dyn Write,
    ) -> Result<Search<'a>, SupervisorError> {
        let folder = spec.directory.join(&spec.project);
        let code = admitted(&spec, workers, &folder)?;
        let mirror = mirror::of(&spec)?;
        if let Some(mirror) = mirror.as_ref().filter(|_| !spec.overwrite) {
            mirror::restore(mirror, &folder)?;
        }
        // A study that cannot have its files stays what it was, and its journal does not hear of this search. One that is
        // overwritten is gone by then, for two may need more space than there is; but its mirror is not.
        let install = || {
            let folder = fs::canonicalize(&folder).map_err(file_error("find", &folder))?;
            let files = Files::install(&spec, &folder)?;
            if let Some(mirror) = mirror.as_ref().filter(|_| spec.overwrite) {
                mirror::clear(mirror)?;
            }
            Ok::<_, SupervisorError>((files, folder))
        };
        let (journal, trials, (files, folder)) = Journal::open_with(&folder, &files::stored(&spec), install)?;
        process::remove_orphans();
        files::remove_all_leftovers(&folder, &trials)?;
        let mirror = mirror.map(|mirror| Mirror::start(&folder, &mirror)).transpose()?;
        let enqueued = spec.given.enqueued;
        let spec = StudySpec { supervision: spec.supervision, ..journal.spec().clone() };
        let concurrency = spec.supervision.concurrency.max(1);
        let budget = Budget::choose(spec.memory_budget_bytes, concurrency)?;
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
        let threads = spec.supervision.threads.unwrap_or(cores / concurrency).max(1);
        let oracle = oracle::create(&spec)?;
        let unfinished = ledger::unfinished(&trials);
        let failures = Failures::after(&trials);
        let mut watcher = Watcher::of_study(events, &folder);
        watcher.send(&Event::Opened { folder: folder.clone(), earlier_trials: trials.len() as u64 });
        let mut search = Search {
            spec,
            workers,
            folder,
            code,
            files,
            mirror,
            shared_memory: SharedMemory::watched(),
            journal,
            oracle,
            trials,
            unfinished,
            budget,
            cgroups: TrialCgroups::find(),
            threads,
            niceness,
            signals,
            watcher,
            started: Instant::now(),
            finish: None,
            stop: None,
            stopped_at: None,
            shortage_bytes: None,
            obstacle: None,
            ticks: 0,
            longest_step: Duration::ZERO,
            interrupts: 0,
            failures,
        };
        let enqueued = search.ledger().enqueue(&enqueued)?;
        search.unfinished.extend(enqueued);
        search.remove_losers()?;
        search.mirror_journal();
        Ok(search)
    }

    fn run(&mut self) -> Result<Finish, SupervisorError> {
        let mut sessions = Vec::new();
        loop {
            self.look_for_a_stop()?;
            if self.stop.is_none() {
                self.begin_trials(&mut sessions)?;
            }
            if sessions.is_empty() {
                let finish = || self.stop.clone().or(self.finish.clone()).unwrap_or(Finish::Exhausted);
                return self.obstacle.take().map_or_else(|| Ok(finish()), Err);
            }
            self.turn(&mut sessions)?;
        }
    }

    /// Starts workers for as many trials as may run side by side and have something to do.
    fn begin_trials(&mut self, sessions: &mut Vec<Session>) -> Result<(), SupervisorError> {
        while (sessions.len() as u64) < self.spec.supervision.concurrency.max(1) {
            let Some(number) = self.next_trial(sessions)? else { break };
            sessions.push(self.begin(number)?);
        }
        Ok(())
    }

    /// The trial that is to run next; none while one that runs has to end first, and none when the search is over.
    fn next_trial(&mut self, sessions: &[Session]) -> Result<Option<u64>, SupervisorError> {
        loop {
            let mut queue = std::mem::take(&mut self.unfinished);
            let heard = self.ledger().hear_others(&mut queue);
            self.unfinished = queue;
            heard?;
            let ended = self.trials.iter().filter(|trial| trial.ending.is_some()).count() as u64;
            if ended >= self.spec.max_trials {
                self.finish = Some(Finish::MaxTrials);
                return Ok(None);
            }
            if let Some(available_bytes) = self.budget.machine_shortage()? {
                // Those that run may be what takes the memory; where none does, one more could not be held either.
                return if sessions.is_empty() {
                    Err(SupervisorError::MachineShort { available_bytes })
                } else {
                    Ok(None)
                };
            }
            if let Some(number) = self.unfinished.pop_front() {
                if !self.give_up(number)? && self.ledger().take_up(number)? {
                    return Ok(Some(number));
                }
                continue;
            }
            let running: Vec<u64> = sessions.iter().map(|session| session.number).collect();
            match self.oracle.next(&self.trials, &running) {
                Next::New if (self.trials.len() as u64) < self.spec.max_trials => {
                    return Ok(Some(self.journal.begin_trial(&mut self.trials)?));
                }
                Next::Wait => return Ok(None),
                Next::Continue { trial } => return Ok(Some(trial)),
                Next::Prune { trial } => self.prune(trial)?,
                Next::New => {
                    self.finish = Some(Finish::MaxTrials);
                    return Ok(None);
                }
                Next::Exhausted => {
                    // Those without an ending are another program's.
                    let is_enough = self.trials.len() as u64 >= self.spec.max_trials;
                    self.finish = Some(if is_enough { Finish::MaxTrials } else { Finish::Exhausted });
                    return Ok(None);
                }
            }
        }
    }

    /// Waits for the workers, answers them, and takes leave of those that have left.
    fn turn(&mut self, sessions: &mut Vec<Session>) -> Result<(), SupervisorError> {
        let workers = sessions.iter_mut().map(|session| &mut session.worker);
        self.interrupts += process::wait(workers, &self.signals, &mut self.shared_memory, TICK)?;
        let mut index = 0;
        while index < sessions.len() {
            self.hear(&mut sessions[index])?;
            if !sessions[index].worker.has_exited() {
                index += 1;
                continue;
            }
            let session = sessions.remove(index);
            let living: Vec<u32> = sessions.iter().map(|session| session.worker.pid()).collect();
            let number = session.number;
            let ended = self.end(session, &living)?;
            self.conclude(number, &ended, sessions)?;
        }
        self.watch(sessions)
    }

    /// Notices signals that came between two trials, a watcher that is gone, and the end of the search's time.
    fn look_for_a_stop(&mut self) -> Result<(), SupervisorError> {
        let signals = self.signals.take().map_err(|source| ProcessError::System { what: "read a signal", source })?;
        self.interrupts += signals;
        let timeout = self.spec.timeout_s.is_some_and(|limit| self.started.elapsed().as_secs_f64() >= limit);
        if self.stop.is_none() {
            // Without a watcher nobody could stop the search, and it would keep the study locked: it can be continued.
            let is_abandoned = self.watcher.is_gone() && !self.spec.supervision.background;
            if self.interrupts > 0 || is_abandoned || self.obstacle.is_some() {
                self.stop = Some(Finish::Interrupted);
            } else if timeout {
                self.stop = Some(Finish::Timeout);
            }
            self.stopped_at = self.stop.as_ref().map(|_| Instant::now());
        }
        Ok(())
    }

    /// Trial numbers are positions: every trial that was ever started has its record.
    fn record(&self, number: u64) -> &TrialRecord {
        &self.trials[number as usize]
    }

    fn record_mut(&mut self, number: u64) -> &mut TrialRecord {
        &mut self.trials[number as usize]
    }
}
