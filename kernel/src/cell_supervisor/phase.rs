//! The phases of the cell supervisor. [`Protocol::step`] says what follows from each event.
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

/// How long a snapshot may take to connect and to stand in for its process.
pub(super) const WAKING: Duration = Duration::from_secs(10);

/// How long a process may take to trim its memory.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// What the supervisor is doing, with what this alone needs.
#[derive(Debug, PartialEq)]
pub(super) enum Phase {
    /// No cell runs. The next one may be being compiled.
    Idle { variables: Variables },
    /// A cell runs.
    Running { course: Course, interrupt: Option<Interrupt> },
    /// The cell has ended, and the process makes a snapshot. evcxr hears of the end after that: should the process die
    /// first, both go back to the state before the cell.
    Settling { undo: Option<u64>, interrupt: Option<Interrupt> },
    /// The cell was not run, and the process makes a snapshot. evcxr hears of the refusal after that.
    Refusing { undo: Option<u64>, interrupt: Option<Interrupt> },
    /// The supervisor has killed the process while a cell ran, and waits for its end.
    Killed { why: CellEnding },
    /// A snapshot takes the place of the process.
    Waking { key: SnapshotKey, purpose: Purpose, deadline: Instant },
    /// A snapshot has taken the place of the process of a cell, and makes one in turn: the next cell may want it. The cell ends
    /// after that.
    Replaced { deadline: Instant },
    /// A snapshot with a name has been woken, and makes the snapshot that gets the name.
    Naming { number: u64, name: String, deadline: Instant },
    /// The process gives freed memory back.
    Trimming { number: u64, variables: Variables, deadline: Instant },
    /// The kernel has gone.
    Over,
}

impl Phase {
    fn is_busy(&self) -> bool {
        matches!(self, Self::Waking { .. } | Self::Naming { .. } | Self::Trimming { .. })
    }
}

/// What evcxr and the process mean by the variables, between two cells.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Variables {
    /// The process has run no cell.
    None,
    /// The process has variables. If evcxr connects anew, it has forgotten them.
    Held,
    /// They were brought back to an earlier state. evcxr connects anew, and then learns that state.
    Returned,
}

/// What is known of the running cell.
#[derive(Debug, PartialEq)]
pub(super) enum Course {
    Normal,
    /// It ended by a panic or at a `?`.
    Failed,
    /// It does not run, because the types of these variables have been defined anew.
    Changed(Vec<String>),
}

/// The user has asked the cell to stop.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Interrupt {
    signal_at: Instant,
    kill_at: Instant,
}

/// Why a snapshot is woken.
#[derive(Debug, PartialEq)]
pub(super) enum Purpose {
    /// The process has ended by itself, while a cell ran or between two.
    Replace { ending: CellEnding, running: bool, variables: Variables },
    /// The kernel has requested an earlier state.
    Return { number: u64 },
}
