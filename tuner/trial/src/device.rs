//! Opens candle devices by name, and remembers the name of this process' device. Chooses no device.

use crate::error::TrialError;
use crate::plugins;
use candle_core::Device;
use ferrotune_devices::{Cluster, fork};
use ferrotune_space::record::DeviceUse;
use ferrotune_space::spec::takes_one_process;
use ferrotune_state::{BoxError, given_seed};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Mutex, PoisonError};

static CONNECTED: Mutex<Option<String>> = Mutex::new(None);

/// The name of the device that this process uses; in a worker, the device of the trial. It is `cpu` until [`connect`] is called.
pub fn connected() -> String {
    CONNECTED.lock().unwrap_or_else(PoisonError::into_inner).clone().unwrap_or_else(|| "cpu".to_owned())
}

/// Makes the device with this name the device of this process. Opens no device.
pub fn connect(device: &str) {
    *CONNECTED.lock().unwrap_or_else(PoisonError::into_inner) = Some(device.to_owned());
}

/// The CUDA devices that this process has opened, by their ordinals.
static OPEN_CUDA: Mutex<BTreeMap<usize, Device>> = Mutex::new(BTreeMap::new());

/// Sets the seed of the random numbers of every open CUDA device and plugin device.
pub(crate) fn seed_open(seed: u64) -> Result<(), BoxError> {
    let cuda = OPEN_CUDA.lock().unwrap_or_else(PoisonError::into_inner);
    cuda.values().try_for_each(|device| device.set_seed(seed))?;
    plugins::seed_open(seed)
}

/// Sets the seed of a device that has just been opened, if a seed was given to this process.
fn seeded(device: Device) -> Result<Device, BoxError> {
    given_seed().map_or(Ok(()), |seed| device.set_seed(seed))?;
    Ok(device)
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
    let (kind, version, before_bytes) =
        if is_exclusive { plugins::facts_of(device).unwrap_or_default() } else { return None };
    Some(DeviceUse { name: device.to_owned(), kind, version, before_bytes, after_bytes: None })
}

/// The known facts of the device with this name after a trial that began with `before`; `None` for the CPU.
pub(crate) fn leave_trial(device: &str, before: Option<DeviceUse>) -> Option<DeviceUse> {
    if device.split(':').next() == Some("cpu") {
        return None;
    }
    let (kind, version, after_bytes) = plugins::facts_of(device).unwrap_or_default();
    let before_bytes = before.and_then(|before| before.before_bytes);
    Some(DeviceUse { name: device.to_owned(), kind, version, before_bytes, after_bytes })
}

/// Opens a device by its name: `cpu`, `cuda:0`, `tpu`, or the first device of a PJRT plugin. `xla:cpu` is XLA's own plugin
/// for the CPU, and `xla:/opt/plugin.so` is any other plugin.
///
/// A device is opened once in a process: later calls return the same device. Its random numbers begin with the seed
/// that was given to [`seed`](crate::seed), if any.
///
/// # Errors
/// If this build or this machine has no such device, if it cannot be opened, or if the process is forked from one that had
/// opened an accelerator.
pub fn open_device(device: &str) -> Result<Device, BoxError> {
    let owned = || device.to_owned();
    match device.split_once(':').unwrap_or((device, "0")) {
        ("cpu", _) => Ok(Device::Cpu),
        ("tpu", "0") | ("xla", _) => {
            fork::check()?;
            plugins::open(device, 1, None)
        }
        ("cuda", ordinal) => match ordinal.parse() {
            Ok(_) if !candle_core::utils::cuda_is_available() => Err(TrialError::NoCuda { device: owned() }.into()),
            Ok(ordinal) => {
                fork::check()?;
                // Recorded also on failure, because the driver was loaded.
                fork::opened();
                open_cuda(ordinal)
            }
            Err(_) => Err(TrialError::Device { device: owned() }.into()),
        },
        _ => Err(TrialError::Device { device: owned() }.into()),
    }
}

fn open_cuda(ordinal: usize) -> Result<Device, BoxError> {
    match OPEN_CUDA.lock().unwrap_or_else(PoisonError::into_inner).entry(ordinal) {
        Entry::Occupied(open) => Ok(open.get().clone()),
        Entry::Vacant(place) => Ok(place.insert(seeded(Device::new_cuda(ordinal)?)?).clone()),
    }
}

/// The first cores of a plugin (`tpu` or `xla:cpu`) as one device, a mesh with the axis `data`. Each number of
/// cores makes a device of its own, separate from that of [`open_device`]. All of them share the plugin's one client.
///
/// # Errors
/// The errors of [`open_device`], and an error if the plugin has fewer cores.
pub fn open_cores(device: &str, cores: usize) -> Result<Device, BoxError> {
    fork::check()?;
    plugins::open(device, cores, None)
}

/// The first cores of a plugin in each process of a cluster as one device, a mesh with the axis `data`. All processes call this at
/// the same time, before they open the plugin in another way.
///
/// # Errors
/// The errors of [`open_cores`], and an error if another process is missing or if this process has opened the plugin without the others.
pub fn open_cores_across(device: &str, cores: usize, cluster: &Cluster) -> Result<Device, BoxError> {
    fork::check()?;
    plugins::open(device, cores, Some(cluster))
}

/// The number of cores that a plugin has for this process, by the name of its device. Opens the plugin.
///
/// # Errors
/// The errors of [`open_device`].
pub fn count_cores(device: &str) -> Result<usize, BoxError> {
    fork::check()?;
    plugins::count_cores(device)
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
