//! Opens candle devices by name, and remembers the name of this process' device. Chooses no device.

use crate::error::TrialError;
use crate::plugins;
use candle_core::Device;
use ferrotune_devices::{Cluster, DeviceName, fork};
use ferrotune_space::record::DeviceUse;
use ferrotune_space::spec::takes_one_process;
use ferrotune_state::BoxError;
use std::sync::{Mutex, PoisonError};

static CONNECTED: Mutex<Option<String>> = Mutex::new(None);

/// The name of the device that this process uses; in a worker, the device of the trial. It is `cpu` until [`connect`] is called.
pub fn connected() -> String {
    CONNECTED.lock().unwrap_or_else(PoisonError::into_inner).clone().unwrap_or_else(|| "cpu".to_owned())
}

/// Makes the device with this name the device of this process. Opens no device.
pub fn connect(device: &str) {
    *CONNECTED.lock().unwrap_or_else(PoisonError::into_inner) = Some(shortest(device));
}

/// The shortest form of a device's name, which messages and records have: `cuda` for `cuda:0`.
fn shortest(device: &str) -> String {
    DeviceName::parse(device).map_or_else(|| device.to_owned(), |name| name.to_string())
}

/// Makes the device with this name the device of a trial that begins in this process. A device that only one process at a time can
/// use is opened now, so that the memory of its plugin does not count as the trial's. Returns the known facts of such a device.
pub(crate) fn enter_trial(device: &str) -> Option<DeviceUse> {
    connect(device);
    let is_exclusive = takes_one_process(device);
    if is_exclusive && let Err(error) = open_device(device) {
        // The objective may not need the device. If it does, its own call returns this error.
        eprintln!("ferrotune: {device} does not open: {error}");
    }
    if !is_exclusive {
        return None;
    }
    let facts = plugins::facts_of(device).unwrap_or_default();
    Some(DeviceUse {
        name: shortest(device),
        before_bytes: facts.after_bytes,
        after_bytes: None,
        peak_bytes: None,
        ..facts
    })
}

/// The known facts of the device with this name after a trial that began with `before`; `None` for the CPU.
pub(crate) fn leave_trial(device: &str, before: Option<DeviceUse>) -> Option<DeviceUse> {
    if device.split(':').next() == Some("cpu") {
        return None;
    }
    let facts = plugins::facts_of(device).unwrap_or_default();
    let before_bytes = before.and_then(|before| before.before_bytes);
    Some(DeviceUse { name: shortest(device), before_bytes, ..facts })
}

/// Opens a device by its name: `cpu`, or a device of a PJRT plugin: `tpu`, `cuda`, `cuda:1`, `rocm`, `oneapi`. `xla:cpu` is XLA's own
/// plugin for the CPU, and `xla:/opt/plugin.so` is any other plugin.
///
/// A device is opened once in a process: later calls return the same device. Its random numbers begin with the seed
/// that was given to [`seed`](crate::seed), if any.
///
/// # Errors
/// If this machine has no such device, if it cannot be opened, or if the process is forked from one that had
/// opened an accelerator.
pub fn open_device(device: &str) -> Result<Device, BoxError> {
    match DeviceName::parse(device) {
        Some(name) => {
            fork::check()?;
            plugins::open(&name, 1, None)
        }
        None if device.split(':').next() == Some("cpu") => Ok(Device::Cpu),
        None => Err(unknown(device)),
    }
}

fn unknown(device: &str) -> BoxError {
    TrialError::Device { device: device.to_owned() }.into()
}

/// The name of a plugin's device, in a process that may open it.
fn of_plugin(device: &str) -> Result<DeviceName, BoxError> {
    fork::check()?;
    DeviceName::parse(device).ok_or_else(|| unknown(device))
}

/// The first cores of a plugin (`tpu`, `cuda` or `xla:cpu`) as one device, a mesh with the axis `data`. Each number of
/// cores makes a device of its own, separate from that of [`open_device`]. All of them share the plugin's one client.
///
/// # Errors
/// The errors of [`open_device`], and an error if the plugin has fewer cores.
pub fn open_cores(device: &str, cores: usize) -> Result<Device, BoxError> {
    plugins::open(&of_plugin(device)?, cores, None)
}

/// The first cores of a plugin in each process of a cluster as one device, a mesh with the axis `data`. All processes call this at
/// the same time, before they open the plugin in another way.
///
/// # Errors
/// The errors of [`open_cores`], and an error if another process is missing or if this process has opened the plugin without the others.
pub fn open_cores_across(device: &str, cores: usize, cluster: &Cluster) -> Result<Device, BoxError> {
    plugins::open(&of_plugin(device)?, cores, Some(cluster))
}

/// The number of cores that a plugin has for this process, by the name of its device. Opens the plugin.
///
/// # Errors
/// The errors of [`open_device`].
pub fn count_cores(device: &str) -> Result<usize, BoxError> {
    plugins::count_cores(&of_plugin(device)?)
}

#[cfg(test)]
mod tests {
    use super::{open_device, shortest};

    #[test]
    fn what_cannot_be_opened_is_said_with_the_cure() {
        assert!(open_device("cpu").is_ok_and(|device| device.is_cpu()));
        let refused = |device: &str| open_device(device).err().map(|error| error.to_string()).unwrap_or_default();
        let missing = refused("xla:/nowhere/plugin.so");
        assert_eq!(
            missing,
            "/nowhere/plugin.so is not a file; name cuda, rocm, oneapi, cpu, or the library of a PJRT plugin"
        );
        let other = refused(&format!("xla:{}", env!("CARGO_MANIFEST_PATH")));
        assert!(other.starts_with("cannot load the plugin"), "{other}");
        for name in ["tpu:7", "gpu", "cuda:first"] {
            let expected = format!("there is no device `{name}`; devices are cpu, tpu, cuda, cuda:1 and so on, ");
            assert!(refused(name).starts_with(&expected), "{}", refused(name));
        }
    }

    #[test]
    fn the_first_card_has_its_shortest_name() {
        assert_eq!(["cuda:0", "cuda:1", "tpu:0", "cpu"].map(shortest), ["cuda", "cuda:1", "tpu", "cpu"]);
    }
}
