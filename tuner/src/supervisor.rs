//! Runs one search: asks the oracle, starts a worker for each trial, answers it, and journals every fact before the
//! worker hears of it. Single-threaded; trains nothing itself.

mod answers;
mod backlog;
mod error;
mod events;
mod outcome;
mod session;

pub use error::SupervisorError;

use crate::folder;
use crate::journal::Journal;
use crate::oracle::{self, Next, Oracle};
use crate::process::{Budget, ProcessError, Signals};
use crate::record::{Ending, TrialRecord};
use crate::wire::{Event, Finish, StudySpec};
use backlog::Backlog;
use error::file_error;
use events::Watcher;
use outcome::Outcome;
use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// After so many failures in a row, with no success before them, the objective itself must be wrong.
const HOPELESS_FAILURES: u64 = 3;
/// How long a trial may go on after the search is stopped, to come to its next report.
const GRACE: Duration = Duration::from_secs(2);

/// The hidden subcommand `supervise SPEC.json`: runs the search with [`Event`]s on standard output.
pub fn main(spec_path: &Path) -> ExitCode {
    // Past Rust's own buffer, which does not know what to do with half a line that was not taken.
    let stdout = io::stdout().as_fd().try_clone_to_owned().map(File::from);
    let mut events = match stdout.and_then(Backlog::new) {
        Ok(events) => events,
        Err(error) => {
            eprintln!("ferrotune supervise: cannot write to standard output: {error}");
            return ExitCode::FAILURE;
        }
    };
    let finish = read_spec(spec_path).and_then(|(spec, program)| supervise(spec, &program, &mut events));
    let Err(error) = finish else { return ExitCode::SUCCESS };
    let message = error.to_string();
    Watcher::new(&mut events).send(&Event::Error { message });
    ExitCode::FAILURE
}

fn read_spec(path: &Path) -> Result<(StudySpec, PathBuf), SupervisorError> {
    // By this name the program is found also where its file has been replaced since.
    let program = PathBuf::from("/proc/self/exe");
    let read = || Ok((serde_json::from_slice(&fs::read(path)?)?, program));
    read().map_err(|source| SupervisorError::Spec { path: path.to_path_buf(), source })
}

/// Runs or continues the search `spec` with workers started from `program`, until it is over or a signal stops it.
///
/// The last event is [`Event::Finished`], unless an error is returned. The process must belong to this call alone:
/// every child that is found after a trial is killed.
pub fn supervise(spec: StudySpec, program: &Path, events: &mut dyn Write) -> Result<Finish, SupervisorError> {
    // Checks the settings before a study is opened, or overwritten.
    oracle::create(&spec)?;
    let signals = Signals::hold().map_err(|source| ProcessError::System { what: "hold signals back", source })?;
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
        .map_err(|errno| ProcessError::System { what: "become the reaper of the trials", source: errno.into() })?;
    let mut search = Search::open(spec, program, signals, events)?;
    let reason = search.run()?;
    search.watcher.send(&Event::Finished { reason: reason.clone() });
    Ok(reason)
}

/// A search that runs.
struct Search<'a> {
    /// As the journal has it: with the seed filled in.
    spec: StudySpec,
    program: &'a Path,
    /// The study's folder, absolute.
    folder: PathBuf,
    library: PathBuf,
    shared: Option<File>,
    journal: Journal,
    oracle: Box<dyn Oracle>,
    trials: Vec<TrialRecord>,
    /// Trials that an earlier supervisor left in the middle.
    unfinished: VecDeque<u64>,
    budget: Budget,
    signals: Signals,
    watcher: Watcher<'a>,
    started: Instant,
    /// Why the search is being stopped, once it is.
    stop: Option<Finish>,
    /// When that began.
    stopped_at: Option<Instant>,
    /// What the machine had left, in bytes, when something other than a trial had taken its memory.
    shortage_bytes: Option<u64>,
    /// Requests to stop received so far.
    interrupts: usize,
    /// Failures since the start, until a trial succeeds.
    failures: Option<u64>,
}

