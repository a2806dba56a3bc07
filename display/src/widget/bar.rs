//! A progress bar as a widget, with at most five updates a second. The cell's last value is always sent, at the latest at the cell's end.

use super::{Widget, fallback};
use crate::show::Handle;
use crate::{Bundle, Show};
use serde_json::json;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

const INTERVAL: Duration = Duration::from_millis(200);

/// The bars whose last value was not sent, because it came too soon after the previous one.
static LATE: Mutex<Vec<Bar>> = Mutex::new(Vec::new());

/// A progress bar in the front end. Its copies are the same bar.
#[derive(Clone, Debug)]
pub struct Bar {
    label: String,
    total: u64,
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    widget: Widget,
    done: u64,
    sent_at: Option<Instant>,
    /// Whether the bar is among [`LATE`].
    is_late: bool,
}

/// A progress bar that is full at `total`. To follow an iterator, see [`progress`](crate::progress()).
///
/// # Errors
/// If the kernel cannot be reached.
///
/// ```
/// let mut epochs = ferrotune_display::widget::bar("epochs", 3)?;
/// epochs.show();
/// for epoch in 0..3 {
///     epochs.set(epoch + 1)?;
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn bar(label: &str, total: u64) -> io::Result<Bar> {
    let state = json!({"description": label, "min": 0, "max": total, "value": 0});
    let widget = Widget::open("IntProgress", "ProgressStyle", state)?;
    let state = State { widget, done: 0, sent_at: None, is_late: false };
    Ok(Bar { label: label.to_owned(), total, state: Arc::new(Mutex::new(state)) })
}

impl Bar {
    /// Sets the progress. A value above the total fills the bar.
    ///
    /// # Errors
    /// If the bar is closed, or the kernel cannot be reached.
    pub fn set(&mut self, done: u64) -> io::Result<()> {
        let mut state = self.state();
        state.done = done.min(self.total);
        let is_early = state.sent_at.is_some_and(|sent_at| sent_at.elapsed() < INTERVAL);
        if is_early && done < self.total {
            if !std::mem::replace(&mut state.is_late, true) {
                lock(&LATE).push(self.clone());
            }
            return Ok(());
        }
        state.send()
    }

    /// Shows the bar. The same bar may be shown in several places.
    pub fn show(&self) -> Handle {
        crate::show::show(Show::bundle(self))
    }

    /// Removes the bar from the front end.
    ///
    /// # Errors
    /// If the bar is closed already.
    pub fn close(&self) -> io::Result<()> {
        let closed = self.state().widget.close();
        lock(&LATE).retain(|late| !Arc::ptr_eq(&late.state, &self.state));
        closed
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

impl State {
    fn send(&mut self) -> io::Result<()> {
        self.sent_at = Some(Instant::now());
        self.widget.set("value", self.done)
    }
}

impl Show for Bar {
    fn bundle(&self) -> Bundle {
        let state = self.state();
        state.widget.bundle_or(fallback(&self.label, &format!("{}/{}", state.done, self.total)))
    }
}

/// Sends the values of bars that were not sent yet.
///
/// # Errors
/// The error of the first bar that failed; the other bars are sent nevertheless.
pub(super) fn send_late() -> io::Result<()> {
    let late = std::mem::take(&mut *lock(&LATE));
    let send = |bar: Bar| {
        let mut state = bar.state();
        state.is_late = false;
        state.send().map_err(|error| io::Error::new(error.kind(), format!("the bar {:?}: {error}", bar.label)))
    };
    // All bars are sent, even if one fails.
    let sent: Vec<io::Result<()>> = late.into_iter().map(send).collect();
    sent.into_iter().collect()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The value that the front end has.
    fn sent(bar: &Bar) -> u64 {
        bar.state().widget.get("value").unwrap().as_u64().unwrap()
    }

    #[test]
    fn the_last_value_of_a_cell_is_sent_however_soon_it_comes() {
        let mut bar = bar("rows", 100).unwrap();
        let mut copy = bar.clone();
        bar.set(1).unwrap();
        copy.set(2).unwrap();
        bar.set(3).unwrap();
        assert_eq!((sent(&bar), sent(&copy)), (1, 1));
        send_late().unwrap();
        assert_eq!((sent(&bar), sent(&copy)), (3, 3));
        bar.set(4).unwrap();
        send_late().unwrap();
        assert_eq!(sent(&bar), 4);
        bar.set(150).unwrap();
        assert_eq!(sent(&bar), 100, "what fills the bar does not wait");
        assert_eq!(bar.bundle().data["text/plain"], "rows: 100/100 (a widget, which this front end does not show)");
    }
}
