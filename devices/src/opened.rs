//! What a plugin is, and the devices that it has opened, as data. Opens none.

use crate::pjrt::{Named, Value};
use ferrotune_machine::format::precise_bytes;
use serde::{Deserialize, Serialize};
use std::fmt;

/// What a plugin is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Identity {
    /// Version of PJRT's interface.
    pub api: (i32, i32),
    /// Its attributes.
    pub attributes: Vec<Named>,
}

/// A plugin and its devices, as they were while they were open.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Opened {
    /// The plugin.
    pub identity: Identity,
    /// The platform's name, such as `tpu`.
    pub platform: String,
    /// Its version, on one line.
    pub version: String,
    /// The devices that this machine can use; on a TPU, its cores.
    pub devices: Vec<OpenDevice>,
}

/// One device that was open.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OpenDevice {
    /// Its number.
    pub id: i32,
    /// The vendor's name for it, such as `TPU v5 lite`.
    pub kind: String,
    /// Its memory; none if the plugin does not report it.
    pub memory_bytes: Option<u64>,
}

impl fmt::Display for Identity {
    /// `PJRT 0.116, StableHLO 1.23.0`
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
    /// `4 × TPU v5 lite with 15.75 GiB each (PJRT 0.116, …; TFRT TPU v5 lite | Built on …)`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let first = self.devices.first();
        write!(f, "{} × {}", self.devices.len(), first.map_or("nothing", |device| &device.kind))?;
        if let Some(bytes) = first.and_then(|device| device.memory_bytes) {
            write!(f, " with {} each", precise_bytes(bytes))?;
        }
        write!(f, " ({}; {})", self.identity, self.version)
    }
}
