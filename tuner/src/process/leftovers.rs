//! Compares the machine's memory before and after a trial, to find memory that the trial has left behind. Removes only the
//! folder for the trial's temporary files.

use super::ProcessError;
use ferrotune_journal::folder;
use ferrotune_machine::format::bytes;
use ferrotune_machine::memory::{available_bytes, own_resident_bytes};
use ferrotune_machine::{memory, nvidia};
use ferrotune_space::record::MemoryCheck;
use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

/// The difference in memory below which nothing is reported: the system's caches and other processes cause small
/// differences, too.
const TOLERATED_BYTES: u64 = 64 << 20;
/// The longest wait for the system to free the memory of a process that has ended.
const PATIENCE: Duration = Duration::from_secs(1);
/// The longest wait for a device's driver to free memory.
const DEVICE_PATIENCE: Duration = Duration::from_secs(10);

/// The memory of the machine and of the trials' device, at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// The memory that the machine (or the container) has available, in bytes.
    pub available_bytes: u64,
    /// The number of processes that the system has killed for lack of memory since it started.
    pub oom_kills: u64,
    /// The device of the trials, if its memory is watched.
    device: Option<String>,
    /// The device's memory in use, in bytes; none if the device has no memory of its own, or its driver does not answer.
    device_bytes: Option<u64>,
}

impl Machine {
    /// Reads the present state of the machine and of the device with this name (`cpu`, `cuda`, …). The device's driver
    /// may take a second to answer.
    ///
    /// # Errors
    /// If /proc is not readable.
    pub fn now(device: Option<&str>) -> Result<Machine, ProcessError> {
        let (device, device_bytes) = (device.map(str::to_owned), device.and_then(used_bytes));
        Ok(Machine { available_bytes: available()?, oom_kills: oom_kills(), device, device_bytes })
    }

    /// Whether the system has killed a process for lack of memory since this state was read.
    pub fn has_killed(&self) -> bool {
        oom_kills() > self.oom_kills
    }

    /// Compares the machine now with this earlier state; `left` are lines about other things that the trial left behind. If
    /// the trial ran `alone`, its memory must be free before the next trial begins. This function then waits for the
    /// memory, and adds a line if some of it stays missing.
    ///
    /// # Errors
    /// If /proc is not readable.
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

    /// Waits for the driver, which may need some time to free the device's memory of a process that has ended.
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
    // Some sandboxes do not report the number.
    memory::oom_kills().unwrap_or(0)
}

/// The device's memory in use, in bytes; none if the device has no memory of its own, or its driver does not answer.
fn used_bytes(device: &str) -> Option<u64> {
    nvidia::used_bytes(device).unwrap_or_else(|error| {
        tracing::debug!(device, %error, "how much of the device's memory is used is unknown");
        None
    })
}

/// Makes the folder for a trial's temporary files, or empties it.
pub(super) fn make_temporary(folder: &Path) -> io::Result<()> {
    remove_temporary(folder)?;
    fs::create_dir_all(folder)
}

/// Removes the folder for a trial's temporary files and its contents.
pub(super) fn remove_temporary(folder: &Path) -> io::Result<()> {
    folder::removed(fs::remove_dir_all(folder))
}
