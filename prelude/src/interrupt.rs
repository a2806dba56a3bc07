//! The user's interrupts of a running cell.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

static REQUESTED: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

/// Whether the user has interrupted the running cell. A loop that checks this can end in good order. A cell that does not
/// stop within two seconds is killed.
///
/// ```ignore
/// while !ferrotune::interrupted() {
///     // one more step
/// }
/// ```
pub fn interrupted() -> bool {
    REQUESTED.load(Ordering::Relaxed)
}

/// Sleeps, and wakes early if the user interrupts the running cell.
///
/// # Errors
/// If the user has interrupted the cell.
///
/// ```ignore
/// ferrotune::sleep(std::time::Duration::from_secs(60))?;
/// ```
#[track_caller]
pub fn sleep(duration: Duration) -> ferrotune_trial::Result<()> {
    // If the end exceeds the range of the clock, the sleep lasts until an interrupt.
    let end = Instant::now().checked_add(duration);
    while !interrupted() {
        let left = end.map_or(Duration::MAX, |end| end.saturating_duration_since(Instant::now()));
        if left.is_zero() {
            return Ok(());
        }
        std::thread::sleep(left.min(Duration::from_millis(20)));
    }
    Err("the cell was interrupted".into())
}

/// Forgets an earlier interrupt, because a new cell begins.
pub(crate) fn reset() {
    REQUESTED.store(false, Ordering::Relaxed);
}

/// Installs a handler for SIGINT that records the signal, so that it does not end the process.
pub(crate) fn listen() -> std::io::Result<()> {
    signal_hook::flag::register(signal_hook::consts::SIGINT, Arc::clone(&REQUESTED))?;
    Ok(())
}
