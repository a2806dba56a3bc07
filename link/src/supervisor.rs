//! What the kernel asks of the cell supervisor, and what the supervisor replies.

use crate::Answer;
use serde::{Deserialize, Serialize};

/// What the kernel sends to a cell supervisor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "order", rename_all = "snake_case")]
pub enum SupervisorOrder {
    /// The answer to [`KernelFrame::Asked`](crate::KernelFrame::Asked).
    Answer {
        /// The number of the question.
        number: u64,
        /// The answer.
        answer: Answer,
    },
    /// A new cell begins. Interrupts of earlier cells do not apply to it.
    Begin {
        /// Number under which the cell can be undone; none for what is not a cell of the user's.
        cell: Option<u64>,
    },
    /// Stop the cell: signal it, and kill it if it does not stop. A cell that is still being compiled is not run.
    Interrupt,
    /// A request, which the supervisor answers with [`KernelFrame::Reply`](crate::KernelFrame::Reply).
    Request {
        /// The reply carries the same number.
        number: u64,
        /// The request.
        request: SupervisorRequest,
    },
}

/// What the kernel requests of a cell supervisor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "snake_case")]
pub enum SupervisorRequest {
    /// Pass on everything that has been printed.
    Sync,
    /// Tell evcxr that its next cell has run, without running it: only evcxr's own list of variables is to change.
    Skip,
    /// Keep the present state under a name.
    Keep {
        /// The name. A state that already has it is dropped.
        name: String,
    },
    /// Bring the variables back to an earlier state. evcxr connects anew afterwards.
    Return {
        /// The snapshot of that state.
        to: SnapshotKey,
    },
    /// Limit the memory of cells from now on.
    Limit {
        /// The limit in bytes; none for what the machine can spare.
        bytes: Option<u64>,
    },
    /// Sample what the threads of cells spend their CPU time on, from the next cell on.
    Sample {
        /// After how much CPU time of a thread, in milliseconds; none for no longer.
        period_ms: Option<u64>,
    },
    /// Have the process that holds the variables give freed memory back to the system.
    Trim {
        /// Also drop the snapshots for `%undo`, which share that memory.
        forget: bool,
    },
    /// Report how much memory is held.
    Report,
}

/// The reply to a [`SupervisorRequest`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "snake_case")]
pub enum SupervisorReply {
    /// It is done.
    Done,
    /// It could not be done, and nothing has changed.
    Refused {
        /// One line: what is wrong and what to do.
        reason: String,
    },
    /// It could not be done, and the variables are lost.
    Lost,
    /// How much memory is held.
    Report {
        /// The figures.
        report: MemoryReport,
    },
}

/// How much memory a supervisor's processes hold. Private bytes are those that come back when the process ends.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MemoryReport {
    /// Process id of the supervisor.
    pub supervisor_pid: u32,
    /// Process id of the process that holds the variables.
    pub cells_pid: u32,
    /// What that process and its snapshots hold together in the machine's memory, in bytes.
    pub held_bytes: u64,
    /// The memory limit of a cell, if there is one.
    pub limit_bytes: Option<u64>,
    /// The snapshots, oldest first.
    pub snapshots: Vec<SnapshotReport>,
}

/// One snapshot of the process that holds the variables.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SnapshotReport {
    /// Which state it holds.
    pub key: SnapshotKey,
    /// Its process id.
    pub pid: u32,
    /// Seconds since it was made.
    pub age_s: f64,
    /// How long the process stood still while it was made, in microseconds.
    pub cost_us: u64,
    /// What comes back if it is dropped, in bytes.
    pub private_bytes: u64,
    /// Its proportional share of the memory that it has in common with others, in bytes.
    pub share_bytes: u64,
}

/// A state to which the variables can be brought back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "key", rename_all = "snake_case")]
pub enum SnapshotKey {
    /// The state after the last cell, to which the variables return if the next cell crashes.
    Latest,
    /// The state before a cell.
    Before {
        /// The cell's number.
        cell: u64,
    },
    /// The state that was given this name.
    Named {
        /// The name.
        name: String,
    },
}
