//! Whether a program fits the memory of its device, before it runs for the first time.

use candle_core::{Error, Result};
use ferrotune_devices::Shortage;
use ferrotune_devices::pjrt::LoadedExecutable;
use std::sync::{Mutex, PoisonError};

/// The memory of a device.
pub(crate) struct Budget {
    /// The device, as messages call it.
    device: String,
    /// None if nothing is known of it.
    bytes: Option<u64>,
    /// The shortage of the last new program, if it had one.
    last: Mutex<Option<Shortage>>,
}

impl Budget {
    pub(crate) fn new(device: &str, bytes: Option<u64>) -> Budget {
        Budget { device: device.to_owned(), bytes, last: Mutex::default() }
    }

    /// The same for another device of the plugin.
    pub(crate) fn of_another(&self) -> Budget {
        Budget::new(&self.device, self.bytes)
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
        self.last.lock().unwrap_or_else(PoisonError::into_inner).clone_from(&shortage);
        shortage.map_or(Ok(()), |shortage| Err(Error::wrap(shortage)))
    }

    pub(crate) fn take_shortage(&self) -> Option<Shortage> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
