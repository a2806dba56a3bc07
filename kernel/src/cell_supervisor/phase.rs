//! The phases of the cell supervisor. [`Protocol::step`] returns the next phase and the effects of each event.
//!
//! There is no IO and no clock in here. The driver (`supervisor.rs`) turns what `poll` finds into [`Event`]s, and carries
//! out the [`Effect`]s in their order.

mod event;
mod protocol;
#[cfg(test)]
mod tests;

pub(super) use event::{Effect, Event, MadeSnapshot};
use ferrotune_link::{CellEnding, SnapshotKey};
pub(super) use protocol::Protocol;
use std::time::{Duration, Instant};

/// How long a snapshot may take to connect and to take the place of its process.
pub(super) const WAKING: Duration = Duration::from_secs(10);

/// How long a process may take to trim its memory.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// What the supervisor is doing, with the data that only this phase needs.
#[derive(Debug, PartialEq)]
pub(super) enum Phase {
    /// No cell runs. The next one may be being compiled.
    Idle { variables: Variables },
    /// A cell runs.
    Running { course: Course, interrupt: Option<Interrupt> },
    /// The cell has ended, and the process makes a snapshot. The supervisor reports the end to evcxr after that: if the process
    /// dies first, evcxr and the process both go back to the state before the cell.
    Settling { undo: Option<u64>, interrupt: Option<Interrupt> },
    /// The cell was not run, and the process makes a snapshot. The supervisor reports the refusal to evcxr after that.
    Refusing { undo: Option<u64>, interrupt: Option<Interrupt> },
    /// The supervisor has killed the process while a cell ran, and waits for its end.
    Killed { why: CellEnding },
    /// A snapshot takes the place of the process.
    Waking { key: SnapshotKey, purpose: Purpose, deadline: Instant },
    /// A snapshot has taken the place of the process of a cell, and makes a snapshot of itself, which the next cell may need. The
    /// cell ends after that.
    Replaced { deadline: Instant },
    /// A snapshot with a name has been woken, and makes the snapshot that gets the name.
    Naming { number: u64, name: String, deadline: Instant },
    /// The process gives freed memory back to the system.
    Trimming { number: u64, variables: Variables, deadline: Instant },
    /// The kernel has gone.
    Over,
}

impl Phase {
    fn is_busy(&self) -> bool {
        matches!(self, Self::Waking { .. } | Self::Naming { .. } | Self::Trimming { .. })
    }
}

/// Which variables evcxr and the process have between two cells.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Variables {
    /// The process has run no cell.
    None,
    /// The process has variables. If evcxr connects anew, evcxr has forgotten them.
    Held,
    /// The variables were brought back to an earlier state. evcxr connects anew, and then learns that state.
    Returned,
}

/// What the running cell has reported so far.
#[derive(Debug, PartialEq)]
pub(super) enum Course {
    Normal,
    /// The cell ended by a panic or at a `?`.
    Failed,
    /// The cell does not run, because the types of these variables have been defined anew.
    Changed(Vec<String>),
}

/// The user's request to stop the cell: when to signal it again, and when to kill it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Interrupt {
    signal_at: Instant,
    kill_at: Instant,
}

/// Why a snapshot is woken.
#[derive(Debug, PartialEq)]
pub(super) enum Purpose {
    /// The process has ended by itself, while a cell ran or between two cells.
    Replace { ending: CellEnding, running: bool, variables: Variables },
    /// The kernel has requested an earlier state.
    Return { number: u64 },
}
