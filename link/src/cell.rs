//! The messages between the supervisor and the cell process, over one socket, and the kernel's answers to the cell process.

use crate::CommAnswer;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// An order from the supervisor to the cell process. The process makes a snapshot of itself after each order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "order", rename_all = "snake_case")]
pub enum CellOrder {
    /// Load a cell's library and call its function.
    Run {
        /// Path of the cell's library.
        library: String,
        /// Name of the cell's function in the library.
        function: String,
        /// The sampling period: the CPU time of a thread between two samples of its stack, in milliseconds; none without sampling.
        sample_ms: Option<u64>,
    },
    /// Make another snapshot, because the present snapshot has got a name.
    Snapshot,
    /// Give freed memory back to the system, and make a snapshot without that memory.
    Trim,
}

/// A report from the cell process to the supervisor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "report", rename_all = "snake_case")]
pub enum CellReport {
    /// The working folder and environment variables that a program started from this process inherits, if they have changed.
    Surroundings {
        /// The present folder and environment variables.
        surroundings: Surroundings,
    },
    /// The cell has ended.
    Completed {
        /// The number of variables that the cell has taken out of the store and not put back.
        missing: usize,
    },
    /// The CPU time of the cell's threads by stack. This report comes before the end of the cell.
    Sampled {
        /// The samples as JSON.
        samples: String,
    },
    /// The cell has run, or will run, without being sampled.
    Unsampled {
        /// The reason why there are no samples.
        reason: String,
    },
    /// The cell could not be run.
    Refused {
        /// The reason why the cell could not be run.
        reason: String,
    },
    /// There is a new snapshot of the present state.
    SnapshotMade {
        /// Process id of the snapshot.
        pid: i32,
        /// How long the cell process paused to make the snapshot, in microseconds.
        cost_us: u64,
    },
    /// The present state has no snapshot.
    Unguarded {
        /// The reason why there is no snapshot.
        reason: String,
    },
    /// A snapshot has replaced the process that it was copied from; the snapshot sends this report.
    Restored {
        /// Names of the threads that were not copied.
        threads: Vec<String>,
    },
    /// The process has given freed memory back to the system, and a snapshot without that memory exists.
    Trimmed,
}

/// The working folder and environment variables that a program started from the cell process inherits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Surroundings {
    /// The working folder; none if the folder has been deleted.
    pub folder: Option<String>,
    /// The environment variables that have been set since the process began, with their values, and those that have been removed, without.
    pub changed: BTreeMap<String, Option<String>>,
}

/// The kernel's answer to a frame of a cell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum Answer {
    /// The frame has been passed on, and so has everything that was printed before it.
    Done,
    /// The line that the user typed; `None` where the front end takes no input.
    Line {
        /// The line, without its end.
        text: Option<String>,
    },
    /// The result of an operation on a comm.
    Comm {
        /// The result.
        learned: CommAnswer,
    },
    /// The kernel or the supervisor has refused the request.
    Refused {
        /// One line that says what is wrong and what to do.
        reason: String,
    },
}
