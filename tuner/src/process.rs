//! The worker process of one trial, or of several trials one after another: its start, its supervision and its end. Knows
//! nothing of oracles and journals.
//!
//! The calling process must only supervise: it becomes the parent of every process that a worker leaves behind, and
//! [`Worker::end`] kills all of them.

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
pub use ferrotune_space::wire::TRIAL_VARIABLE;
pub use handover::Settled;
pub(crate) use launch::check_that_it_loads;
pub use launch::{Entry, Launch, Library, go_first};
pub use leftovers::Machine;
pub use malloc::keep_freed_memory;
pub use reach::Reach;
pub use reserve::take_reserve;
pub use role::{ROLE_VARIABLE, Role};
pub use shared_memory::SharedMemory;
pub use signals::{SignalReader, Signals, unblock_stop_signals};
pub use stay::run_trials;
pub use strays::remove_orphans;
pub use watch::wait;
pub use worker::{load_objective, set_up_worker, worker_main};

use cgroup::Cgroup;
use control::Control;
use ferrotune_machine::handle::Handle;
use ferrotune_machine::identity::Identity;
use ferrotune_machine::process_tree::MOST_COUNTED_TASKS;
use output::Output;
use requests::RequestSocket;
use rustix::process::Pid;
use shared_memory::Inodes;
use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::process::Child;
use std::time::Instant;

/// The largest number of processes and threads of one trial; the machine has room for some tens of thousands.
pub const MOST_TASKS: u64 = MOST_COUNTED_TASKS;

/// The reason why a worker could not be started or watched.
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
        /// The dynamic linker's reason, or the exit of the process that tried to load the objective.
        reason: String,
    },
    /// Each process that tried to load the objective was killed.
    #[error(
        "the process that loads the objective was killed {times} times; free some memory, if that is why, and try again"
    )]
    KilledWhileLoading {
        /// The number of processes.
        times: usize,
    },
    /// A file in the trial's folder could not be written.
    #[error("cannot write {path}: {source}; free some space or choose another --directory")]
    Write {
        /// The path of the file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The system refused an operation that the supervision of a process needs.
    #[error("cannot {what}: {source}")]
    System {
        /// The operation that failed.
        what: &'static str,
        /// The system's reason.
        source: io::Error,
    },
}

impl ProcessError {
    /// An error constructor for `map_err`, with a name for the operation that failed.
    fn system<E: Into<io::Error>>(what: &'static str) -> impl FnOnce(E) -> ProcessError {
        move |source| ProcessError::System { what, source: source.into() }
    }
}

/// A running worker. The worker is killed if this value is dropped before [`Worker::end`].
#[derive(Debug)]
pub struct Worker {
    child: Child,
    process: Handle,
    requests: RequestSocket,
    output: Output,
    /// The control socket of a resident worker.
    control: Option<Control>,
    /// The exit status of a resident worker's last trial, once that trial is over.
    returned: Option<i32>,
    /// The processes of a resident worker that serve its device.
    kept: BTreeSet<u32>,
    /// The processes that a resident worker's trials left behind and that were killed.
    killed: BTreeSet<u32>,
    /// The processes below the worker when it was killed, and the processes that it left behind.
    below: BTreeSet<u32>,
    /// The folder of the worker's temporary files, which is removed when the worker ends.
    temporary: PathBuf,
    /// The files in shared memory that the worker's processes have made.
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

/// Checks that /proc shows the PID namespace of this process. Otherwise its process ids belong to other processes, and the
/// wrong processes would be killed.
///
/// # Errors
/// If /proc shows another PID namespace.
pub fn check_proc() -> Result<(), ProcessError> {
    Identity::own().map(drop).map_err(ProcessError::system("tell the search's processes from others"))
}

/// Kills and reaps every process that workers have left behind. Call this function only while no worker runs.
pub fn remove_strays() -> Result<(), ProcessError> {
    strays::remove(&[]).map(drop).map_err(ProcessError::system("reap what the workers left"))
}
