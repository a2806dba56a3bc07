//! What the supervisor and the cell process say to each other, over one socket.

use crate::Surroundings;
use serde::{Deserialize, Serialize};

/// What the supervisor orders the cell process to do. The process makes a snapshot of itself after each order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "order", rename_all = "snake_case")]
pub enum CellOrder {
    /// Load a cell's library and call its function.
    Run {
        /// Path of the library.
        library: String,
        /// The function's name.
        function: String,
        /// After how much CPU time of a thread its stack is sampled, in milliseconds; none where nothing is sampled.
        sample_ms: Option<u64>,
    },
    /// Make another snapshot, because the present one has got a name.
    Snapshot,
    /// Give freed memory back to the system, and make a snapshot without that memory.
    Trim,
}

/// What the cell process reports to the supervisor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "report", rename_all = "snake_case")]
pub enum CellReport {
    /// What programs started from this process would find, if that differs from what was reported last.
    Surroundings {
        /// It.
        surroundings: Surroundings,
    },
    /// The cell has ended.
    Completed {
        /// How many variables it has taken out of the store and not put back.
        missing: usize,
    },
    /// Where the cell's threads have used CPU time. It comes before the end of the cell.
    Sampled {
        /// The samples as JSON.
        samples: String,
    },
    /// The cell has run, or will run, without being sampled.
    Unsampled {
        /// Why.
        reason: String,
    },
    /// The cell could not be run.
    Refused {
        /// Why not.
        reason: String,
    },
    /// There is a new snapshot of the present state.
    SnapshotMade {
        /// Its process id.
        pid: i32,
        /// How long the process stood still for it, in microseconds.
        cost_us: u64,
    },
    /// There is no snapshot of the present state.
    Unguarded {
        /// Why not.
        reason: String,
    },
    /// This process was a snapshot, and has taken the place of the process that it was copied from.
    Restored {
        /// Names of the threads that were not copied.
        threads: Vec<String>,
    },
    /// Freed memory has been given back, and there is a snapshot without it.
    Trimmed,
}
