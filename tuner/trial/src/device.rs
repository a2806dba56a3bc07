//! Opens candle devices by name, and keeps the name of the one that this process uses. Chooses none.

use crate::error::{Result, TrialError};
use crate::seed::given_seed;
use candle_core::Device;
use ferrotune_devices::pjrt::{Client, Plugin};
use ferrotune_devices::{Cluster, Machine, NoPlugin, find_plugin, fork, open_jointly};
use ferrotune_tuner::record::DeviceUse;
use ferrotune_tuner::spec::takes_one_process;
use ferrotune_tuner::wire::BUDGET_VARIABLE;
use ferrotune_xla::{Options, identity};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
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

/// The CUDA devices that this process has opened, by their ordinals.
static OPEN_CUDA: Mutex<BTreeMap<usize, Device>> = Mutex::new(BTreeMap::new());

/// The plugins that this process has opened, by the paths of their libraries.
static OPEN: Mutex<BTreeMap<PathBuf, Opened>> = Mutex::new(BTreeMap::new());

/// A plugin opens its devices once in a process; candle may have several devices on them.
struct Opened {
    client: Client,
    /// By the number of this process' cores that compute as one, and whether those of other processes do with them.
    devices: BTreeMap<(usize, Reach), Device>,
}

/// Which cores a device is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Reach {
    ThisProcess,
    AllProcesses,
}

/// Lets the random numbers of every open device begin with a seed.
pub(crate) fn seed_open(seed: u64) -> Result<()> {
    let cuda = OPEN_CUDA.lock().unwrap_or_else(PoisonError::into_inner);
    let plugins = open_plugins();
    let mut devices = cuda.values().chain(plugins.values().flat_map(|opened| opened.devices.values()));
    Ok(devices.try_for_each(|device| device.set_seed(seed))?)
}

/// Lets the random numbers of a device that has just been opened begin with the seed that was given.
fn seeded(device: Device) -> Result<Device> {
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
    let (kind, version, before_bytes) = if is_exclusive { facts_of(device).unwrap_or_default() } else { return None };
    Some(DeviceUse { name: device.to_owned(), kind, version, before_bytes, after_bytes: None })
}

/// What is known of the device with this name after a trial that began with `before`; none of the CPU.
pub(crate) fn leave_trial(device: &str, before: Option<DeviceUse>) -> Option<DeviceUse> {
    if device.split(':').next() == Some("cpu") {
        return None;
    }
    let (kind, version, after_bytes) = facts_of(device).unwrap_or_default();
    let before_bytes = before.and_then(|before| before.before_bytes);
    Some(DeviceUse { name: device.to_owned(), kind, version, before_bytes, after_bytes })
}

/// Kind, version and memory in use of an open plugin's device, as far as the plugin tells; none of any other device.
fn facts_of(device: &str) -> Option<(Option<String>, Option<String>, Option<u64>)> {
    let plugin = library_of(device).ok()?;
    let open = open_plugins();
    let client = &open.get(&plugin)?.client;
    // Not all plugins tell all of it, and a trial needs none of it.
    let version = client.version().ok().and_then(|version| version.lines().next().map(str::to_owned));
    let first = client.devices().ok().and_then(|devices| devices.into_iter().next());
    let kind = first.as_ref().and_then(|device| Some(device.description().ok()?.kind));
    let used_bytes = first.and_then(|device| Some(device.memory().ok()?.used_bytes));
    Some((kind, version, used_bytes))
}

/// Whether this process has opened this plugin.
pub fn is_open(plugin: &Path) -> bool {
    open_plugins().contains_key(&real(plugin))
}

