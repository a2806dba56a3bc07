//! How much memory the cell process may hold, and whether it holds more.

use super::cells::CellProcess;
use anyhow::{Context, Result};
use ferrotune_link::CellEnding;
use ferrotune_machine::memory::{available_bytes, oom_kills, private_bytes};
use std::time::{Duration, Instant};

/// The available memory below which the running cell is killed, before the system chooses a process itself.
const FLOOR_BYTES: u64 = 500 << 20;

/// The growth below which a cell is not the reason why the machine is short of memory.
const SMALL_BYTES: u64 = 64 << 20;

/// The free room below which the process is checked often: a program can fill several GB in a second.
const NEAR_BYTES: u64 = 2 << 30;
const OFTEN: Duration = Duration::from_millis(10);
const SELDOM: Duration = Duration::from_millis(50);

/// The memory check of the cell process while a cell runs.
pub(super) struct Watch {
    limit_bytes: Option<u64>,
    floor_bytes: u64,
    undo_budget_bytes: u64,
    at_begin_bytes: u64,
    peak_bytes: u64,
    kernel_kills: Option<u64>,
    look_at: Option<Instant>,
}

impl Watch {
    pub(super) fn new() -> Result<Self> {
        let available = available_bytes().context("cannot read how much memory is available")?;
        Ok(Self {
            limit_bytes: None,
            // On a machine with little memory, this floor must not end every cell.
            floor_bytes: FLOOR_BYTES.min(available / 4),
            undo_budget_bytes: available / 4,
            at_begin_bytes: 0,
            peak_bytes: 0,
            kernel_kills: None,
            look_at: None,
        })
    }

    pub(super) fn limit(&mut self, bytes: Option<u64>) {
        self.limit_bytes = bytes;
    }

    pub(super) fn limit_bytes(&self) -> Option<u64> {
        self.limit_bytes
    }

    /// How much memory the snapshots for `%undo` may hold in addition to the process itself.
    pub(super) fn undo_budget_bytes(&self) -> u64 {
        self.undo_budget_bytes
    }

    /// Starts the check at the start of a cell.
    pub(super) fn begin(&mut self, cells: &CellProcess) {
        self.at_begin_bytes = private_bytes(cells.number()).unwrap_or(0);
        self.peak_bytes = self.at_begin_bytes;
        self.kernel_kills = oom_kills();
        self.look_at = Some(Instant::now());
    }

    /// When to check the memory next.
    pub(super) fn due(&self) -> Option<Instant> {
        self.look_at
    }

    /// Checks the memory, if the next check is due. Returns an ending if the process has to be killed for it.
    pub(super) fn look(&mut self, cells: &CellProcess, now: Instant) -> Option<CellEnding> {
        if self.look_at.is_some_and(|at| at > now) {
            return None;
        }
        // A process that has just ended holds no memory, and a machine that does not report its memory cannot be guarded.
        let held = private_bytes(cells.number()).unwrap_or(0);
        let available = available_bytes().unwrap_or(u64::MAX);
        self.peak_bytes = self.peak_bytes.max(held);
        let room = self.limit_bytes.map_or(u64::MAX, |limit| limit.saturating_sub(held));
        let room = room.min(available.saturating_sub(self.floor_bytes));
        self.look_at = Some(now + if room < NEAR_BYTES { OFTEN } else { SELDOM });
        // A cell that only frees memory, or allocates little, must be able to run even above the limit.
        if self.limit_bytes.is_some_and(|limit| held > limit.max(self.at_begin_bytes + SMALL_BYTES)) {
            return Some(self.out_of_memory(self.limit_bytes));
        }
        let grown = held.saturating_sub(self.at_begin_bytes);
        (available < self.floor_bytes && grown > SMALL_BYTES).then(|| self.out_of_memory(None))
    }

    fn out_of_memory(&self, limit_bytes: Option<u64>) -> CellEnding {
        CellEnding::OutOfMemory { peak_bytes: self.peak_bytes, limit_bytes }
    }

    /// The ending of a process that got SIGKILL from elsewhere: out of memory, if the system's OOM killer has just killed a process.
    pub(super) fn killed(&self) -> Option<CellEnding> {
        let before = self.kernel_kills?;
        (oom_kills()? > before).then(|| self.out_of_memory(None))
    }
}
