//! What the machine has between trials, so that what a trial leaves behind is seen: memory, and temporary files. Removes
//! only the folder for these.

use super::ProcessError;
use crate::folder;
use crate::record::MemoryCheck;
use ferrotune_machine::format::bytes;
use ferrotune_machine::memory::{available_bytes, own_resident_bytes};
use ferrotune_machine::{memory, nvidia};
use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

/// What may be missing after a trial without being worth a word: caches of the system, and other processes.
const TOLERATED_BYTES: u64 = 64 << 20;
/// How long the system may take to give back what a process held.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long a device's driver may.
const DEVICE_PATIENCE: Duration = Duration::from_secs(10);

/// The machine's memory, and that of the trials' device, at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// What it (or the container) has left, in bytes.
    pub available_bytes: u64,
    /// Processes that the system has killed for want of memory since it was started.
    pub oom_kills: u64,
    /// The device of the trials, if it is looked at.
    device: Option<String>,
    /// What is taken of its memory, in bytes; none where it has none of its own, or nobody tells.
    device_bytes: Option<u64>,
}

impl Machine {
    /// The machine as it is now, with the device of this name (`cpu`, `cuda:0`, …), which may take its driver a second.
    ///
    /// # Errors
    /// Where /proc is not readable.
    pub fn now(device: Option<&str>) -> Result<Machine, ProcessError> {
        let (device, device_bytes) = (device.map(str::to_owned), device.and_then(used_bytes));
        Ok(Machine { available_bytes: available()?, oom_kills: oom_kills(), device, device_bytes })
    }

    /// Whether the system has killed a process for want of memory since then.
    pub fn has_killed(&self) -> bool {
        oom_kills() > self.oom_kills
    }

    /// The machine now against what it was, with what was left behind. Where the trial ran `alone`, what it held must be
    /// back before the next one begins: this waits for it, and says what is missing where it does not come.
    ///
    /// # Errors
    /// Where /proc is not readable.
    pub fn check(&self, mut left: Vec<String>, alone: bool) -> Result<MemoryCheck, ProcessError> {
        let mut after_bytes = available()?;
        if alone {
            after_bytes = self.wait_for_memory()?;
            let missing = self.available_bytes.saturating_sub(after_bytes);
            if missing > TOLERATED_BYTES {
                left.push(format!("{} less available, which others may have taken meanwhile", bytes(missing)));
            }
            left.extend(self.wait_for_device());
        }
        let (before_bytes, supervisor_bytes) = (self.available_bytes, own_resident_bytes());
        Ok(MemoryCheck { before_bytes, after_bytes, supervisor_bytes, left })
    }

    fn wait_for_memory(&self) -> Result<u64, ProcessError> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let available_bytes = available()?;
            if available_bytes.saturating_add(TOLERATED_BYTES) >= self.available_bytes || Instant::now() >= deadline {
                return Ok(available_bytes);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// A process that is gone may leave its device's memory to the driver for some time yet.
    fn wait_for_device(&self) -> Option<String> {
        let (device, before) = (self.device.as_ref()?, self.device_bytes?);
        let deadline = Instant::now() + DEVICE_PATIENCE;
        loop {
            let missing = used_bytes(device)?.saturating_sub(before);
            if missing <= TOLERATED_BYTES {
                return None;
            }
            if Instant::now() >= deadline {
                return Some(format!("{} of {}, not given back by its driver", bytes(missing), device));
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

fn available() -> Result<u64, ProcessError> {
    available_bytes().map_err(ProcessError::system("read how much memory is available"))
}

fn oom_kills() -> u64 {
    // Sandboxes without this file tell no kills.
    memory::oom_kills().unwrap_or(0)
}

/// How much of a device's memory is used, in bytes; none where it has none of its own, or its driver gives no answer.
fn used_bytes(device: &str) -> Option<u64> {
    nvidia::used_bytes(device).unwrap_or_else(|error| {
        tracing::debug!(device, %error, "how much of the device's memory is used is unknown");
        None
    })
}

/// Empties the folder for a trial's temporary files, or makes it.
pub(super) fn make_temporary(folder: &Path) -> io::Result<()> {
    remove_temporary(folder)?;
    fs::create_dir_all(folder)
}

/// Removes the folder for a trial's temporary files with all that is in it.
pub(super) fn remove_temporary(folder: &Path) -> io::Result<()> {
    folder::removed(fs::remove_dir_all(folder))
}
