//! A search with a process for each trial: the program starts itself again as the supervisor, and reads its events. Trains nothing.

use crate::callback::{began, ended, tell};
use crate::{Callback, Control, Ending, Finish, StudyError, TrialRecord};
use ferrotune_journal::Journal;
use ferrotune_machine::own;
use ferrotune_space::event::Event;
use ferrotune_space::spec::StudySpec;
use ferrotune_tuner::process::{ROLE_VARIABLE, Role, set_up_worker};
use ferrotune_tuner::supervisor::main_of_program;
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Supervises the search `spec` in this process, and then exits.
pub(crate) fn supervise(spec: &Path) -> ! {
    let watcher = io::stdin().as_fd().try_clone_to_owned().and_then(|watcher| {
        rustix::stdio::dup2_stdin(File::open("/dev/null")?)?;
        Ok(watcher)
    });
    let status = match watcher {
        // Threads that `main` started before would receive the signals that are meant for the search.
        Ok(watcher) if threads() > 1 => refuse(watcher),
        Ok(watcher) => main_of_program(spec, watcher),
        Err(error) => {
            eprintln!("ferrotune: the search has nobody to report to: {error}");
            ExitCode::FAILURE
        }
    };
    std::process::exit(i32::from(status != ExitCode::SUCCESS))
}

/// Whether this process runs a trial's objective.
static IN_OBJECTIVE: AtomicBool = AtomicBool::new(false);

/// Records that this process now runs a trial's objective.
pub(crate) fn enter_objective() {
    IN_OBJECTIVE.store(true, Ordering::Relaxed);
}

/// Whether a trial's objective runs, and not the program's code before it.
pub(crate) fn is_in_objective() -> bool {
    IN_OBJECTIVE.load(Ordering::Relaxed)
}

/// Makes this process a worker, which ends when its supervisor ends.
pub(crate) fn become_worker() {
    if let Err(reason) = set_up_worker() {
        eprintln!("ferrotune: {reason}");
        std::process::exit(1);
    }
}

/// The exit status of a worker that cannot run its trials for a reason of the system.
pub(crate) fn not_run(reason: String) -> i32 {
    eprintln!("ferrotune: {reason}");
    1
}

fn threads() -> usize {
    own::threads().map_or(1, Iterator::count)
}

fn refuse(watcher: OwnedFd) -> ExitCode {
    let message = "the program has started threads before Study::builder(); call that first in `main`".to_owned();
    let line = serde_json::to_vec(&Event::Error { message }).map_err(io::Error::from);
    let sent = line.and_then(|mut line| {
        line.push(b'\n');
        File::from(watcher).write_all(&line)
    });
    if let Err(error) = sent {
        eprintln!("ferrotune: nobody hears that the program has started threads before Study::builder(): {error}");
    }
    ExitCode::FAILURE
}

/// Runs a supervisor of `spec` in another process, and reports its events to the callbacks.
pub(crate) fn search(spec: &StudySpec, callbacks: &mut [Box<dyn Callback>]) -> Result<Finish, StudyError> {
    // The supervisor receives Ctrl-C, too, and stops the search: this process stays to return the result.
    let idle = idle().map_err(StudyError::process("cannot wait for an interrupt"))?;
    idle.store(false, Ordering::Relaxed);
    let found = listen(spec, callbacks);
    idle.store(true, Ordering::Relaxed);
    let finish = found?;
    callbacks.iter_mut().for_each(|callback| callback.on_search_end(&finish));
    Ok(finish)
}

/// A flag that is true while no search runs, so that an interrupt then ends the program as it did before the first search.
fn idle() -> io::Result<Arc<AtomicBool>> {
    static IDLE: Mutex<Option<Arc<AtomicBool>>> = Mutex::new(None);
    let mut known = IDLE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(idle) = &*known {
        return Ok(Arc::clone(idle));
    }
    let idle = Arc::new(AtomicBool::new(true));
    signal_hook::flag::register_conditional_default(signal_hook::consts::SIGINT, Arc::clone(&idle))?;
    Ok(Arc::clone(known.insert(idle)))
}

