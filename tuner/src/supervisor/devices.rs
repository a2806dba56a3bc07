//! The device process that the trials of a search share. This module opens no device.

use super::{Supervisor, SupervisorError, TICK};
use crate::process;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// The pause before a device is opened again that its last process may not have given back yet.
const PAUSE: Duration = Duration::from_millis(500);

/// The longest wait for the end of an opening that was given up.
const PATIENCE: Duration = Duration::from_secs(5);

/// The device processes of this host, each of which opens a plugin once for all processes of a user.
pub trait Devices: Sync {
    /// Whether trials on the device of this name share a device process.
    fn is_shared(&self, device: &str) -> bool;
    /// The device process that trials on this device would have; none if it does not run.
    fn process(&self, device: &str) -> Option<u32>;
    /// Makes sure that the device process of this device runs, and goes on until this process ends. An error is one line.
    fn hold(&self, device: &str) -> Result<(), String>;
    /// Ends a device process that [`Devices::hold`] is starting, and makes each call of `hold` fail from now on.
    fn give_up(&self);
}

impl Supervisor<'_> {
    /// Whether the trials of this search share a device process that may not run.
    pub(super) fn lacks_device(&self) -> bool {
        self.devices.is_some() && !self.is_device_held
    }

    /// Makes sure that the device process runs which the trials of this search share, if they share one. Returns whether a trial may
    /// begin: not if the search stops meanwhile.
    pub(super) fn hold_device(&mut self) -> Result<bool, SupervisorError> {
        let Some(devices) = self.devices else { return Ok(true) };
        let deadline = Instant::now() + self.device_wait();
        let was_open = self.residence.as_ref().is_some_and(|residence| residence.is_open);
        loop {
            let Some(held) = self.opened(devices)? else { return Ok(false) };
            if let Some(residence) = &mut self.residence {
                residence.is_open = held.is_ok();
            }
            match held {
                Ok(()) => {
                    self.is_device_held = true;
                    return Ok(true);
                }
                // The system may still free what the last process had, or another program may be faster.
                Err(_) if was_open && Instant::now() < deadline => {
                    let interrupts = process::wait([], &self.signals, &mut self.shared_memory, PAUSE)?;
                    self.look_outside(interrupts)?;
                    if self.phase.is_stopping() || !self.wait_for_device()? {
                        return Ok(false);
                    }
                }
                Err(reason) => {
                    let device = self.search.spec.device.clone();
                    return Err(SupervisorError::Device { device, reason });
                }
            }
        }
    }

    /// Opens the device, while the supervisor goes on with its trials. None if the search stops meanwhile.
    fn opened(&mut self, devices: &'static dyn Devices) -> Result<Option<Result<(), String>>, SupervisorError> {
        let device = self.search.spec.device.clone();
        let (sender, held): (_, Receiver<Result<(), String>>) = channel();
        // A plugin may take many seconds to open, or hang.
        std::thread::spawn(move || {
            // Where the search has stopped, nobody listens any more.
            let _ = sender.send(devices.hold(&device));
        });
        loop {
            match held.recv_timeout(TICK) {
                Ok(result) => return Ok(Some(result)),
                Err(RecvTimeoutError::Disconnected) => {
                    return Ok(Some(Err("the thread that opens it has ended; please report this".to_owned())));
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
            self.guard.lock().look();
            self.look_outside(0)?;
            self.search.journal.beat()?;
            if self.phase.is_stopping() {
                devices.give_up();
                // The process of a plugin that hangs is gone when this process ends.
                let _ = held.recv_timeout(PATIENCE);
                return Ok(None);
            }
        }
    }
}
