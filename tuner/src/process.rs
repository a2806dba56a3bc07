//! Starts, watches and ends the worker process of one trial. Knows nothing of oracles and journals.
//!
//! The calling process must be the supervisor's alone: it becomes the reaper of every process that a worker leaves
//! behind, and [`Worker::end`] kills all of them.

mod budget;
mod cgroup;
mod leftovers;
mod output;
mod reserve;
mod role;
mod shared_memory;
mod signals;
mod strays;
mod worker;

pub use budget::{Budget, Shortage};
pub use cgroup::TrialCgroups;
pub use leftovers::Machine;
pub use reserve::take_reserve;
pub use role::{ROLE_VARIABLE, Role};
pub use shared_memory::SharedMemory;
pub use signals::Signals;
pub use worker::{set_up_worker, worker_main};

use crate::wire::{Reply, Request, SHARED_VARIABLE};
use cgroup::Cgroup;
use ferrotune_machine::identity::Identity;
use ferrotune_machine::process_tree::{Held, MOST_COUNTED_TASKS, below, held_by};
use output::Output;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, PidfdFlags, Resource, Rlimit, Signal};
use shared_memory::Inodes;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

/// The variable that carries `STUDY/TRIAL/SUPERVISOR` into a worker and whatever it starts. The supervisor is written as its
/// PID namespace, its start time and its process id, with `-` between them.
pub const TRIAL_VARIABLE: &str = "FERROTUNE_TRIAL";

/// By this name a program is found also where its file has been replaced since.
pub const OWN_PROGRAM: &str = "/proc/self/exe";

/// A request longer than this is no request of ours.
const LONGEST_REQUEST_BYTES: usize = 64 << 20;

/// Files that a worker may have open at once: one that leaks them must not take those of the whole machine.
const MOST_FILES: u64 = 1 << 16;

/// Processes and threads that one trial may have; the machine has room for some tens of thousands.
pub const MOST_TASKS: u64 = MOST_COUNTED_TASKS;

/// How much less nice a supervisor is than its workers.
const ADVANTAGE: i32 = 10;

/// Why a worker could not be started or watched.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    /// The program could not be run.
    #[error("cannot start the worker {program}: {source}")]
    Start {
        /// The worker's program.
        program: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// A file in the trial's folder could not be written.
    #[error("cannot write {path}: {source}; free some space or choose another --directory")]
    Write {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The system refused something that watching a process needs.
    #[error("cannot {what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// The system's reason.
        source: io::Error,
    },
}

impl ProcessError {
    /// For `map_err`: names what was tried.
    fn system<E: Into<io::Error>>(what: &'static str) -> impl FnOnce(E) -> ProcessError {
        move |source| ProcessError::System { what, source: source.into() }
    }
}

/// How a worker comes to its objective.
#[derive(Clone, Copy, Debug)]
pub enum Entry<'a> {
    /// A program is run as `PROGRAM worker --linked NAME=LIBRARY … --library LIBRARY --symbol SYMBOL`.
    Library {
        /// The program.
        program: &'a Path,
        /// The shared object that holds the objective.
        library: &'a Library,
        /// What that is linked with beyond the system's own, in the order in which it is to be loaded.
        linked: &'a [Library],
        /// The objective's entry point.
        symbol: &'a str,
    },
    /// The supervisor's own program is run again, as it was itself. Its `main` finds in [`ROLE_VARIABLE`] that it is a
    /// worker, and for which study.
    Main {
        /// The study's folder, as the program names it.
        study: &'a Path,
    },
}

/// A shared object, which this process holds open for its workers.
#[derive(Debug)]
pub struct Library {
    /// The name under which others are linked with it.
    pub name: OsString,
    /// Its bytes.
    pub file: File,
}

impl Library {
    /// Where a worker finds it.
    fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd())
    }
}

