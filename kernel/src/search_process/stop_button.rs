//! The button that stops a search, which front ends with widgets show while the search runs.

use crate::execution::{Output, Press};
use rustix::process::{Pid, Signal};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::mpsc::UnboundedSender;

/// The button of a running search. It is removed when this value is dropped.
#[derive(Debug)]
pub(crate) struct StopButton {
    id: String,
    search: Search,
    outputs: UnboundedSender<Output>,
}

/// The action of a press: a request to stop the search. After the search has ended, a press does nothing.
type Search = Arc<Mutex<Option<Pid>>>;

impl StopButton {
    /// Shows the button among a cell's outputs; none if the number is no valid process id.
    pub(crate) fn show(search: u32, outputs: UnboundedSender<Output>) -> Option<Self> {
        let pid = Pid::from_raw(i32::try_from(search).ok()?)?;
        let button = Self { id: format!("ferrotune-stop-{search}"), search: Arc::new(Mutex::new(Some(pid))), outputs };
        let search = Arc::clone(&button.search);
        button.emit(Output::StopButton { id: button.id.clone(), press: Press::new(move || stop(&search)) });
        Some(button)
    }

    fn emit(&self, output: Output) {
        if self.outputs.send(output).is_err() {
            tracing::debug!("the front end of a search has gone");
        }
    }
}

impl Drop for StopButton {
    /// Disables and removes the button before the process is reaped, after which another process may get the same id.
    fn drop(&mut self) {
        *lock(&self.search) = None;
        self.emit(Output::StopButtonGone { id: self.id.clone() });
    }
}

/// Asks the search to stop after the current step of each trial; the second time, at once. An interrupt does the same.
fn stop(search: &Search) {
    if let Some(pid) = *lock(search)
        && let Err(error) = rustix::process::kill_process(pid, Signal::INT)
    {
        tracing::debug!("the search has already ended: {error}");
    }
}

fn lock(search: &Search) -> MutexGuard<'_, Option<Pid>> {
    search.lock().unwrap_or_else(PoisonError::into_inner)
}
