//! The worker process of one trial, or of several one after another: how it is started, watched and ended. Knows nothing of
//! oracles and journals.
//!
//! The calling process must do nothing else than supervise: it becomes the parent of every process that a worker leaves
//! behind, and [`Worker::end`] kills all of them.

mod budget;
mod cgroup;
mod control;
mod end;
mod exclusive;
mod handover;
mod launch;
mod leftovers;
mod malloc;
mod output;
mod reach;
mod requests;
mod reserve;
mod role;
mod shared_memory;
mod signals;
mod stay;
mod strays;
mod watch;
mod worker;

pub use budget::{Budget, Shortage};
pub use cgroup::TrialCgroups;
pub use end::Exit;
pub use exclusive::ExclusiveDevice;
pub use handover::Settled;
pub(crate) use launch::check_that_it_loads;
pub use launch::{Entry, Launch, Library, go_first};
pub use leftovers::Machine;
pub use malloc::keep_freed_memory;
pub use reach::Reach;
pub use reserve::take_reserve;
pub use role::{ROLE_VARIABLE, Role};
pub use shared_memory::SharedMemory;
pub use signals::{SignalReader, Signals};
pub use stay::run_trials;
pub use strays::remove_orphans;
pub use watch::wait;
pub use worker::{load_objective, set_up_worker, worker_main};

use cgroup::Cgroup;
use control::Control;
use ferrotune_machine::identity::Identity;
use ferrotune_machine::process_tree::MOST_COUNTED_TASKS;
use output::Output;
use requests::RequestSocket;
use rustix::process::Pid;
use shared_memory::Inodes;
use std::collections::BTreeSet;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::Child;
use std::time::Instant;

/// The variable that carries `STUDY/TRIAL/SUPERVISOR` into a worker and whatever it starts; the trial is the first one of a
/// worker that stays. The supervisor is written as an [`Identity`].
pub const TRIAL_VARIABLE: &str = "FERROTUNE_TRIAL";

/// This path opens the program that runs, even after its file has been replaced.
pub const OWN_PROGRAM: &str = "/proc/self/exe";

/// Processes and threads that one trial may have; the machine has room for some tens of thousands.
pub const MOST_TASKS: u64 = MOST_COUNTED_TASKS;

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
    /// This host cannot run an objective that was compiled on another one.
    #[error(
        "this host cannot run the objective ({reason}); use one with a glibc and a processor at least as new as where it was compiled"
    )]
    Unloadable {
        /// The dynamic linker's reason, or how the process ended that tried it.
        reason: String,
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

/// A running worker. Dropped before [`Worker::end`], it is killed.
#[derive(Debug)]
pub struct Worker {
    child: Child,
    pidfd: OwnedFd,
    requests: RequestSocket,
    output: Output,
    /// Of a worker that stays for further trials.
    control: Option<Control>,
    /// The status of the last trial of a worker that stays, once that is over.
    returned: Option<i32>,
    /// The processes of a worker that stays that serve its device.
    kept: BTreeSet<u32>,
    /// Those that its trials have left and that were killed.
    killed: BTreeSet<u32>,
    /// The processes that it had when it was killed, and those that it has left.
    below: BTreeSet<u32>,
    /// The folder of its temporary files, which is removed when it ends.
    temporary: PathBuf,
    /// The files of shared memory that its processes have made.
    shared_files: Inodes,
    cgroup: Option<Cgroup>,
    started: Instant,
    exited: bool,
    reaped: bool,
}

impl Worker {
    /// The worker's process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    fn system_pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }
}

/// Checks that /proc shows the PID namespace of this process. Otherwise the process ids there mean other processes, and
/// the wrong ones would be killed.
///
/// # Errors
/// Where it shows another PID namespace.
pub fn check_proc() -> Result<(), ProcessError> {
    Identity::own().map(drop).map_err(ProcessError::system("tell the search's processes from others"))
}

/// Kills and reaps every process that workers have left behind. To be called when no worker runs.
pub fn remove_strays() -> Result<(), ProcessError> {
    strays::remove(&[]).map(drop).map_err(ProcessError::system("reap what the workers left"))
}