fn listen(spec: &StudySpec, callbacks: &mut [Box<dyn Callback>]) -> Result<Finish, StudyError> {
    let mut file = tempfile::NamedTempFile::new().map_err(StudyError::process("cannot write the search down"))?;
    let text = serde_json::to_vec(spec).map_err(io::Error::from);
    text.and_then(|text| file.write_all(&text)).map_err(StudyError::process("cannot write the search down"))?;
    let (mut supervisor, events) = start(file.path())?;
    let finish = read_events(events, supervisor.id(), callbacks);
    // The supervisor exits when its events are no longer read, or when it has no more.
    supervisor.wait().map_err(StudyError::process("cannot wait for the search's supervisor"))?;
    finish
}

fn start(spec: &Path) -> Result<(Child, UnixStream), StudyError> {
    let failed = "cannot start the search's supervisor";
    let (events, supervisors_end) = UnixStream::pair().map_err(StudyError::process(failed))?;
    let mut arguments = std::env::args_os();
    let mut command = Command::new(own::PROGRAM);
    command.arg0(arguments.next().unwrap_or_default()).args(arguments);
    command.env(ROLE_VARIABLE, Role::Supervisor { spec: spec.to_path_buf() }.to_variable());
    // The program's output before the study was already printed by this process.
    command.stdin(OwnedFd::from(supervisors_end)).stdout(Stdio::null());
    let supervisor = command.spawn().map_err(StudyError::process(failed))?;
    Ok((supervisor, events))
}

/// Metrics by step.
type Reports = BTreeMap<u64, BTreeMap<String, Option<f64>>>;

fn read_events(events: UnixStream, supervisor: u32, callbacks: &mut [Box<dyn Callback>]) -> Result<Finish, StudyError> {
    let broken = StudyError::process;
    let mut is_stopping = false;
    // The reports of trials that have not ended, because the event of a trial's end does not contain them.
    let mut reported: BTreeMap<u64, Reports> = BTreeMap::new();
    for line in BufReader::new(events).lines() {
        let line = line.map_err(broken("cannot hear the search's supervisor"))?;
        let event = serde_json::from_str(&line).map_err(io::Error::from);
        let control = match event.map_err(broken("cannot understand the search's supervisor"))? {
            Event::Opened { folder, earlier_trials } => {
                let earlier = Journal::read(&folder)?.trials.into_iter().filter(|trial| trial.ending.is_none());
                reported.extend(earlier.map(|trial| (trial.number, trial.metrics)));
                tell(callbacks, |callback| callback.on_search_begin(&folder, earlier_trials))
            }
            Event::TrialStarted { trial, execution, .. } => began(callbacks, trial, execution),
            Event::Executed { trial, execution, values } => {
                // The next execution counts its steps from 0.
                reported.remove(&trial);
                tell(callbacks, |callback| callback.on_execution_end(trial, execution, &values))
            }
            Event::Reported { trial, step, metrics } => {
                let control = tell(callbacks, |callback| callback.on_report(trial, step, &metrics));
                reported.entry(trial).or_default().entry(step).or_default().extend(metrics);
                control
            }
            // A cancelled trial continues in a later search, and its end is not recorded.
            Event::TrialEnded { record } if record.ending == Some(Ending::Cancelled) => Control::Continue,
            Event::TrialEnded { record } => {
                let metrics = reported.remove(&record.number).unwrap_or_default();
                ended(callbacks, &TrialRecord { metrics, ..record })
            }
            Event::Progress(_) => Control::Continue,
            Event::Finished { reason } => return Ok(reason),
            Event::Error { message } => return Err(StudyError::Supervisor { message }),
        };
        if control == Control::Stop && !is_stopping {
            interrupt(supervisor)?;
            is_stopping = true;
        }
    }
    Err(broken("the search's supervisor ended without a word")(io::ErrorKind::UnexpectedEof.into()))
}

/// Asks the supervisor to stop after its trials' current steps. A second signal would stop it at once.
fn interrupt(supervisor: u32) -> Result<(), StudyError> {
    let pid = i32::try_from(supervisor).ok().and_then(Pid::from_raw);
    let signalled = pid.map_or(Ok(()), |pid| kill_process(pid, Signal::INT));
    signalled.map_err(|errno| StudyError::process("cannot stop the search")(errno.into()))
}
