//! The device process that the trials of a search share.

use ferrotune_devices::pjrt::PjrtError;
use ferrotune_devices::process::MemoryClaim;
use ferrotune_devices::runtime::{Client, Route, interrupt_waits_with, process_of};
use ferrotune_devices::{DeviceName, Machine};
use ferrotune_machine::own;
use ferrotune_tuner::supervisor;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// The device processes of this host.
pub(crate) static DEVICES: Devices = Devices { held: Mutex::new(None), has_given_up: AtomicBool::new(false) };

/// The device processes of this host, and the client that keeps one of them.
pub(crate) struct Devices {
    held: Mutex<Option<Client>>,
    /// Whether the search waits for no device any more.
    has_given_up: AtomicBool,
}

impl supervisor::Devices for Devices {
    fn is_shared(&self, device: &str) -> bool {
        DeviceName::parse(device).is_some_and(|device| device.is_shared_by_trials())
    }

    fn process(&self, device: &str) -> Option<u32> {
        // Where it is not known, the search waits until nobody has the device.
        process_of(&route(device).ok()?)
    }

    fn hold(&self, device: &str) -> Result<(), String> {
        interrupt_waits_with(|| DEVICES.has_given_up.load(Ordering::Relaxed));
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = &*held {
            return client.reach().map_err(in_words);
        }
        *held = Some(Client::far(route(device)?).map_err(in_words)?);
        Ok(())
    }

    fn give_up(&self) {
        self.has_given_up.store(true, Ordering::Relaxed);
    }
}

/// How this search reaches the device process of a device.
fn route(device: &str) -> Result<Route, String> {
    let name = DeviceName::parse(device).ok_or_else(|| format!("there is no device {device}"))?;
    Ok(Route {
        device: name.first().to_string(),
        plugin: name.find_plugin(&Machine::this()).map_err(|missing| missing.to_string())?,
        program: Some(PathBuf::from(own::PROGRAM)),
        client: format!("search {}", std::process::id()),
        memory: MemoryClaim::Free,
    })
}

/// The error without the device's name, which the search's own error has.
fn in_words(error: PjrtError) -> String {
    match error {
        PjrtError::NoProcess { reason, .. } => reason,
        other => other.to_string(),
    }
}
