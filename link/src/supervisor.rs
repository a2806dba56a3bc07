//! The requests from the kernel to the cell supervisor, and the supervisor's replies.

use crate::Answer;
use serde::{Deserialize, Serialize};

/// A message from the kernel to a cell supervisor.
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
        /// The number by which the cell can be undone; none for code that is not a cell of the user's.
        cell: Option<u64>,
    },
    /// Interrupt the cell: send it a signal, and kill it if it does not stop. A cell that is still being compiled is not run.
    Interrupt,
    /// A request, which the supervisor answers with [`KernelFrame::Reply`](crate::KernelFrame::Reply).
    Request {
        /// The number of the request; the reply carries the same number.
        number: u64,
        /// The request.
        request: SupervisorRequest,
    },
}

/// A request from the kernel to a cell supervisor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "snake_case")]
pub enum SupervisorRequest {
    /// Pass on all output that has been printed so far.
    Sync,
    /// Keep the snapshot of the present state under a name.
    Keep {
        /// The name. An older snapshot with the same name is dropped.
        name: String,
    },
    /// Restore the variables to an earlier state. evcxr connects anew afterwards.
    Return {
        /// The snapshot of that state.
        to: SnapshotKey,
    },
    /// Limit the memory of cells from now on.
    Limit {
        /// The limit in bytes; none to limit cells to the memory that the machine can spare.
        bytes: Option<u64>,
    },
    /// Sample the stacks of the cells' threads by CPU time, from the next cell on.
    Sample {
        /// The sampling period in CPU time of a thread, in milliseconds; none to stop sampling.
        period_ms: Option<u64>,
    },
    /// Have the process that holds the variables give freed memory back to the system.
    Trim {
        /// Whether to drop the snapshots for `%undo` too, which share that memory.
        forget: bool,
    },
    /// Report the memory use of the supervisor's processes.
    Report,
}

/// The reply to a [`SupervisorRequest`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "snake_case")]
pub enum SupervisorReply {
    /// The request has been carried out.
    Done,
    /// The request has been refused, and nothing has changed.
    Refused {
        /// One line that says what is wrong and what to do.
        reason: String,
    },
    /// The request has failed, and the variables are lost.
    Lost,
    /// The memory use of the supervisor's processes.
    Report {
        /// The figures.
        report: MemoryReport,
    },
}

/// The memory use of a supervisor's processes. Private bytes are the bytes that become free when the process ends.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MemoryReport {
    /// Process id of the supervisor.
    pub supervisor_pid: u32,
    /// Process id of the process that holds the variables.
    pub cells_pid: u32,
    /// The memory that the process with the variables and its snapshots use together, in bytes.
    pub held_bytes: u64,
    /// The memory limit of a cell in bytes, if there is one.
    pub limit_bytes: Option<u64>,
    /// The snapshots, oldest first.
    pub snapshots: Vec<SnapshotReport>,
}

/// One snapshot of the process that holds the variables.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SnapshotReport {
    /// The state that the snapshot holds.
    pub key: SnapshotKey,
    /// Process id of the snapshot.
    pub pid: u32,
    /// The snapshot's age in seconds.
    pub age_s: f64,
    /// The time for which the process paused while the snapshot was made, in microseconds.
    pub cost_us: u64,
    /// The memory that becomes free if the snapshot is dropped, in bytes.
    pub private_bytes: u64,
    /// The snapshot's proportional share of anonymous memory, in bytes: each page is divided by the number of processes that have it.
    pub share_bytes: u64,
}

/// The key of a snapshot: a state to which the variables can be restored.
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
    /// The state that the user gave this name.
    Named {
        /// The name.
        name: String,
    },
}
