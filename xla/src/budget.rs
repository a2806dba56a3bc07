//! Checks before the first run of a program whether it fits the memory of its device.

use candle_core::{Error, Result};
use ferrotune_devices::Shortage;
use ferrotune_devices::runtime::LoadedExecutable;
use std::sync::{Mutex, PoisonError};

/// The shortage of the last program that did not fit a device of this process.
static LAST: Mutex<Option<Shortage>> = Mutex::new(None);

/// The memory of a device.
#[derive(Clone)]
pub(crate) struct Budget {
    /// The device's name in messages.
    device: String,
    /// The memory of the device in bytes; none if it is unknown.
    bytes: Option<u64>,
}

impl Budget {
    pub(crate) fn new(device: &str, bytes: Option<u64>) -> Budget {
        Budget { device: device.to_owned(), bytes }
    }

    /// Refuses a program that needs more memory than the device has.
    ///
    /// # Errors
    /// The [`Shortage`] of the program.
    pub(crate) fn check(&self, executable: &LoadedExecutable) -> Result<()> {
        let Some(bytes) = self.bytes else { return Ok(()) };
        // A plugin may not report the memory of a program; the shortage then appears when the program runs.
        let memory = executable.memory().ok();
        let shortage = memory.and_then(|memory| Shortage::of(&memory, &self.device, bytes));
        let Some(shortage) = shortage else { return Ok(()) };
        *LAST.lock().unwrap_or_else(PoisonError::into_inner) = Some(shortage.clone());
        Err(Error::wrap(shortage))
    }
}

/// The shortage of the last program that did not fit a device, if the text of an error contains this shortage. candle keeps only the
/// text of such an error.
pub fn shortage_of(error: &str) -> Option<Shortage> {
    let last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    last.clone().filter(|shortage| error.contains(&shortage.to_string()))
}
