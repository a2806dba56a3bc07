//! Opens candle devices by name, and keeps the name of the one that this process uses. Chooses none.

use crate::any_error::BoxError;
use crate::error::TrialError;
use crate::plugins;
use crate::seed::given_seed;
use candle_core::Device;
use ferrotune_devices::{Cluster, fork};
use ferrotune_space::record::DeviceUse;
use ferrotune_space::spec::takes_one_process;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Mutex, PoisonError};

static CONNECTED: Mutex<Option<String>> = Mutex::new(None);

/// The name of the device that this process uses, which in a worker is that of the trial: `cpu` until [`connect`] was called.
pub fn connected() -> String {
    CONNECTED.lock().unwrap_or_else(PoisonError::into_inner).clone().unwrap_or_else(|| "cpu".to_owned())
}

/// Makes the device with this name the one that this process uses. Opens nothing.
pub fn connect(device: &str) {
    *CONNECTED.lock().unwrap_or_else(PoisonError::into_inner) = Some(device.to_owned());
}

/// The CUDA devices that this process has opened, by their ordinals.
static OPEN_CUDA: Mutex<BTreeMap<usize, Device>> = Mutex::new(BTreeMap::new());

/// Lets the random numbers of every open device begin with a seed.
pub(crate) fn seed_open(seed: u64) -> Result<(), BoxError> {
    let cuda = OPEN_CUDA.lock().unwrap_or_else(PoisonError::into_inner);
    cuda.values().try_for_each(|device| device.set_seed(seed))?;
    plugins::seed_open(seed)
}

/// Lets the random numbers of a device that has just been opened begin with the seed that was given.
fn seeded(device: Device) -> Result<Device, BoxError> {
    given_seed().map_or(Ok(()), |seed| device.set_seed(seed))?;
    Ok(device)
}

/// Makes the device with this name the one of a trial that begins in this process. A device that one process at a time can use
/// is opened now, so that what its plugin takes is not taken for the trial's, and what is known of it is returned.
pub(crate) fn enter_trial(device: &str) -> Option<DeviceUse> {
    connect(device);
    let is_exclusive = takes_one_process(device);
    if is_exclusive && let Err(error) = open_device(device) {
        // The objective may do without it, and gets this error where it does not.
        eprintln!("ferrotune: {device} does not open: {error}");
    }
    let (kind, version, before_bytes) =
        if is_exclusive { plugins::facts_of(device).unwrap_or_default() } else { return None };
    Some(DeviceUse { name: device.to_owned(), kind, version, before_bytes, after_bytes: None })
}

/// What is known of the device with this name after a trial that began with `before`; none of the CPU.
pub(crate) fn leave_trial(device: &str, before: Option<DeviceUse>) -> Option<DeviceUse> {
    if device.split(':').next() == Some("cpu") {
        return None;
    }
    let (kind, version, after_bytes) = plugins::facts_of(device).unwrap_or_default();
    let before_bytes = before.and_then(|before| before.before_bytes);
    Some(DeviceUse { name: device.to_owned(), kind, version, before_bytes, after_bytes })
}

/// Opens a device by its name: `cpu`, `cuda:0`, `tpu`, or the first device of a PJRT plugin, which is `xla:cpu` for XLA's own
/// of the CPU and `xla:/opt/plugin.so` for any other.
///
/// A device is opened once in a process: whoever opens it again gets the same device. Its random numbers begin with the seed
/// that was given to [`seed`](crate::seed), if one was.
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

/// The first cores of a plugin as one device, a mesh with the axis `data`: `tpu` or `xla:cpu` with its cores. Each number of
/// cores is one device, beside [`open_device`]'s, and all of them share the plugin's one client.
///
/// # Errors
/// Those of [`open_device`], and if the plugin has fewer cores.
pub fn open_cores(device: &str, cores: usize) -> Result<Device, BoxError> {
    fork::check()?;
    plugins::open(device, cores, None)
}

/// The first cores of a plugin in each process of a cluster as one device, a mesh with the axis `data`. All processes call this at
/// the same time, before they open the plugin in another way.
///
/// # Errors
/// Those of [`open_cores`], if another process is missing, or if this one has opened the plugin without the others.
pub fn open_cores_across(device: &str, cores: usize, cluster: &Cluster) -> Result<Device, BoxError> {
    fork::check()?;
    plugins::open(device, cores, Some(cluster))
}

/// How many cores a plugin has for this process, by the name of its device. Opens the plugin.
///
/// # Errors
/// Those of [`open_device`].
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
