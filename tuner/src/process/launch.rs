//! Starts a worker with the limits that the system enforces on it. The limits are set before the objective begins, because
//! the objective waits for the answer to its first request.

use super::cgroup::Cgroup;
use super::control::Control;
use super::leftovers;
use super::output::Output;
use super::requests::RequestSocket;
use super::shared_memory::Inodes;
use super::stay::STAY_VARIABLE;
use super::{ProcessError, ROLE_VARIABLE, Role, TRIAL_VARIABLE, TrialCgroups, Worker};
use ferrotune_machine::handle::Handle;
use ferrotune_machine::identity::Identity;
use ferrotune_machine::own;
use ferrotune_space::wire::{BUDGET_VARIABLE, DEVICE_MEMORY_VARIABLE, PLUGIN_VARIABLE, PluginCopy, SHARED_VARIABLE};
use rustix::io::Errno;
use rustix::process::{Pid, Resource, Rlimit, Signal};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// The number of files that a worker may have open at once: a worker that leaks files must not use up those of the whole
/// machine.
const MOST_FILES: u64 = 1 << 16;

/// Priority boost of the supervisor, so that its memory watch runs before the trials that it watches.
const PRIORITY_BOOST: i32 = 10;

/// The way in which a worker gets its objective.
#[derive(Clone, Copy, Debug)]
pub enum Entry<'a> {
    /// A separate program, run as `PROGRAM trial --linked NAME=LIBRARY … --library LIBRARY --symbol SYMBOL`.
    Library {
        /// The path of the program.
        program: &'a Path,
        /// The shared object that holds the objective.
        library: &'a Library,
        /// The libraries that the objective is linked with beyond the system's own, in loading order.
        linked: &'a [Library],
        /// The objective's entry point.
        symbol: &'a str,
    },
    /// The supervisor's own program, run again with its own arguments. Its `main` reads from [`ROLE_VARIABLE`] that it is a
    /// worker, and for which study.
    Main {
        /// The study's folder, as the program names it.
        study: &'a Path,
    },
}

/// A shared object, which this process holds open for its workers.
#[derive(Debug)]
pub struct Library {
    /// The name under which other libraries are linked with it.
    pub name: OsString,
    /// The file with its bytes.
    pub file: File,
}

impl Library {
    /// The path by which a worker opens the library.
    pub(crate) fn path(&self) -> PathBuf {
        own::path_for_others(&self.file)
    }
}

/// The settings with which a worker is started.
#[derive(Debug)]
pub struct Launch<'a> {
    /// The way in which the worker gets its objective.
    pub entry: Entry<'a>,
    /// The study's name.
    pub study: &'a str,
    /// The trial's number.
    pub number: u64,
    /// The trial's folder, which exists.
    pub folder: &'a Path,
    /// The captured variables, in a file.
    pub shared: Option<BorrowedFd<'a>>,
    /// The plugin that the worker loads for its device, if the study names a plugin file.
    pub plugin: Option<&'a PluginCopy>,
    /// The number of threads that the worker computes with.
    pub threads: u64,
    /// The niceness of the worker's process: the value that [`go_first`] returned.
    pub niceness: i32,
    /// The largest memory that the worker may hold, in bytes.
    pub budget_bytes: u64,
    /// The largest number of bytes that the worker may allocate; the system refuses more. Mapped files are not included.
    /// `None` for a device whose libraries reserve far more memory than they use.
    pub allocation_limit_bytes: Option<u64>,
    /// The parent of the worker's cgroup, and the memory limit of that cgroup in bytes.
    pub cgroups: Option<(&'a TrialCgroups, u64)>,
    /// The memory of its device that the worker may use, as the value of [`DEVICE_MEMORY_VARIABLE`].
    pub device_memory: Option<String>,
    /// Whether the worker is resident: it stays after this trial, for later trials.
    pub stays: bool,
}

/// Raises the priority of this process above that of its workers, as far as the system allows. Returns the earlier
/// niceness, which the workers get.
pub fn go_first() -> Result<i32, ProcessError> {
    let niceness =
        rustix::process::getpriority_process(None).map_err(ProcessError::system("read the search's priority"))?;
    if let Err(errno) = rustix::process::setpriority_process(None, niceness - PRIORITY_BOOST) {
        // Only root may raise the priority, and not on every system.
        tracing::debug!(%errno, "the search has no higher priority than its trials");
    }
    Ok(niceness)
}

