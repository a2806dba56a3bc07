//! Interrupts: the user's interrupt stops the running search or cell. The server's threads share this with the engine's.

use super::link::CellLink;
use rustix::process::{Pid, Signal, kill_process};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

#[derive(Clone, Default)]
pub(crate) struct Interrupts {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    link: Option<CellLink>,
    /// Process id of the supervisor of the search that runs.
    search: Option<u32>,
    /// When the user interrupted last.
    last: Option<Instant>,
    /// When the cell that runs was sent.
    cell: Option<Instant>,
}

/// A cell that runs. It ends when this is dropped.
pub(super) struct RunningCell(Interrupts);

impl Drop for RunningCell {
    fn drop(&mut self) {
        self.0.lock().cell = None;
    }
}

impl Interrupts {
    /// Asks the running search to stop, or else the running cell, unless it was sent after this moment. Says whether one was asked.
    pub(crate) fn interrupt(&self, at: Instant) -> bool {
        let (link, search) = {
            let mut state = self.lock();
            state.last = state.last.max(Some(at));
            if state.cell.is_none_or(|sent_at| sent_at > at) {
                return false;
            }
            (state.link.clone(), state.search)
        };
        if let Some(pid) = search.and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?)) {
            if let Err(error) = kill_process(pid, Signal::INT) {
                tracing::debug!("the search has already ended: {error}");
            }
        } else if let Some(link) = link {
            link.interrupt();
        }
        true
    }

    /// Asks once more what runs now, if it was asked before.
    pub(super) fn repeat(&self) {
        let last = self.lock().last;
        if let Some(at) = last {
            self.interrupt(at);
        }
    }

    /// A cell begins that was sent at this moment; none if the user has interrupted since.
    pub(super) fn begin_cell(&self, sent_at: Instant) -> Option<RunningCell> {
        let mut state = self.lock();
        if state.last.is_some_and(|last| last >= sent_at) {
            return None;
        }
        state.cell = Some(sent_at);
        Some(RunningCell(self.clone()))
    }

    /// Whether the user has interrupted the cell that runs.
    pub(super) fn is_interrupted(&self) -> bool {
        let state = self.lock();
        state.cell.is_some_and(|sent_at| state.last.is_some_and(|last| last >= sent_at))
    }

    /// From now on interrupts reach the cells of this link.
    pub(super) fn set_link(&self, link: CellLink) {
        self.lock().link = Some(link);
    }

    pub(super) fn begin_search(&self, pid: u32) {
        self.lock().search = Some(pid);
    }

    pub(super) fn end_search(&self) {
        self.lock().search = None;
    }

    /// Process id of the supervisor of the search that runs.
    pub(super) fn search(&self) -> Option<u32> {
        self.lock().search
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
