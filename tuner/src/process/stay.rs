//! The trial loop of a resident worker: it runs one trial after another in one process, for a device that takes one process
//! at a time. Each trial gets its own socket, output, working folder and file mode; values that the objective keeps in
//! statics stay.
#![expect(unsafe_code, reason = "a signal handler has no safe interface")]

use super::control::{Ends, Trials};
use super::malloc::return_freed_memory;
use rustix::fs::Mode;
use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

/// The environment variable of a resident worker, whose standard input is then the socket of [`Trials`].
pub(super) const STAY_VARIABLE: &str = "FERROTUNE_WORKER_STAYS";

/// Whether the supervisor has asked this worker to exit.
static TO_LEAVE: AtomicBool = AtomicBool::new(false);

extern "C" fn note_to_leave(_: libc::c_int) {
    TO_LEAVE.store(true, Ordering::Relaxed);
}

pub(super) fn stays() -> bool {
    std::env::var_os(STAY_VARIABLE).is_some()
}

/// Calls `run` for each trial that the supervisor gives this worker: once, unless the worker is resident. Returns the
/// worker's exit status, or a one-line error about a refused system call.
///
/// A resident worker exits after the trial during which SIGTERM has arrived, or when there are no more trials.
pub fn run_trials(mut run: impl FnMut() -> i32) -> Result<i32, String> {
    if !stays() {
        return Ok(run());
    }
    stay(&mut run).map_err(|error| format!("the worker cannot go on to the next trial: {error}"))
}

fn stay(run: &mut dyn FnMut() -> i32) -> io::Result<i32> {
    handle_termination()?;
    let mut trials = Trials::over(io::stdin().as_fd())?;
    let surroundings = Surroundings::now()?;
    while !TO_LEAVE.load(Ordering::Relaxed)
        && let Some(ends) = trials.next()?
    {
        surroundings.restore()?;
        enter(ends)?;
        let status = run();
        leave()?;
        return_freed_memory();
        trials.end(status)?;
    }
    Ok(0)
}

/// Installs the handler of SIGTERM without `SA_RESTART`: the signal wakes a worker that waits for a trial.
fn handle_termination() -> io::Result<()> {
    // SAFETY: an all-zero `sigaction` is valid: no flags, and an empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = note_to_leave as extern "C" fn(libc::c_int) as libc::sighandler_t;
    // SAFETY: the handler only stores to an atomic, and the old action is not asked for.
    match unsafe { libc::sigaction(libc::SIGTERM, &action, std::ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The process state that each trial begins with.
struct Surroundings {
    folder: PathBuf,
    mask: Mode,
}

impl Surroundings {
    fn now() -> io::Result<Surroundings> {
        let mask = rustix::process::umask(Mode::empty());
        rustix::process::umask(mask);
        Ok(Surroundings { folder: std::env::current_dir()?, mask })
    }

    fn restore(&self) -> io::Result<()> {
        rustix::process::umask(self.mask);
        std::env::set_current_dir(&self.folder)
    }
}

fn enter(ends: Ends) -> io::Result<()> {
    rustix::stdio::dup2_stdin(&ends.requests)?;
    rustix::stdio::dup2_stdout(&ends.output)?;
    rustix::stdio::dup2_stderr(&ends.output)?;
    Ok(())
}

/// Detaches this process from the trial's files. The supervisor can then read the log to its end, and output of threads
/// between two trials is discarded.
fn leave() -> io::Result<()> {
    let nowhere = File::options().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&nowhere)?;
    rustix::stdio::dup2_stdout(&nowhere)?;
    rustix::stdio::dup2_stderr(&nowhere)?;
    Ok(())
}
