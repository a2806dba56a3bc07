//! Output without a line end: the standard library holds it back, a notebook wants to see it.
//!
//! One thread flushes the standard output while a cell runs, and rests in between, so that no lock is held when the
//! process is copied.

use std::io::Write;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How old output may become; a progress bar looks smooth.
const INTERVAL: Duration = Duration::from_millis(40);

/// How long another thread may hold the standard output locked at the end of a cell.
const PATIENCE: Duration = Duration::from_secs(2);

static STATE: Mutex<State> = Mutex::new(State::Resting);
static CHANGED: Condvar = Condvar::new();

/// What the thread does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Resting,
    /// A cell runs.
    Running,
    /// The cell has ended: once more, then rest.
    Ending,
}

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts the thread; also in a process that has taken another one's place.
pub(super) fn start() {
    set(State::Ending); // it begins with a rest, and until then it has no name
    match thread::Builder::new().name("ferrotune-out".to_owned()).spawn(serve) {
        Ok(_) => {
            end();
        }
        Err(error) => eprintln!("output without a line end is shown late: {error}"),
    }
}

/// A cell begins.
pub(super) fn begin() {
    set(State::Running);
}

/// The cell has ended; `false` if its last output cannot be passed on, since a thread keeps it locked.
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
        // What cannot be written has lost its reader, and there is no one to tell.
        if let Err(error) = std::io::stdout().flush() {
            eprintln!("what the cell printed last is lost: {error}");
        }
        now = state();
        if ending && *now == State::Ending {
            *now = State::Resting;
            CHANGED.notify_all();
        }
    }
}