/// What a worker is started with.
#[derive(Debug)]
pub struct Launch<'a> {
    /// How it comes to its objective.
    pub entry: Entry<'a>,
    /// The study's name.
    pub study: &'a str,
    /// The trial's number.
    pub number: u64,
    /// The trial's folder, which exists.
    pub folder: &'a Path,
    /// The captured variables.
    pub shared: Option<BorrowedFd<'a>>,
    /// Threads that it computes with.
    pub threads: u64,
    /// Its niceness, as [`go_first`] has found it.
    pub niceness: i32,
    /// The most that it may allocate, in bytes: the system refuses more. Nothing that is only mapped counts. `None`
    /// where device libraries reserve far more than they use.
    pub allocation_limit_bytes: Option<u64>,
    /// Where its cgroup is made, and the most that it may use there, in bytes.
    pub cgroups: Option<(&'a TrialCgroups, u64)>,
}

/// How a worker's process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// It exited with this status.
    Code(i32),
    /// This signal ended it.
    Signal(i32),
    /// It asked for so many bytes, was refused them, and aborted.
    Starved(u64),
}

/// Waits until something happens to one of the workers or `limit` is over; gives how many requests to stop have
/// arrived. What the workers say is then read with [`Worker::next_request`].
pub fn wait<'a>(
    workers: impl IntoIterator<Item = &'a mut Worker>,
    signals: &Signals,
    shared_memory: &mut SharedMemory,
    limit: Duration,
) -> Result<usize, ProcessError> {
    let timeout = Timespec::try_from(limit).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput));
    let timeout = timeout.map_err(ProcessError::system("wait that long"))?;
    let mut workers: Vec<&mut Worker> = workers.into_iter().collect();
    let mut fds = vec![PollFd::new(signals, PollFlags::IN)];
    let pidfds = workers.iter().map(|worker| PollFd::new(&worker.pidfd, PollFlags::IN));
    fds.extend(pidfds);
    for worker in &workers {
        let wire_flags = if worker.outbox.is_empty() { PollFlags::IN } else { PollFlags::IN | PollFlags::OUT };
        fds.extend(worker.output.reader().map(|reader| PollFd::from_borrowed_fd(reader, PollFlags::IN)));
        fds.extend(worker.wire.as_ref().map(|wire| PollFd::new(wire, wire_flags)));
    }
    fds.extend(shared_memory.events().map(|events| PollFd::from_borrowed_fd(events, PollFlags::IN)));
    match rustix::event::poll(&mut fds, Some(&timeout)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(errno) => return Err(ProcessError::system("wait for the workers")(errno)),
    }
    let signalled = !fds[0].revents().is_empty();
    let exited: Vec<bool> = fds[1..=workers.len()].iter().map(|fd| !fd.revents().is_empty()).collect();
    drop(fds);
    // Before anyone is answered: a trial that waits for its answer still has what it has made.
    shared_memory.look(workers.iter_mut().map(|worker| (pid_of(&worker.child), &mut worker.shared_files)));
    for (worker, exited) in workers.iter_mut().zip(exited) {
        worker.exited = exited;
        worker.output.drain();
        worker.flush();
        worker.receive();
    }
    if signalled { signals.take().map_err(ProcessError::system("read a signal")) } else { Ok(0) }
}

/// Kills and reaps every process that workers have left behind. To be called when no worker runs.
pub fn remove_strays() -> Result<(), ProcessError> {
    strays::remove(&[]).map(drop).map_err(ProcessError::system("reap what the workers left"))
}

/// Lets this process run before its workers where both could, as far as the system allows: the watch on a trial's memory
/// must not wait for the trial. Gives the niceness that it had.
pub fn go_first() -> Result<i32, ProcessError> {
    let niceness =
        rustix::process::getpriority_process(None).map_err(ProcessError::system("read the search's priority"))?;
    if let Err(errno) = rustix::process::setpriority_process(None, niceness - ADVANTAGE) {
        // Only root may, and not everywhere.
        tracing::debug!(%errno, "the search is not preferred to its trials");
    }
    Ok(niceness)
}

