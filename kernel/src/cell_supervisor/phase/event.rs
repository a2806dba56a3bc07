//! The events and the effects of the cell supervisor's state machine.

use ferrotune_link::{CellEnding, CellOrder, KernelFrame, SnapshotKey};
use std::time::Instant;

/// A snapshot that the process has just made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::cell_supervisor) struct MadeSnapshot {
    pub(in crate::cell_supervisor) pid: i32,
    pub(in crate::cell_supervisor) cost_us: u64,
}

/// An event for the supervisor. An event carries the time where a deadline depends on it.
#[derive(Debug)]
pub(in crate::cell_supervisor) enum Event {
    /// evcxr has started a new relay.
    RelayConnected,
    /// evcxr wants a cell to run.
    RunOrdered(CellOrder),
    /// The kernel begins a cell, which can be undone under this number.
    Begun {
        cell: Option<u64>,
    },
    Interrupted {
        now: Instant,
    },
    ReturnRequested {
        number: u64,
        to: SnapshotKey,
        now: Instant,
    },
    TrimRequested {
        number: u64,
        forget: bool,
        now: Instant,
    },
    KernelGone,
    /// The running cell has panicked or has returned an error.
    CellFailed,
    /// The running cell found that the type of this variable has been defined anew.
    TypeChanged(String),
    /// The cell has ended. `missing` is the number of variables that were moved; `guarded` says whether a snapshot has them.
    Completed {
        missing: usize,
        guarded: bool,
    },
    /// The process could not load the cell.
    LoadFailed {
        reason: String,
    },
    SnapshotMade(MadeSnapshot),
    Unguarded {
        reason: String,
    },
    /// The woken snapshot has taken the place of its process, without these threads.
    Woken {
        threads: Vec<String>,
    },
    /// There is no snapshot that could be woken.
    WakeFailed,
    Trimmed,
    /// The process has ended.
    Ended {
        ending: CellEnding,
        now: Instant,
    },
    /// The process holds too much memory.
    OutOfMemory(CellEnding),
    /// The [deadline](Protocol::deadline) has come.
    Due {
        now: Instant,
    },
}

/// An effect that the driver carries out.
#[derive(Debug, PartialEq)]
pub(in crate::cell_supervisor) enum Effect {
    /// Send the process an order.
    Order(CellOrder),
    /// Send the process SIGINT.
    Signal,
    /// If the cell waits for the user's input, answer that there is none.
    RefuseInput,
    /// Kill the process and its group.
    Kill,
    /// Put this snapshot in the place of the process, which is killed if it still runs.
    Wake(SnapshotKey),
    /// Put a process without variables in the place of the present one.
    StartAnew,
    /// Keep this as the latest snapshot, and the latest one until now for undoing the cell `undo`, if there is such a cell.
    Keep { snapshot: MadeSnapshot, undo: Option<u64> },
    /// The latest snapshot is not the latest any more; keep it for undoing the cell `undo`, if there is such a cell.
    Shelve { undo: Option<u64> },
    /// Give the latest snapshot this name, and order another one.
    Name(String),
    /// Drop all snapshots for undoing cells.
    ForgetUndo,
    /// Send the kernel a frame.
    Tell(KernelFrame),
    /// Tell evcxr that the cell has run.
    Complete,
    /// Tell evcxr that the cell has not run.
    Refuse,
    /// Close the connection to evcxr, which learns from it that the variables are lost.
    HangUp,
}
