//! The device process that the trials of a search share.

use crate::runtime::OWN_PROGRAM;
use ferrotune_devices::process::MemoryClaim;
use ferrotune_devices::runtime::{Client, Route};
use ferrotune_devices::{DeviceName, Machine};
use ferrotune_tuner::supervisor;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// The device processes of this host.
pub(crate) static DEVICES: Devices = Devices { held: Mutex::new(None) };

/// The device processes of this host, and the client that keeps one of them.
pub(crate) struct Devices {
    held: Mutex<Option<Client>>,
}

impl supervisor::Devices for Devices {
    fn is_shared(&self, device: &str) -> bool {
        DeviceName::parse(device).is_some_and(|device| device.is_shared_by_trials())
    }

    fn hold(&self, device: &str) -> Result<(), String> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = &*held {
            return client.reach().map_err(|error| error.to_string());
        }
        let name = DeviceName::parse(device).ok_or_else(|| format!("there is no device {device}"))?;
        let plugin = name.find_plugin(&Machine::this()).map_err(|missing| missing.to_string())?;
        let client = Client::far(Route {
            device: name.first().to_string(),
            plugin,
            program: Some(PathBuf::from(OWN_PROGRAM)),
            client: format!("search {}", std::process::id()),
            memory: MemoryClaim::Free,
        });
        *held = Some(client.map_err(|error| error.to_string())?);
        Ok(())
    }
}