/// Checks that /proc shows the processes that this process' ids mean: those of a trial are found there, and killed.
///
/// # Errors
/// Where it is that of another PID namespace.
pub fn check_proc() -> Result<(), ProcessError> {
    Identity::own().map(drop).map_err(ProcessError::system("tell the search's processes from others"))
}

/// Kills what is left of trials whose supervisors are dead, in any study of this user and of this PID namespace.
pub fn remove_orphans() {
    let orphans = strays::remove_orphans();
    if orphans > 0 {
        tracing::info!(orphans, "processes of trials whose supervisors died were killed");
    }
}

/// A running worker. Dropped before [`Worker::end`], it is killed.
#[derive(Debug)]
pub struct Worker {
    child: Child,
    pidfd: OwnedFd,
    wire: Option<UnixStream>,
    inbox: Vec<u8>,
    outbox: Vec<u8>,
    output: Output,
    /// Its temporary files, which go with it.
    temporary: PathBuf,
    /// The files of shared memory that its processes have made.
    shared_files: Inodes,
    cgroup: Option<Cgroup>,
    started: Instant,
    exited: bool,
    reaped: bool,
}

impl Worker {
    /// Starts a worker in a process group of its own, with the wire on its standard input and its output going to
    /// `output.log` in the trial's folder.
    pub fn start(launch: &Launch<'_>) -> Result<Worker, ProcessError> {
        let (wire, workers_end) = UnixStream::pair().map_err(ProcessError::system("open the worker's socket"))?;
        wire.set_nonblocking(true).map_err(ProcessError::system("set up the worker's socket"))?;
        let (output, stdout) = Output::open(launch.folder.join("output.log"))?;
        let stderr = stdout.try_clone().map_err(ProcessError::system("open the worker's output"))?;
        let own_pid = std::process::id();
        let (program, mut command) = command(launch.entry);
        command.stdin(OwnedFd::from(workers_end)).stdout(stdout).stderr(stderr).process_group(0);
        let supervisor = Identity::own().map_err(ProcessError::system("tell the search's process from others"))?;
        command.env(TRIAL_VARIABLE, format!("{}/{}/{supervisor}", launch.study, launch.number));
        // candle's own pool stays off, which is faster; and an allocation that fails while a backtrace is being
        // symbolised deadlocks Rust's runtime.
        command.env("RAYON_NUM_THREADS", launch.threads.to_string());
        command.env("CANDLE_NUM_THREADS", "1").env("RUST_BACKTRACE", "0");
        let temporary = launch.folder.join("tmp");
        leftovers::make_temporary(&temporary)
            .map_err(|source| ProcessError::Write { path: temporary.clone(), source })?;
        command.env("TMPDIR", &temporary);
        match launch.shared {
            Some(shared) => command.env(SHARED_VARIABLE, format!("/proc/{own_pid}/fd/{}", shared.as_raw_fd())),
            None => command.env_remove(SHARED_VARIABLE),
        };
        let started = Instant::now();
        let child = command.spawn().map_err(|source| ProcessError::Start { program, source })?;
        let pidfd = rustix::process::pidfd_open(pid_of(&child), PidfdFlags::empty())
            .map_err(ProcessError::system("watch the worker"))?;
        let (inbox, outbox) = (Vec::new(), Vec::new());
        let (exited, reaped) = (false, false);
        let wire = Some(wire);
        let (cgroup, shared_files) = (None, Inodes::new());
        let mut worker = Worker {
            child,
            pidfd,
            wire,
            inbox,
            outbox,
            output,
            temporary,
            shared_files,
            cgroup,
            started,
            exited,
            reaped,
        };
        worker.limit(launch).map_err(ProcessError::system("limit the worker"))?;
        worker.cgroup = launch.cgroups.and_then(|(cgroups, limit_bytes)| {
            let cgroup = cgroups.make(launch.number, limit_bytes);
            let taken = cgroup.and_then(|cgroup| match cgroup.take(worker.pid()) {
                Ok(()) => Ok(cgroup),
                Err(error) => cgroup.remove().and(Err(error)),
            });
            // The other limits hold without it.
            taken.inspect_err(|error| tracing::warn!(trial = launch.number, %error, "the trial has no cgroup")).ok()
        });
        Ok(worker)
    }

