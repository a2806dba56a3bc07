//! The messages between the supervisor and the cell process, over one socket.

use crate::Surroundings;
use serde::{Deserialize, Serialize};

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