impl Worker {
    /// Starts a worker in a process group of its own. Its standard input is the socket for its requests; for a resident
    /// worker it is the control socket, which brings that socket. Its output goes to `output.log` in the trial's folder.
    pub fn start(launch: &Launch<'_>) -> Result<Worker, ProcessError> {
        let (requests, workers_end) = UnixStream::pair().map_err(ProcessError::system("open the worker's socket"))?;
        let requests = RequestSocket::new(requests).map_err(ProcessError::system("set up the worker's socket"))?;
        let (output, stdout) = Output::open(launch.folder.join("output.log"))?;
        let stderr = stdout.try_clone().map_err(ProcessError::system("open the worker's output"))?;
        let temporary = launch.folder.join("tmp");
        leftovers::make_temporary(&temporary)
            .map_err(|source| ProcessError::Write { path: temporary.clone(), source })?;
        let (program, mut command) = command(launch.entry);
        let control = if launch.stays {
            let ends = UnixStream::pair().and_then(|(ours, theirs)| Ok((Control::new(ours)?, theirs)));
            let (control, theirs) = ends.map_err(ProcessError::system("open the worker's socket"))?;
            // The first control message brings the worker its socket and its output.
            control
                .hand_over(workers_end.as_fd(), stdout.as_fd())
                .map_err(ProcessError::system("give the worker a trial"))?;
            command.stdin(OwnedFd::from(theirs)).env(STAY_VARIABLE, "1");
            Some(control)
        } else {
            command.stdin(OwnedFd::from(workers_end)).env_remove(STAY_VARIABLE);
            None
        };
        command.stdout(stdout).stderr(stderr).process_group(0);
        let supervisor = Identity::own().map_err(ProcessError::system("tell the search's process from others"))?;
        command.env(TRIAL_VARIABLE, format!("{}/{}/{supervisor}", launch.study, launch.number));
        command.env("TMPDIR", &temporary);
        set_environment(&mut command, launch);
        let started = Instant::now();
        let child = command.spawn().map_err(|source| ProcessError::Start { program, source })?;
        let pid = Pid::from_child(&child);
        let process = Handle::of_child(pid).map_err(ProcessError::system("watch the worker"))?;
        let mut worker = Worker {
            child,
            process,
            requests,
            output,
            control,
            returned: None,
            kept: BTreeSet::new(),
            killed: BTreeSet::new(),
            below: BTreeSet::new(),
            temporary,
            shared_files: Inodes::new(),
            cgroup: None,
            started,
            exited: false,
            reaped: false,
        };
        set_limits(pid, launch).map_err(ProcessError::system("limit the worker"))?;
        worker.cgroup = join_cgroup(worker.pid(), launch);
        Ok(worker)
    }
}

/// How often an objective is loaded for a check that another process ends.
const LOADS: usize = 3;

/// Loads an objective in a separate process (`PROGRAM load …`), which runs only its initialisers. A process that is
/// killed says nothing about this host, so that another one follows.
///
/// # Errors
/// If the process cannot be started, each of them is killed, or this host cannot run the objective: with the dynamic
/// linker's reason, or the process's exit.
pub(crate) fn check_that_it_loads(
    program: &Path,
    library: &Library,
    linked: &[Library],
    symbol: &str,
) -> Result<(), ProcessError> {
    let mut command = Command::new(program);
    name_libraries(command.arg("load"), library, linked, symbol);
    for _ in 0..LOADS {
        let output =
            command.output().map_err(|source| ProcessError::Start { program: program.to_path_buf(), source })?;
        if output.status.signal() == Some(Signal::KILL.as_raw()) {
            continue;
        }
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return match output.status.success() {
            true => Ok(()),
            false if said.is_empty() => Err(ProcessError::Unloadable { reason: output.status.to_string() }),
            false => Err(ProcessError::Unloadable { reason: said }),
        };
    }
    Err(ProcessError::KilledWhileLoading { times: LOADS })
}

fn name_libraries(command: &mut Command, library: &Library, linked: &[Library], symbol: &str) {
    for library in linked {
        let mut named = library.name.clone();
        named.push("=");
        named.push(library.path());
        command.arg("--linked").arg(named);
    }
    command.arg("--library").arg(library.path()).args(["--symbol", symbol]);
}