    /// Sets the limits that the system itself enforces. They are there before the objective begins, which waits for
    /// the answer to its first request.
    fn limit(&self, launch: &Launch<'_>) -> io::Result<()> {
        let set = |resource, most: u64| {
            let limit = Rlimit { current: Some(most), maximum: Some(most) };
            match rustix::process::prlimit(Some(pid_of(&self.child)), resource, limit) {
                // It has left already; its exit tells why. A lower limit than ours stays.
                Ok(_) | Err(rustix::io::Errno::SRCH | rustix::io::Errno::PERM) => Ok(()),
                Err(errno) => Err(io::Error::from(errno)),
            }
        };
        set(Resource::Nofile, MOST_FILES)?;
        // What its watcher has put itself before is the same for all: a worker has what its user started with.
        rustix::process::setpriority_process(Some(pid_of(&self.child)), launch.niceness)
            .or_else(|errno| if errno == rustix::io::Errno::SRCH { Ok(()) } else { Err(errno) })?;
        launch.allocation_limit_bytes.map_or(Ok(()), |most| set(Resource::Data, most))
    }

    /// The worker's process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// How long it has been running.
    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Whether it had left when [`wait`] returned; no more requests come after those that were read.
    pub fn has_exited(&self) -> bool {
        self.exited
    }

    /// What the worker and everything that it started hold.
    pub fn held(&self) -> Held {
        held_by(pid_of(&self.child))
    }