impl<'a> Search<'a> {
    fn open(
        spec: StudySpec,
        program: &'a Path,
        signals: Signals,
        events: &'a mut dyn Write,
    ) -> Result<Search<'a>, SupervisorError> {
        let folder = spec.directory.join(&spec.project);
        let (journal, trials) = Journal::open(&folder, &spec)?;
        let folder = fs::canonicalize(&folder).map_err(file_error("find", &folder))?;
        let spec = journal.spec().clone();
        let library = folder.join("objective.so");
        install_library(&spec.library, &library)?;
        let shared =
            spec.shared.as_ref().map(|path| File::open(path).map_err(file_error("open the shared data", path)));
        let shared = shared.transpose()?;
        let budget = Budget::choose(spec.memory_budget_bytes)?;
        let oracle = oracle::create(&spec)?;
        let unfinished = trials.iter().filter(|trial| trial.ending.is_none() && trial.paused_at.is_none());
        let unfinished = unfinished.map(|trial| trial.number).collect();
        let mut watcher = Watcher::new(events);
        watcher.send(&Event::Opened { folder: folder.clone(), earlier_trials: trials.len() as u64 });
        let (started, stop, interrupts) = (Instant::now(), None, 0);
        Ok(Search {
            spec,
            program,
            folder,
            library,
            shared,
            journal,
            oracle,
            trials,
            unfinished,
            budget,
            signals,
            watcher,
            started,
            stop,
            stopped_at: None,
            shortage_bytes: None,
            interrupts,
            failures: Some(0),
        })
    }

    fn run(&mut self) -> Result<Finish, SupervisorError> {
        loop {
            self.look_for_a_stop()?;
            if let Some(reason) = self.stop.clone() {
                return Ok(reason);
            }
            let ended = self.trials.iter().filter(|trial| trial.ending.is_some()).count() as u64;
            if ended >= self.spec.max_trials {
                return Ok(Finish::MaxTrials);
            }
            self.look_for_a_shortage()?;
            if let Some(number) = self.unfinished.pop_front() {
                self.run_trial(number)?;
                continue;
            }
            match self.oracle.next(&self.trials) {
                Next::New if (self.trials.len() as u64) < self.spec.max_trials => {
                    let number = self.trials.len() as u64;
                    self.journal.trial_started(number)?;
                    self.trials.push(TrialRecord::new(number));
                    self.run_trial(number)?;
                }
                Next::Continue { trial } => self.continue_trial(trial)?,
                Next::Prune { trial } => self.prune(trial)?,
                Next::New => return Ok(Finish::MaxTrials),
                Next::Exhausted => return Ok(Finish::Exhausted),
            }
        }
    }

    /// Runs a trial on that the oracle has named, which must then have come further or have ended.
    fn continue_trial(&mut self, number: u64) -> Result<(), SupervisorError> {
        let before = self.record(number).epochs_done();
        self.run_trial(number)?;
        let record = self.record(number);
        if record.ending.is_none() && self.stop.is_none() && record.epochs_done() <= before {
            return Err(SupervisorError::Stuck { number, epochs: before });
        }
        Ok(())
    }

    /// Runs one worker of a trial, and writes down what came of it.
    fn run_trial(&mut self, number: u64) -> Result<(), SupervisorError> {
        let ended = self.run_worker(number)?;
        let record = self.record_mut(number);
        record.seconds += ended.seconds;
        record.peak_bytes = record.peak_bytes.max(ended.peak_bytes);
        match ended.outcome {
            Outcome::Paused { at } => {
                record.paused_at = Some(at);
                let record = record.clone();
                self.journal.trial_paused(&record)?;
            }
            // Its end is in the journal since the objective told it; what its worker used is not.
            Outcome::Ended { .. } if ended.is_journaled => {
                let record = record.clone();
                self.journal.trial_paused(&record)?;
                self.watcher.send(&Event::TrialEnded { record });
            }
            Outcome::Interrupted => {
                record.paused_at = None;
                let mut record = record.clone();
                self.journal.trial_paused(&record)?;
                // The journal leaves the trial open, so that it goes on next time; the watcher hears how it ended now.
                record.ending = Some(Ending::Cancelled);
                self.watcher.send(&Event::TrialEnded { record });
            }
            Outcome::Ended { ref ending, value } => {
                record.ending = Some(ending.clone());
                record.value = value;
                self.settle(number)?;
            }
        }
        self.send_progress(None);
        if let Some(available_bytes) = self.shortage_bytes {
            return Err(SupervisorError::MachineShort { available_bytes });
        }
        self.judge_the_objective(number, &ended.outcome, ended.reports_were_due)
    }

    /// Ends the search where the objective itself is at fault, rather than its parameters.
    fn judge_the_objective(
        &mut self,
        number: u64,
        outcome: &Outcome,
        reports_were_due: bool,
    ) -> Result<(), SupervisorError> {
        let failure = match outcome {
            Outcome::Interrupted => return Ok(()),
            Outcome::Paused { .. } => None,
            Outcome::Ended { ending: Ending::Finished | Ending::Pruned, .. } => None,
            Outcome::Ended { ending, .. } => Some(ending),
        };
        let record = self.record(number);
        if number == 0 && failure.is_none() && record.parameters.is_empty() {
            return Err(SupervisorError::EmptySpace);
        }
        if number == 0
            && failure.is_some()
            && reports_were_due
            && let Some(reason) = outcome::never_reported(record, &self.spec.objective)
        {
            return Err(SupervisorError::NeverReported { reason });
        }
        match (failure, self.failures.as_mut()) {
            (None, _) => self.failures = None,
            // Memory, time and signals may be chance, or the parameters' fault; errors of the objective are its own.
            (Some(ending @ (Ending::Failed { .. } | Ending::Panicked { .. })), Some(count)) => {
                *count += 1;
                if *count == HOPELESS_FAILURES {
                    return Err(SupervisorError::Hopeless { count: *count, ending: ending.clone() });
                }
            }
            (Some(_), _) => {}
        }
        Ok(())
    }

    fn prune(&mut self, number: u64) -> Result<(), SupervisorError> {
        let objective = self.spec.objective.clone();
        let record = self.record_mut(number);
        record.ending = Some(Ending::Pruned);
        record.value = record.best(&objective);
        self.settle(number)?;
        self.send_progress(None);
        Ok(())
    }

    fn settle(&mut self, number: u64) -> Result<(), SupervisorError> {
        let record = self.record(number).clone();
        self.journal.trial_ended(&record)?;
        self.watcher.send(&Event::TrialEnded { record });
        Ok(())
    }

    /// Notices signals that came between two trials, a watcher that is gone, and the end of the search's time.
    fn look_for_a_stop(&mut self) -> Result<(), SupervisorError> {
        let signals = self.signals.take().map_err(|source| ProcessError::System { what: "read a signal", source })?;
        self.interrupts += signals;
        let timeout = self.spec.timeout_s.is_some_and(|limit| self.started.elapsed().as_secs_f64() >= limit);
        if self.stop.is_none() {
            // Without a watcher nobody could stop the search, and it would keep the study locked: it can be continued.
            if self.interrupts > 0 || self.watcher.is_gone() {
                self.stop = Some(Finish::Interrupted);
            } else if timeout {
                self.stop = Some(Finish::Timeout);
            }
            self.stopped_at = self.stop.as_ref().map(|_| Instant::now());
        }
        Ok(())
    }

    /// Starts no worker on a machine that could not hold it.
    fn look_for_a_shortage(&self) -> Result<(), SupervisorError> {
        match self.budget.machine_shortage()? {
            Some(available_bytes) => Err(SupervisorError::MachineShort { available_bytes }),
            None => Ok(()),
        }
    }

    /// Trial numbers are positions: every trial that was ever started has its record.
    fn record(&self, number: u64) -> &TrialRecord {
        &self.trials[number as usize]
    }

    fn record_mut(&mut self, number: u64) -> &mut TrialRecord {
        &mut self.trials[number as usize]
    }
}

/// Copies the objective into the study, which must outlive the session that compiled it.
fn install_library(source: &Path, target: &Path) -> Result<(), SupervisorError> {
    if fs::canonicalize(source).is_ok_and(|source| source == target) {
        return Ok(());
    }
    let partial = target.with_extension("so.partial");
    let mut from = File::open(source).map_err(file_error("read the objective", source))?;
    let mut to = File::create(&partial).map_err(file_error("write", &partial))?;
    io::copy(&mut from, &mut to).map_err(file_error("write", &partial))?;
    to.sync_all().map_err(file_error("write", &partial))?;
    fs::rename(&partial, target).map_err(file_error("write", target))?;
    let folder = target.parent().unwrap_or(Path::new("."));
    folder::sync(folder).map_err(file_error("write", folder))
}
