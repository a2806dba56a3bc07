//! Counts the copies between the host and a device, so that a program that waits for copies can report the reason.

use ferrotune_devices::pjrt::Element;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};

/// Copies between the host and a device since it was opened.
#[derive(Debug, Default)]
pub struct Traffic(Mutex<Counts>);

#[derive(Debug, Default)]
struct Counts {
    /// The number of copies to the host and of their bytes, by element type and dimensions.
    to_host: BTreeMap<String, Count>,
    to_device: Count,
}

#[derive(Clone, Copy, Debug, Default)]
struct Count {
    copies: u64,
    bytes: u64,
}

impl Count {
    fn add(&mut self, bytes: usize) {
        self.copies += 1;
        self.bytes += bytes as u64;
    }
}

impl Traffic {
    pub(crate) fn to_host(&self, dims: &[usize], element: Element, bytes: usize) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        counts.to_host.entry(format!("{element:?} {dims:?}").to_lowercase()).or_default().add(bytes);
    }

    pub(crate) fn to_device(&self, bytes: usize) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).to_device.add(bytes);
    }
}

/// Writes a line for each kind of array that was read, and one for all uploads.
impl fmt::Display for Traffic {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Count { copies, bytes } = counts.to_device;
        write!(formatter, "copied to the device: {copies} arrays, {bytes} bytes")?;
        for (array, Count { copies, bytes }) in &counts.to_host {
            write!(formatter, "\ncopied to the host: {array}, {copies} times, {bytes} bytes")?;
        }
        Ok(())
    }
}