    /// The next whole request that has arrived; `Err` is the reason why a line is none.
    pub fn next_request(&mut self) -> Option<Result<Request, String>> {
        if let Some(end) = self.inbox.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.inbox.drain(..=end).collect();
            return Some(serde_json::from_slice(&line).map_err(|error| format!("not a request: {error}")));
        }
        if self.inbox.len() > LONGEST_REQUEST_BYTES {
            self.inbox = Vec::new();
            self.wire = None;
            return Some(Err(format!("a request of more than {LONGEST_REQUEST_BYTES} bytes")));
        }
        None
    }

    /// Answers the last request. Never blocks: a worker that does not read cannot hold up its supervisor.
    pub fn reply(&mut self, reply: &Reply) -> Result<(), ProcessError> {
        serde_json::to_writer(&mut self.outbox, reply).map_err(ProcessError::system("write a reply"))?;
        self.outbox.push(b'\n');
        self.flush();
        Ok(())
    }

    /// Kills the worker and all that it started; [`wait`] then reports the exit.
    pub fn kill(&self) {
        // The worker goes first: it must not hear of the others' end, and take it for a result.
        let below = below(pid_of(&self.child));
        // The group is gone only if the worker is, which the next wait reports.
        if let Err(error) = rustix::process::kill_process_group(pid_of(&self.child), Signal::KILL) {
            tracing::debug!(pid = self.child.id(), %error, "the worker's group had left before it was killed");
        }
        strays::kill_all(&below);
        if let Some(cgroup) = &self.cgroup {
            cgroup.kill();
        }
    }

    /// Takes leave of a worker that has exited or been killed: reaps it, removes every process that it left, and
    /// writes what it printed last. `living` are the process ids of the workers that run on. Gives the exit and what
    /// the worker has left behind, in words.
    pub fn end(
        mut self,
        living: &[u32],
        shared_memory: &mut SharedMemory,
    ) -> Result<(Exit, Vec<String>), ProcessError> {
        let status = self.reap().map_err(ProcessError::system("reap the worker"))?;
        let strays = strays::remove(living).map_err(ProcessError::system("reap what the worker left"))?;
        let mut left = Vec::new();
        if strays > 0 {
            left.push(format!("{strays} process{}, killed", if strays == 1 { "" } else { "es" }));
        }
        if let Err(error) = leftovers::remove_temporary(&self.temporary) {
            left.push(format!("temporary files in {}, which cannot be removed: {error}", self.temporary.display()));
        }
        left.extend(shared_memory.remove(&self.shared_files));
        if living.is_empty() {
            left.extend(shared_memory.report_new());
        }
        self.output.drain();
        // What the trial came to must not be lost with what it printed.
        if let Err(error) = self.output.save() {
            tracing::warn!(%error, "the output of a worker is lost");
        }
        let exit = match (status.code(), status.signal()) {
            (Some(code), _) => Exit::Code(code),
            (None, Some(libc::SIGABRT)) => {
                self.output.refused_bytes().map_or(Exit::Signal(libc::SIGABRT), Exit::Starved)
            }
            (None, Some(libc::SIGKILL)) if self.cgroup.as_ref().is_some_and(Cgroup::was_over) => Exit::Starved(0),
            (None, signal) => Exit::Signal(signal.unwrap_or_default()),
        };
        if let Some(Err(error)) = self.cgroup.as_ref().map(Cgroup::remove) {
            left.push(format!("a cgroup, which cannot be removed: {error}"));
        }
        Ok((exit, left))
    }

    fn reap(&mut self) -> io::Result<ExitStatus> {
        // The group goes before the leader is reaped: until then nobody else can have its number.
        self.kill();
        let status = self.child.wait()?;
        self.reaped = true;
        Ok(status)
    }

    /// Reads what has arrived on the wire.
    fn receive(&mut self) {
        let mut chunk = [0; 1 << 14];
        while let Some(wire) = self.wire.as_mut() {
            match wire.read(&mut chunk) {
                Ok(length) if length > 0 => self.inbox.extend_from_slice(&chunk[..length]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The worker has closed its end, or died with unread replies: its exit tells more than the socket.
                Ok(_) | Err(_) => self.wire = None,
            }
            if self.inbox.len() > LONGEST_REQUEST_BYTES {
                return;
            }
        }
    }

    /// Writes as much of the waiting replies as the socket takes.
    fn flush(&mut self) {
        while let Some(wire) = self.wire.as_mut()
            && !self.outbox.is_empty()
        {
            match wire.write(&self.outbox) {
                Ok(length) => drop(self.outbox.drain(..length)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // A full socket is written again when the worker reads; a broken one has nobody to read it, while
                // requests from before the break still wait in it.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => self.outbox.clear(),
            }
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if !self.reaped
            && let Err(error) = self.reap()
        {
            tracing::warn!(pid = self.child.id(), %error, "a worker could not be reaped");
        }
    }
}

/// The program of a worker, and its arguments.
fn command(entry: Entry<'_>) -> (PathBuf, Command) {
    match entry {
        Entry::Library { program, library, linked, symbol } => {
            let mut command = Command::new(program);
            command.arg("worker");
            for library in linked {
                let mut named = library.name.clone();
                named.push("=");
                named.push(library.path());
                command.arg("--linked").arg(named);
            }
            command.arg("--library").arg(library.path()).args(["--symbol", symbol]);
            (program.to_path_buf(), command)
        }
        Entry::Main { study } => {
            let mut arguments = std::env::args_os();
            let mut command = Command::new(OWN_PROGRAM);
            // Some programs look at their own name.
            command.arg0(arguments.next().unwrap_or_default()).args(arguments);
            command.env(ROLE_VARIABLE, Role::Worker { study: study.to_path_buf() }.to_variable());
            (PathBuf::from(OWN_PROGRAM), command)
        }
    }
}

fn pid_of(child: &Child) -> Pid {
    Pid::from_child(child)
}
