//! How a cell learns that the user wants it to stop.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

static REQUESTED: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

/// Whether the user has asked the running cell to stop. A loop that looks at it can end in good order; one that
/// does not is ended two seconds later.
///
/// ```ignore
/// while !ferrotune::interrupted() {
///     // one more step
/// }
/// ```
pub fn interrupted() -> bool {
    REQUESTED.load(Ordering::Relaxed)
}

/// Sleeps, and wakes early if the user asks the running cell to stop.
///
/// # Errors
/// Where the user did.
///
/// ```ignore
/// ferrotune::sleep(std::time::Duration::from_secs(60))?;
/// ```
pub fn sleep(duration: Duration) -> ferrotune_trial::Result<()> {
    let end = Instant::now() + duration;
    while !interrupted() {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        std::thread::sleep(left.min(Duration::from_millis(20)));
    }
    Err("the cell was interrupted".into())
}

/// Forgets an earlier request; a new cell begins.
pub(crate) fn reset() {
    REQUESTED.store(false, Ordering::Relaxed);
}

/// Takes note of SIGINT from now on instead of dying of it.
pub(crate) fn listen() -> std::io::Result<()> {
    signal_hook::flag::register(signal_hook::consts::SIGINT, Arc::clone(&REQUESTED))?;
    Ok(())
}
