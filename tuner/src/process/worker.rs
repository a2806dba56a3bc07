//! The code that runs in the worker process itself, from its first instruction to the objective's entry point.
#![expect(unsafe_code, reason = "loads and calls the objective's shared object")]

use super::malloc::keep_freed_memory;
use super::stay::{run_trials, stays};
use super::{TRIAL_VARIABLE, signals};
use ferrotune_machine::identity::Identity;
use ferrotune_machine::own;
use ferrotune_space::record::Ending;
use ferrotune_space::wire::Request;
use libloading::Library;
use rustix::process::{Resource, Rlimit};
use std::error::Error as _;
use std::ffi::OsString;
use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;

/// The name of the objective's library in errors.
const OBJECTIVE: &str = "objective.so";

/// The exit status of a worker that did not reach its objective.
const NOT_STARTED: i32 = 125;

/// Runs the objective `--symbol NAME` of `--library FILE` and exits with its result, without running any destructor of the
/// user's code. The libraries that the objective is linked with are loaded first, each given as `--linked NAME=FILE`: the
/// dynamic linker then finds them by the name in the library itself, and searches for no other file.
///
/// `args` are the arguments after `worker`. Call this function before anything else: no thread may be running.
pub fn worker_main(args: impl IntoIterator<Item = OsString>) -> ! {
    let status = set_up_worker().and_then(|()| {
        let (objective, mut entry) = (parse(args)?, None);
        run_trials(|| call(&objective, &mut entry).unwrap_or_else(not_started))
    });
    let status = status.unwrap_or_else(|reason| {
        // The standard input of a resident worker accepts no requests.
        if stays() {
            report_on_stderr(&reason);
            NOT_STARTED
        } else {
            not_started(reason)
        }
    });
    // SAFETY: leaves at once; nothing of this process is used again.
    unsafe { libc::_exit(status) }
}

/// Loads the libraries that [`worker_main`] would load with these arguments, and runs only their initialisers.
///
/// # Errors
/// If this host cannot run them, for example with a glibc that is too old: the dynamic linker's reason.
pub fn load_objective(args: impl IntoIterator<Item = OsString>) -> Result<(), String> {
    entry_of(&parse(args)?).map(drop)
}

/// Makes this process a worker. It dies with its supervisor, is the first process that the system kills when memory runs
/// out, leaves no core dump, keeps freed memory for the next step, and has the default action for every signal. It adopts
/// the orphans among its descendants, so that they stay in its process tree. The error is one line.
pub fn set_up_worker() -> Result<(), String> {
    own::end_with_parent().map_err(|error| format!("cannot tie the worker to its supervisor: {error}"))?;
    let tag = std::env::var(TRIAL_VARIABLE)
        .map_err(|_| format!("{TRIAL_VARIABLE} is not set; workers are started by `ferrotune supervise`"))?;
    let supervisor = tag.rsplit('/').next().and_then(Identity::parse).map(|supervisor| supervisor.pid);
    // The supervisor may have died before the system call above took effect.
    if supervisor.is_none() || rustix::process::getppid() != supervisor {
        return Err(format!("the supervisor of {tag} is gone"));
    }
    keep_freed_memory();
    signals::reset().map_err(|error| format!("cannot reset the worker's signals: {error}"))?;
    own::adopt_orphans().map_err(|error| format!("cannot become the reaper of the trial's processes: {error}"))?;
    rustix::process::setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })
        .map_err(|errno| format!("cannot switch core dumps off: {errno}"))?;
    if let Err(error) = own::set_oom_score(1000) {
        // Some sandboxes forbid this setting. The supervisor's own memory checks usually act first.
        report_on_stderr(&format!("oom_score_adj stays as it is: {error}"));
    }
    Ok(())
}

/// The libraries to load, and the function to call.
struct Objective {
    /// The name and the file of each linked library.
    linked: Vec<(String, String)>,
    library: String,
    symbol: String,
}

fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Objective, String> {
    const USAGE: &str = "usage: ferrotune trial [--linked NAME=FILE]… --library FILE --symbol NAME";
    let (mut linked, mut library, mut symbol) = (Vec::new(), None, None);
    let mut args = args.into_iter();
    while let Some(name) = args.next() {
        let value = args.next().and_then(|value| value.into_string().ok()).ok_or(USAGE)?;
        match name.to_str() {
            Some("--linked") => {
                let (name, file) = value.rsplit_once('=').ok_or(USAGE)?;
                linked.push((name.to_owned(), file.to_owned()));
            }
            Some("--library") => library = Some(value),
            Some("--symbol") => symbol = Some(value),
            _ => return Err(USAGE.to_owned()),
        }
    }
    let (library, symbol) = library.zip(symbol).ok_or(USAGE)?;
    Ok(Objective { linked, library, symbol })
}

/// The function that an objective's library exports.
type EntryPoint = unsafe extern "C" fn() -> i32;

/// Runs the objective. Its library is loaded for the first trial.
fn call(objective: &Objective, loaded: &mut Option<EntryPoint>) -> Result<i32, String> {
    let entry = match loaded {
        Some(entry) => *entry,
        None => *loaded.insert(entry_of(objective)?),
    };
    // SAFETY: the kernel exports the entry point with this signature, and its library stays loaded.
    Ok(unsafe { entry() })
}

fn entry_of(Objective { linked, library, symbol }: &Objective) -> Result<EntryPoint, String> {
    for (name, file) in linked {
        // The library's code and its thread-local destructors must stay loaded until the process exits.
        std::mem::forget(load(name, file)?);
    }
    let loaded = load(OBJECTIVE, library)?;
    // SAFETY: the kernel exports the entry point with this signature.
    let entry = unsafe { loaded.get::<EntryPoint>(symbol.as_str()) };
    let entry = *entry.map_err(|error| format!("no entry point {symbol} in {OBJECTIVE}: {}", detail(&error)))?;
    std::mem::forget(loaded);
    Ok(entry)
}

/// Loads a library from a file that has no name of its own.
fn load(name: &str, file: &str) -> Result<Library, String> {
    // SAFETY: loading runs the initialisers of a library that the user's own kernel has compiled, or that the user trusts:
    // the supervisor hands over no other.
    let loaded = unsafe { Library::new(file) };
    loaded.map_err(|error| format!("cannot load the objective: {}", detail(&error).replace(file, name)))
}

/// The dynamic linker's own message, which libloading keeps as the source of its error.
fn detail(error: &libloading::Error) -> String {
    error.source().map_or_else(|| error.to_string(), ToString::to_string)
}

/// Reports to the supervisor and to the log why the objective was not reached. Returns the exit status.
fn not_started(reason: String) -> i32 {
    report_on_stderr(&reason);
    let request = Request::Fail { ending: Ending::Failed { reason } };
    let sent = serde_json::to_vec(&request).map_err(io::Error::from).and_then(|mut line| {
        line.push(b'\n');
        UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?).write_all(&line)
    });
    if let Err(error) = sent {
        report_on_stderr(&format!("the supervisor cannot be told: {error}"));
    }
    NOT_STARTED
}

fn report_on_stderr(line: &str) {
    eprintln!("ferrotune trial: {line}");
}
