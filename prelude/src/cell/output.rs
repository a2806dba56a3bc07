//! Flushes output without a line end, which the standard library would hold back, so that the notebook shows it.
//!
//! One thread flushes the standard output while a cell runs. Between cells the thread rests, so that it holds no lock while the
//! process forks.

use std::io::Write;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// The interval between two flushes. With it, a progress bar looks smooth.
const INTERVAL: Duration = Duration::from_millis(40);

/// The longest wait at the end of a cell for a thread that holds the standard output locked.
const PATIENCE: Duration = Duration::from_secs(2);

static STATE: Mutex<State> = Mutex::new(State::Resting);
static CHANGED: Condvar = Condvar::new();

/// The phase of the thread.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Resting,
    /// A cell runs.
    Running,
    /// The cell has ended: the thread flushes once more, and then rests.
    Ending,
}

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts the thread, also in a woken snapshot.
pub(super) fn start() {
    set(State::Ending); // `end` waits until the thread has run once and so has its name
    match thread::Builder::new().name("ferrotune-out".to_owned()).spawn(serve) {
        Ok(_) => {
            end();
        }
        Err(error) => eprintln!("output without a line end is shown late: {error}"),
    }
}

/// Begins the flushes for a cell.
pub(super) fn begin() {
    set(State::Running);
}

/// Ends the flushes for a cell. Returns `false` if its last output cannot be flushed, because a thread keeps it locked.
pub(super) fn end() -> bool {
    set(State::Ending);
    let deadline = Instant::now() + PATIENCE;
    let mut state = state();
    while *state != State::Resting {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return false;
        }
        state = CHANGED.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
    }
    true
}

fn set(to: State) {
    *state() = to;
    CHANGED.notify_all();
}

fn serve() {
    let mut now = state();
    loop {
        now = match *now {
            State::Resting => CHANGED.wait(now).unwrap_or_else(PoisonError::into_inner),
            State::Running => CHANGED.wait_timeout(now, INTERVAL).unwrap_or_else(PoisonError::into_inner).0,
            State::Ending => now,
        };
        let ending = *now == State::Ending;
        if *now == State::Resting {
            continue;
        }
        drop(now);
        // The pipe has no reader any more, so the message goes to the standard error.
        if let Err(error) = std::io::stdout().flush() {
            eprintln!("the last output of the cell is lost: {error}");
        }
        now = state();
        if ending && *now == State::Ending {
            *now = State::Resting;
            CHANGED.notify_all();
        }
    }
}
