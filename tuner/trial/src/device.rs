//! Opens candle devices by name, and keeps the name of the one that this process uses. Chooses none.

use crate::error::{Result, TrialError};
use candle_core::Device;
use ferrotune_devices::pjrt::Plugin;
use ferrotune_devices::{Machine, Shortage, find_plugin, fork};
use ferrotune_tuner::wire::BUDGET_VARIABLE;
use ferrotune_xla::{Options, backend_of, identity};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

static CONNECTED: Mutex<Option<String>> = Mutex::new(None);

/// The name of the device that this process uses, which in a worker is that of the trial: `cpu` until [`connect`] was called.
pub fn connected() -> String {
    CONNECTED.lock().unwrap_or_else(PoisonError::into_inner).clone().unwrap_or_else(|| "cpu".to_owned())
}

/// Makes the device with this name the one that this process uses. Opens nothing.
pub fn connect(device: &str) {
    *CONNECTED.lock().unwrap_or_else(PoisonError::into_inner) = Some(device.to_owned());
}

/// The plugins that this process has opened, by the paths of their libraries.
static OPEN: Mutex<BTreeMap<PathBuf, Device>> = Mutex::new(BTreeMap::new());

/// Whether this process has opened this plugin.
pub fn is_open(plugin: &Path) -> bool {
    open_plugins().contains_key(&real(plugin))
}

fn open_plugins() -> MutexGuard<'static, BTreeMap<PathBuf, Device>> {
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Opens a device by its name: `cpu`, `cuda:0`, `tpu`, or the first device of a PJRT plugin, which is `xla:cpu` for XLA's own
/// of the CPU and `xla:/opt/plugin.so` for any other.
///
/// A plugin's device is opened once in a process: whoever opens it again gets the same device.
///
/// # Errors
/// If this build or this machine has no such device, if it cannot be opened, or if the process is forked from one that had
/// opened an accelerator.
pub fn open_device(device: &str) -> Result<Device> {
    let owned = || device.to_owned();
    match device.split_once(':').unwrap_or((device, "0")) {
        ("cpu", _) => Ok(Device::Cpu),
        ("tpu", "0") | ("xla", _) => {
            fork::check()?;
            open_plugin(device, find_plugin(&Machine::this(), device)?)
        }
        ("cuda", ordinal) => match ordinal.parse() {
            Ok(_) if !candle_core::utils::cuda_is_available() => Err(TrialError::NoCuda { device: owned() }.into()),
            Ok(ordinal) => {
                fork::check()?;
                // Recorded also on failure, because the driver was loaded.
                fork::opened();
                Ok(Device::new_cuda(ordinal)?)
            }
            Err(_) => Err(TrialError::Device { device: owned() }.into()),
        },
        _ => Err(TrialError::Device { device: owned() }.into()),
    }
}

/// The library itself, to which several names may lead.
fn real(plugin: &Path) -> PathBuf {
    plugin.canonicalize().unwrap_or_else(|_| plugin.to_owned())
}

/// Why the last new program of an open device was refused, if its device has too little memory for it.
pub(crate) fn shortage() -> Option<Shortage> {
    open_plugins().values().find_map(|device| backend_of(device)?.shortage())
}

/// The device of a plugin's library, opened now or before.
fn open_plugin(name: &str, plugin: PathBuf) -> Result<Device> {
    let plugin = real(&plugin);
    let mut open = open_plugins();
    if let Some(device) = open.get(&plugin) {
        return Ok(device.clone());
    }
    let loaded = Plugin::load(&plugin)?;
    // Recorded also if no client opens, because the plugin may have started threads.
    fork::opened();
    let client = loaded.client(&[])?;
    // A search compiles the same program in many workers; each but the first one loads it.
    let cache = dirs::cache_dir().map(|folder| folder.join("ferrotune/xla"));
    // A trial on the CPU shares its budget with the programs of XLA. In a cell there is no such limit.
    let budget = std::env::var(BUDGET_VARIABLE).ok().and_then(|bytes| bytes.parse().ok());
    let options = Options { cache: cache.as_deref(), memory_bytes: budget, name: Some(name), ..Options::default() };
    let device = ferrotune_xla::device_on(client, &identity(&plugin), options)?;
    open.insert(plugin, device.clone());
    Ok(device)
}

#[cfg(test)]
mod tests {
    use super::open_device;

    #[test]
    fn what_cannot_be_opened_is_said_with_the_cure() {
        assert!(open_device("cpu").is_ok_and(|device| device.is_cpu()));
        let refused = |device: &str| open_device(device).err().map(|error| error.to_string()).unwrap_or_default();
        let missing = refused("xla:/nowhere/plugin.so");
        assert_eq!(missing, "/nowhere/plugin.so is not a file; name cpu, or the library of a PJRT plugin");
        let other = refused(&format!("xla:{}", env!("CARGO_MANIFEST_PATH")));
        assert!(other.starts_with("cannot load the plugin"), "{other}");
        assert!(
            refused("tpu:7").starts_with("there is no device `tpu:7`; devices are cpu, cuda:0"),
            "{}",
            refused("tpu:7")
        );
        assert!(refused("gpu").starts_with("there is no device `gpu`"), "{}", refused("gpu"));
        assert!(refused("cuda:first").starts_with("there is no device `cuda:first`"));
        if !candle_core::utils::cuda_is_available() {
            assert!(refused("cuda:0").contains("ferrotune install --cuda"), "{}", refused("cuda:0"));
        }
    }
}
