//! The identity of a plugin and the devices that it has opened, as data. This module opens no device.

use crate::pjrt::{Named, Value};
use crate::strategy::{Strategy, StrategyError};
use ferrotune_machine::format::precise_bytes;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::Path;

/// The identity of a plugin.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Identity {
    /// Version of PJRT's interface.
    pub api: (i32, i32),
    /// The plugin's attributes.
    pub attributes: Vec<Named>,
}

/// A plugin and its devices, described while they were open.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Opened {
    /// The plugin.
    pub identity: Identity,
    /// The platform's name, such as `tpu`.
    pub platform: String,
    /// The platform's version, on one line.
    pub version: String,
    /// The devices that this machine can use; on a TPU, its cores.
    pub devices: Vec<OpenDevice>,
}

/// The identity of a plugin's library, which differs between builds: XLA:CPU, for one, has no version of its own.
pub fn identity(plugin: &Path) -> String {
    let file = std::fs::metadata(plugin).ok();
    let changed = file.as_ref().and_then(|file| file.modified().ok());
    format!("{} {:?} {changed:?}", plugin.display(), file.map(|file| file.len()))
}

impl Strategy {
    /// A strategy for all cores of an opened TPU: TensorFlow's `TPUStrategy`. See [`Strategy::cores`].
    ///
    /// # Errors
    /// If the opened platform is not a TPU, or has no cores.
    pub fn tpu(opened: &Opened) -> Result<Strategy, StrategyError> {
        match opened.platform.as_str() {
            "tpu" => Strategy::cores("tpu", opened.devices.len()),
            platform => Err(StrategyError::NoTpu { platform: platform.to_owned() }),
        }
    }
}

/// A device, described while it was open.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OpenDevice {
    /// The device's number.
    pub id: i32,
    /// The vendor's name for the kind of device, such as `TPU v5 lite`.
    pub kind: String,
    /// The device's memory, in bytes; none if the plugin does not report it.
    pub memory_bytes: Option<u64>,
}

impl fmt::Display for Identity {
    /// Writes a text such as `PJRT 0.116, StableHLO 1.23.0`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PJRT {}.{}", self.api.0, self.api.1)?;
        let stablehlo = self.attributes.iter().find(|named| named.name == "stablehlo_current_version");
        if let Some(Value::Integers(parts)) = stablehlo.map(|named| &named.value) {
            let version: Vec<String> = parts.iter().map(ToString::to_string).collect();
            write!(f, ", StableHLO {}", version.join("."))?;
        }
        Ok(())
    }
}

impl fmt::Display for Opened {
    /// Writes a text such as `4 × TPU v5 lite with 15.75 GiB each (PJRT 0.116, …; TFRT TPU v5 lite | Built on …)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let first = self.devices.first();
        write!(f, "{} × {}", self.devices.len(), first.map_or("nothing", |device| &device.kind))?;
        if let Some(bytes) = first.and_then(|device| device.memory_bytes) {
            write!(f, " with {} each", precise_bytes(bytes))?;
        }
        write!(f, " ({}; {})", self.identity, self.version)
    }
}