fn open_plugins() -> MutexGuard<'static, BTreeMap<PathBuf, Opened>> {
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
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
pub fn open_device(device: &str) -> Result<Device> {
    let owned = || device.to_owned();
    match device.split_once(':').unwrap_or((device, "0")) {
        ("cpu", _) => Ok(Device::Cpu),
        ("tpu", "0") | ("xla", _) => {
            fork::check()?;
            open_plugin(device, 1, None)
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

fn open_cuda(ordinal: usize) -> Result<Device> {
    match OPEN_CUDA.lock().unwrap_or_else(PoisonError::into_inner).entry(ordinal) {
        Entry::Occupied(open) => Ok(open.get().clone()),
        Entry::Vacant(place) => Ok(place.insert(seeded(Device::new_cuda(ordinal)?)?).clone()),
    }
}

/// The library of the plugin that the name of a device stands for.
fn library_of(device: &str) -> std::result::Result<PathBuf, NoPlugin> {
    find_plugin(&Machine::this(), device).map(|plugin| real(&plugin))
}

/// The library itself, to which several names may lead.
fn real(plugin: &Path) -> PathBuf {
    plugin.canonicalize().unwrap_or_else(|_| plugin.to_owned())
}

/// The first cores of a plugin as one device, a mesh with the axis `data`: `tpu` or `xla:cpu` with its cores. Each number of
/// cores is one device, beside [`open_device`]'s, and all of them share the plugin's one client.
///
/// # Errors
/// Those of [`open_device`], and if the plugin has fewer cores.
pub fn open_cores(device: &str, cores: usize) -> Result<Device> {
    fork::check()?;
    open_plugin(device, cores, None)
}

/// The first cores of a plugin in each process of a cluster as one device, a mesh with the axis `data`. All processes call this at
/// the same time, before they open the plugin in another way.
///
/// # Errors
/// Those of [`open_cores`], if another process is missing, or if this one has opened the plugin without the others.
pub fn open_cores_across(device: &str, cores: usize, cluster: &Cluster) -> Result<Device> {
    fork::check()?;
    open_plugin(device, cores, Some(cluster))
}

/// How many cores a plugin has for this process, by the name of its device. Opens the plugin.
///
/// # Errors
/// Those of [`open_device`].
pub fn count_cores(device: &str) -> Result<usize> {
    fork::check()?;
    Ok(opened(&mut open_plugins(), library_of(device)?, None)?.client.devices()?.len())
}

/// So many cores of the plugin with this name, with those of the other processes of a cluster, opened now or before.
fn open_plugin(name: &str, cores: usize, cluster: Option<&Cluster>) -> Result<Device> {
    let plugin = library_of(name)?;
    let identity = identity(&plugin);
    let mut plugins = open_plugins();
    let open = opened(&mut plugins, plugin, cluster)?;
    if cluster.is_some_and(|cluster| open.client.store().is_none_or(|store| store.cluster() != cluster)) {
        return Err(TrialError::OpenAlone { device: name.to_owned(), cores }.into());
    }
    let key = (cores, cluster.map_or(Reach::ThisProcess, |_| Reach::AllProcesses));
    if let Some(device) = open.devices.get(&key) {
        return Ok(device.clone());
    }
    // A search compiles the same program in many workers; each but the first one loads it.
    let cache = dirs::cache_dir().map(|folder| folder.join("ferrotune/xla"));
    // A trial on the CPU shares its budget with the programs of XLA, of which each core runs one. In a cell there is no such limit.
    let budget: Option<u64> = std::env::var(BUDGET_VARIABLE).ok().and_then(|bytes| bytes.parse().ok());
    let budget = budget.filter(|_| name == "xla:cpu").map(|bytes| bytes / cores.max(1) as u64);
    let all = cores * cluster.map_or(1, |cluster| cluster.workers().len());
    let mesh: &[(&str, usize)] = if all == 1 { &[] } else { &[("data", all)] };
    let (cache, name) = (cache.as_deref(), Some(name));
    let options = Options { cache, mesh, memory_bytes: budget, name, ..Options::default() };
    let device = match cluster {
        Some(_) => ferrotune_xla::device_across(open.client.clone(), &identity, options)?,
        None => ferrotune_xla::device_on(open.client.clone(), &identity, options)?,
    };
    let device = seeded(device)?;
    open.devices.insert(key, device.clone());
    Ok(device)
}

/// The plugin as it is open, or opened now: together with the other processes of a cluster, if there is one.
fn opened<'a>(
    plugins: &'a mut BTreeMap<PathBuf, Opened>,
    plugin: PathBuf,
    cluster: Option<&Cluster>,
) -> Result<&'a mut Opened> {
    match plugins.entry(plugin) {
        Entry::Occupied(open) => Ok(open.into_mut()),
        Entry::Vacant(place) => {
            let client = match cluster {
                Some(cluster) => open_jointly(place.key(), cluster)?,
                None => open_alone(place.key())?,
            };
            Ok(place.insert(Opened { client, devices: BTreeMap::new() }))
        }
    }
}

fn open_alone(plugin: &Path) -> Result<Client> {
    let loaded = Plugin::load(plugin)?;
    // Recorded also if no client opens, because the plugin may have started threads.
    fork::opened();
    Ok(loaded.client(&[])?)
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
