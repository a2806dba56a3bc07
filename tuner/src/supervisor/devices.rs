//! The device process that the trials of a search share. This module opens no device.

use super::{Supervisor, SupervisorError};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// The time between two checks of the running trials while a device opens.
const TICK: Duration = Duration::from_millis(10);

/// The device processes of this host, each of which opens a plugin once for all processes of a user.
pub trait Devices: Sync {
    /// Whether trials on the device of this name use a device process, if one runs.
    fn is_shared(&self, device: &str) -> bool;
    /// Makes sure that the device process of this device runs, and goes on until this process ends. An error is one line.
    fn hold(&self, device: &str) -> Result<(), String>;
}

impl Supervisor<'_> {
    /// Makes sure that the device process runs which the trials of this search share, if they share one. Returns whether a trial may
    /// begin: not if the search stops meanwhile.
    pub(super) fn hold_device(&mut self) -> Result<bool, SupervisorError> {
        let Some(devices) = self.devices.filter(|_| !self.is_device_held) else { return Ok(true) };
        let device = self.search.spec.device.clone();
        let failed = |reason| SupervisorError::Device { device: device.clone(), reason };
        let (sender, held) = channel();
        let named = device.clone();
        // A plugin may take many seconds to open, or hang.
        std::thread::spawn(move || {
            // Nobody listens any more where the search has stopped.
            let _ = sender.send(devices.hold(&named));
        });
        loop {
            match held.recv_timeout(TICK) {
                Ok(result) => {
                    self.is_device_held = result.is_ok();
                    if let Some(residence) = &mut self.residence {
                        residence.is_open = result.is_ok();
                    }
                    return result.map(|()| true).map_err(failed);
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(failed("the thread that opens it has ended; please report this".to_owned()));
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
            self.guard.lock().look();
            self.look_outside(0)?;
            if self.phase.is_stopping() {
                return Ok(false);
            }
        }
    }
}
