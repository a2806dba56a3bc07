//! The user's interrupt, which stops the running search or cell. The server's threads and the engine's thread share this state.

use super::evaluate::link::CellLink;
use crate::execution::Cell;
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How long a kernel that ends waits for a shell command to end. A shell command that ignores the interrupt is killed before that.
const SHELL_END: Duration = Duration::from_millis(1800);
const POLL_INTERVAL: Duration = Duration::from_millis(10);

#[derive(Clone, Default)]
pub(crate) struct Interrupts {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    link: Option<CellLink>,
    /// Process id of the supervisor of the search that runs.
    search: Option<u32>,
    /// The time of the user's last interrupt while no cell ran.
    last: Option<Instant>,
    /// The time of the user's last interrupt while a cell of this shell ran. That interrupt stops no cell that waits in another shell.
    last_of_shell: BTreeMap<Option<String>, Instant>,
    /// The cell that runs.
    cell: Option<Running>,
    /// Whether a shell command runs.
    runs_shell: bool,
}

/// The running cell: the time when it was sent, and the subshell to which it was sent.
struct Running {
    sent_at: Instant,
    subshell: Option<String>,
}

impl State {
    /// The time of the user's last interrupt of this shell's cells.
    fn last_of(&self, subshell: &Option<String>) -> Option<Instant> {
        self.last.max(self.last_of_shell.get(subshell).copied())
    }
}

/// A guard for the running cell. Dropping the guard marks the end of the cell.
pub(super) struct RunningCell(Interrupts);

impl Drop for RunningCell {
    fn drop(&mut self) {
        self.0.lock().cell = None;
    }
}

/// A guard for the running shell command. Dropping the guard marks the end of the command.
pub(super) struct RunningShell(Interrupts);

impl Drop for RunningShell {
    fn drop(&mut self) {
        self.0.lock().runs_shell = false;
    }
}

impl Interrupts {
    /// Interrupts the running search or cell at the end of the kernel, and waits until a shell command has ended or has been killed.
    pub(crate) fn end(&self) {
        let at = Instant::now();
        self.interrupt(at);
        while self.lock().runs_shell && at.elapsed() < SHELL_END {
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// Marks the start of a shell command.
    pub(super) fn begin_shell(&self) -> RunningShell {
        self.lock().runs_shell = true;
        RunningShell(self.clone())
    }

    /// Asks the running search, or else the running cell, to stop, unless the cell was sent after `at`. Returns whether this was asked.
    pub(crate) fn interrupt(&self, at: Instant) -> bool {
        let (link, search) = {
            let mut state = self.lock();
            let running = state.cell.as_ref().filter(|cell| cell.sent_at <= at);
            let Some(subshell) = running.map(|cell| cell.subshell.clone()) else {
                state.last = state.last.max(Some(at));
                return false;
            };
            let last = state.last_of_shell.entry(subshell).or_insert(at);
            *last = at.max(*last);
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

    /// Interrupts the running search or cell once more, if the user has interrupted its shell before.
    pub(super) fn repeat(&self) {
        let last = {
            let state = self.lock();
            state.cell.as_ref().and_then(|cell| state.last_of(&cell.subshell))
        };
        if let Some(at) = last {
            self.interrupt(at);
        }
    }

    /// Marks the start of a cell. None if the user has interrupted the cell's shell since the cell was sent.
    pub(super) fn begin_cell(&self, cell: &Cell) -> Option<RunningCell> {
        let mut state = self.lock();
        if state.last_of(&cell.subshell).is_some_and(|last| last >= cell.sent_at) {
            return None;
        }
        state.cell = Some(Running { sent_at: cell.sent_at, subshell: cell.subshell.clone() });
        Some(RunningCell(self.clone()))
    }

    /// Whether the user has interrupted the cell that runs.
    pub(super) fn is_interrupted(&self) -> bool {
        let state = self.lock();
        let cell = state.cell.as_ref();
        cell.is_some_and(|cell| state.last_of(&cell.subshell).is_some_and(|last| last >= cell.sent_at))
    }

    /// Directs interrupts to the cells of this link.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(sent_at: Instant, subshell: Option<&str>) -> Cell {
        let subshell = subshell.map(str::to_owned);
        Cell { code: String::new(), allow_stdin: false, can_be_undone: true, count: None, sent_at, subshell }
    }

    #[test]
    fn an_interrupt_stops_what_waits_in_the_shell_of_the_running_cell_and_in_no_other() {
        let interrupts = Interrupts::default();
        let sent_at = Instant::now();
        let (main, sub) = (cell(sent_at, None), cell(sent_at, Some("a")));
        let at = sent_at + Duration::from_millis(1);
        let running = interrupts.begin_cell(&main).unwrap();
        assert!(interrupts.interrupt(at) && interrupts.is_interrupted());
        drop(running);
        assert!(interrupts.begin_cell(&main).is_none());
        let running = interrupts.begin_cell(&sub).unwrap();
        assert!(!interrupts.is_interrupted());
        drop(running);
        assert!(!interrupts.interrupt(at), "nothing runs");
        assert!(interrupts.begin_cell(&sub).is_none());
        assert!(interrupts.begin_cell(&cell(at + Duration::from_millis(1), None)).is_some());
    }
}