/// The program of a worker, and a command with its arguments.
fn command(entry: Entry<'_>) -> (PathBuf, Command) {
    match entry {
        Entry::Library { program, library, linked, symbol } => {
            let mut command = Command::new(program);
            name_libraries(command.arg("trial"), library, linked, symbol);
            (program.to_path_buf(), command)
        }
        Entry::Main { study } => {
            let mut arguments = std::env::args_os();
            let mut command = Command::new(own::PROGRAM);
            // Some programs read their own name.
            command.arg0(arguments.next().unwrap_or_default()).args(arguments);
            command.env(ROLE_VARIABLE, Role::Worker { study: study.to_path_buf() }.to_variable());
            (PathBuf::from(own::PROGRAM), command)
        }
    }
}

fn set_environment(command: &mut Command, launch: &Launch<'_>) {
    // Trials are faster without candle's own thread pool.
    command.env("RAYON_NUM_THREADS", launch.threads.to_string()).env("CANDLE_NUM_THREADS", "1");
    // An allocation that fails while Rust's runtime prints a backtrace deadlocks the process.
    command.env("RUST_BACKTRACE", "0");
    ferrotune_machine::child::quiet_drivers(command);
    ferrotune_machine::child::large_pages(command);
    command.env(BUDGET_VARIABLE, launch.budget_bytes.to_string());
    match &launch.device_memory {
        Some(memory) => command.env(DEVICE_MEMORY_VARIABLE, memory),
        None => command.env_remove(DEVICE_MEMORY_VARIABLE),
    };
    match launch.shared {
        Some(shared) => command.env(SHARED_VARIABLE, own::path_for_others(shared)),
        None => command.env_remove(SHARED_VARIABLE),
    };
    match launch.plugin {
        Some(plugin) => command.env(PLUGIN_VARIABLE, plugin.to_variable()),
        None => command.env_remove(PLUGIN_VARIABLE),
    };
}

fn set_limits(pid: Pid, launch: &Launch<'_>) -> io::Result<()> {
    let set = |resource, most: u64| {
        let limit = Rlimit { current: Some(most), maximum: Some(most) };
        match rustix::process::prlimit(Some(pid), resource, limit) {
            // A worker that has already exited is reported by its exit status. A lower limit that is already set stays.
            Ok(_) | Err(Errno::SRCH | Errno::PERM) => Ok(()),
            Err(errno) => Err(io::Error::from(errno)),
        }
    };
    set(Resource::Nofile, MOST_FILES)?;
    // The worker has inherited the supervisor's raised priority.
    match rustix::process::setpriority_process(Some(pid), launch.niceness) {
        Ok(()) | Err(Errno::SRCH) => {}
        Err(errno) => return Err(errno.into()),
    }
    launch.allocation_limit_bytes.map_or(Ok(()), |most| set(Resource::Data, most))
}

/// Makes the trial's cgroup, and moves the worker into it. Without a cgroup, the other limits still apply.
fn join_cgroup(pid: u32, launch: &Launch<'_>) -> Option<Cgroup> {
    let (cgroups, limit_bytes) = launch.cgroups?;
    let joined = cgroups.make(launch.number, limit_bytes).and_then(|cgroup| match cgroup.take(pid) {
        Ok(()) => Ok(cgroup),
        Err(error) => cgroup.remove().and(Err(error)),
    });
    joined.inspect_err(|error| tracing::warn!(trial = launch.number, %error, "the trial has no cgroup")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    type TestResult = Result<(), Box<dyn std::error::Error + Send + Sync>>;

    /// Checks with a program that is killed so many times before it loads the objective.
    fn check_with(kills: usize) -> Result<Result<(), ProcessError>, Box<dyn std::error::Error + Send + Sync>> {
        let folder = tempfile::tempdir()?;
        let program = folder.path().join("program");
        let begun = folder.path().join("begun");
        let script =
            format!("#!/bin/sh\necho >> '{0}'\n[ $(wc -l < '{0}') -gt {kills} ] || kill -9 $$\n", begun.display());
        // A process that another test starts meanwhile would have the file open, and the system runs no such file.
        let write = "printf %s \"$0\" > \"$1\" && chmod 700 \"$1\"";
        assert!(Command::new("sh").args(["-c", write, &script]).arg(&program).status()?.success());
        let library = Library { name: "objective".into(), file: tempfile::tempfile()? };
        Ok(check_that_it_loads(&program, &library, &[], "main"))
    }

    #[test]
    fn a_check_whose_process_is_killed_is_repeated() -> TestResult {
        check_with(LOADS - 1)??;
        assert!(matches!(check_with(LOADS)?, Err(ProcessError::KilledWhileLoading { times: LOADS })));
        Ok(())
    }
}
