//! How a cell learns that the user wants it to stop.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};

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

/// Forgets an earlier request; a new cell begins.
pub(crate) fn reset() {
    REQUESTED.store(false, Ordering::Relaxed);
}

/// Takes note of SIGINT from now on instead of dying of it.
pub(crate) fn listen() -> std::io::Result<()> {
    signal_hook::flag::register(signal_hook::consts::SIGINT, Arc::clone(&REQUESTED))?;
    Ok(())
}
