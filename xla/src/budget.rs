//! Whether a program fits the memory of its device, before it runs for the first time.

use candle_core::{Error, Result};
use ferrotune_devices::Shortage;
use ferrotune_devices::pjrt::LoadedExecutable;
use std::sync::{Mutex, PoisonError};

/// The shortage of the last program that a device of this process could not hold.
static LAST: Mutex<Option<Shortage>> = Mutex::new(None);

/// The memory of a device.
#[derive(Clone)]
pub(crate) struct Budget {
    /// The device, as messages call it.
    device: String,
    /// None if nothing is known of it.
    bytes: Option<u64>,
}

impl Budget {
    pub(crate) fn new(device: &str, bytes: Option<u64>) -> Budget {
        Budget { device: device.to_owned(), bytes }
    }

    /// Refuses a program that needs more.
    ///
    /// # Errors
    /// The [`Shortage`].
    pub(crate) fn check(&self, executable: &LoadedExecutable) -> Result<()> {
        let Some(bytes) = self.bytes else { return Ok(()) };
        // A plugin need not know what a program takes; it then finds out when the program runs.
        let memory = executable.executable().memory().ok();
        let shortage = memory.and_then(|memory| Shortage::of(&memory, &self.device, bytes));
        let Some(shortage) = shortage else { return Ok(()) };
        *LAST.lock().unwrap_or_else(PoisonError::into_inner) = Some(shortage.clone());
        Err(Error::wrap(shortage))
    }
}

/// Why an error came, if its text is that of the last program that a device of this process could not hold: candle keeps only the
/// text of such an error.
pub fn shortage_of(error: &str) -> Option<Shortage> {
    let last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    last.clone().filter(|shortage| error.contains(&shortage.to_string()))
}
