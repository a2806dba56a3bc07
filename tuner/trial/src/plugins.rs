//! Devices of PJRT plugins, and the other features that need candle with Ferrotune's changes: seeds of the CPU's random numbers, and
//! the search for the operation that makes a NaN. `plain` has the same functions for an unchanged candle.

use crate::error::TrialError;
use crate::origin::calls_to;
pub(crate) use crate::origin::witness_errors;
use crate::place::{innermost_in_notebook, place_in_backtrace};
use candle_core::random::{Draws, with_draws};
pub(crate) use candle_core::utils::least_pieces;
use candle_core::{Device, anomaly};
use ferrotune_devices::pjrt::Plugin;
use ferrotune_devices::process::MemoryClaim;
use ferrotune_devices::runtime::{Client, Route};
use ferrotune_devices::{Cluster, DeviceName, Machine, fork, open_jointly};
use ferrotune_space::record::DeviceUse;
use ferrotune_space::wire::{BUDGET_VARIABLE, DEVICE_MEMORY_VARIABLE, PluginCopy, TRIAL_VARIABLE, trial_named};
use ferrotune_state::{BoxError, given_seed};
use ferrotune_xla::{Options, identity};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

pub(crate) use ferrotune_xla::{shortage_of, write_first_program, writes_first_program, zeros_like};

/// The program of the device process, and the name of this process among its clients; none where this process opens plugins itself.
static PROCESS: OnceLock<(PathBuf, String)> = OnceLock::new();

/// From now on plugins are opened by the device process, a subcommand of `program`, and not by this process. `client` is the name of this
/// process there. Only the first call has an effect.
pub fn use_device_process(program: &Path, client: String) {
    PROCESS.get_or_init(|| (program.to_owned(), client));
}

/// The client of a device's plugin. Opens the plugin if this process has not opened it yet.
///
/// # Errors
/// If the plugin is not on this machine, or does not open.
pub fn client_of(device: &DeviceName) -> Result<Client, BoxError> {
    Ok(opened(&mut open_plugins(), device, None)?.client.clone())
}

/// The plugins that this process has opened, by the paths of their libraries.
static OPEN: Mutex<BTreeMap<PathBuf, OpenPlugin>> = Mutex::new(BTreeMap::new());

/// An open plugin. A plugin opens its devices once in a process; candle may have several devices on them.
struct OpenPlugin {
    client: Client,
    /// Devices by the number of their first core, the number of this process' cores in each, and their reach.
    devices: BTreeMap<(usize, usize, Reach), Device>,
}

/// The processes whose cores a device is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Reach {
    ThisProcess,
    AllProcesses,
}

/// Whether this process has opened this plugin.
pub fn is_open(plugin: &Path) -> bool {
    open_plugins().contains_key(&real(plugin))
}

/// The number of cores that a plugin has for this process, from the named device on. Opens the plugin.
pub(crate) fn count_cores(device: &DeviceName) -> Result<usize, BoxError> {
    let cores = opened(&mut open_plugins(), device, None)?.client.devices()?.len();
    Ok(cores.saturating_sub(device.number()))
}

fn open_plugins() -> MutexGuard<'static, BTreeMap<PathBuf, OpenPlugin>> {
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sets the seed of the random numbers of every open plugin's devices.
pub(crate) fn seed_open(seed: u64) -> Result<(), BoxError> {
    let plugins = open_plugins();
    let mut devices = plugins.values().flat_map(|opened| opened.devices.values());
    Ok(devices.try_for_each(|device| device.set_seed(seed))?)
}

/// Sets the seed of the CPU's random numbers.
pub(crate) fn seed_cpu(seed: u64) -> Result<(), BoxError> {
    Ok(Device::Cpu.set_seed(seed)?)
}

/// Runs a function in this thread with the CPU's random numbers of a seed.
pub(crate) fn with_seed<R>(seed: u64, run: impl FnOnce() -> R) -> R {
    with_draws(Draws { seed, drawn: 0 }, run)
}

/// Turns NaN detection on or off.
pub(crate) fn detect_anomalies(on: bool) -> Result<(), BoxError> {
    anomaly::detect(on);
    Ok(())
}

/// The operation that made a NaN or an infinity and panicked with this message, with its line in the cell.
pub(crate) fn take_anomaly(message: &str) -> Option<String> {
    let anomaly = anomaly::take().filter(|anomaly| message.starts_with(&anomaly.to_string()))?;
    let place = place_in_backtrace(anomaly.backtrace()).map(|place| format!(" ({place})"));
    Some(format!("{anomaly}{}", place.unwrap_or_default()))
}

/// The innermost line of the notebook that led to the error of candle with this message.
pub(crate) fn line_of_error(message: &str) -> Option<String> {
    innermost_in_notebook(|| calls_to(message))
}

/// The kind, version, memory in use and greatest use of an open plugin's device, as far as the plugin reports them; `None` for any other
/// device.
pub(crate) fn facts_of(device: &str) -> Option<DeviceUse> {
    let device = DeviceName::parse(device)?;
    let plugin = library_of(&device).ok()?;
    let open = open_plugins();
    let client = &open.get(&plugin)?.client;
    // A plugin may report only some of these facts, and a trial needs none of them.
    let version = client.version().ok().and_then(|version| version.lines().next().map(str::to_owned));
    let own = client.devices().ok().and_then(|devices| devices.into_iter().nth(device.number()));
    let kind = own.as_ref().and_then(|device| Some(device.description().ok()?.kind));
    let used_bytes = own.and_then(|device| Some(device.memory().ok()?.used_bytes));
    let peak_bytes = client.peak_bytes().ok().flatten();
    Some(DeviceUse { kind, version, after_bytes: used_bytes, peak_bytes, ..DeviceUse::default() })
}

/// The path of the plugin's library for the name of a device. In a trial on the device it is the library whose hash the search has.
fn library_of(device: &DeviceName) -> Result<PathBuf, BoxError> {
    match PluginCopy::given(&device.to_string())? {
        Some(copy) => Ok(copy.path.into()),
        None => Ok(device.find_plugin(&Machine::this()).map(|plugin| real(&plugin))?),
    }
}

/// The identity of a device's library, which differs between two builds of it.
fn identity_of(device: &DeviceName, library: &Path) -> Result<String, BoxError> {
    let copy = PluginCopy::given(&device.to_string())?;
    Ok(copy.map_or_else(|| identity(library), |copy| format!("{device} {}", copy.hash)))
}

/// The canonical path of a library, to which several names may lead.
fn real(plugin: &Path) -> PathBuf {
    plugin.canonicalize().unwrap_or_else(|_| plugin.to_owned())
}

/// A device of `cores` cores of a plugin, from the named one on, with those of the other processes of a cluster. Opens the device if needed.
pub(crate) fn open(device: &DeviceName, cores: usize, cluster: Option<&Cluster>) -> Result<Device, BoxError> {
    let name = device.to_string();
    let identity = identity_of(device, &library_of(device)?)?;
    let mut plugins = open_plugins();
    let open = opened(&mut plugins, device, cluster)?;
    if cluster.is_some_and(|cluster| open.client.store().is_none_or(|store| store.cluster() != cluster)) {
        return Err(TrialError::OpenAlone { device: name, cores }.into());
    }
    let key = (device.number(), cores, cluster.map_or(Reach::ThisProcess, |_| Reach::AllProcesses));
    if let Some(device) = open.devices.get(&key) {
        return Ok(device.clone());
    }
    // A search compiles the same program in many workers. The first worker compiles it, and the others load it from this cache.
    let cache = dirs::cache_dir().map(|folder| folder.join("ferrotune/xla"));
    // A trial on the CPU shares its memory budget with XLA's programs, and each core runs one program. A cell has no such limit.
    let budget: Option<u64> = std::env::var(BUDGET_VARIABLE).ok().and_then(|bytes| bytes.parse().ok());
    let budget = budget.filter(|_| name == "xla:cpu").map(|bytes| bytes / cores.max(1) as u64);
    let all = cores * cluster.map_or(1, |cluster| cluster.workers().len());
    let mesh: &[(&str, usize)] = if all == 1 { &[] } else { &[("data", all)] };
    let (cache, name, first) = (cache.as_deref(), Some(&*name), device.number());
    let options = Options { cache, mesh, memory_bytes: budget, name, first, ..Options::default() };
    let device = match cluster {
        Some(_) => ferrotune_xla::device_across(open.client.clone(), &identity, options)?,
        None => ferrotune_xla::device_on(open.client.clone(), &identity, options)?,
    };
    given_seed().map_or(Ok(()), |seed| device.set_seed(seed))?;
    open.devices.insert(key, device.clone());
    Ok(device)
}

/// The open plugin. Opens it if needed, together with the other processes of a cluster, if there is a cluster.
fn opened<'a>(
    plugins: &'a mut BTreeMap<PathBuf, OpenPlugin>,
    device: &DeviceName,
    cluster: Option<&Cluster>,
) -> Result<&'a mut OpenPlugin, BoxError> {
    match plugins.entry(library_of(device)?) {
        Entry::Occupied(open) => Ok(open.into_mut()),
        Entry::Vacant(place) => {
            let client = match cluster {
                Some(cluster) => open_jointly(place.key(), cluster)?.into(),
                None => open_alone(device, place.key())?,
            };
            Ok(place.insert(OpenPlugin { client, devices: BTreeMap::new() }))
        }
    }
}

/// The client of the device process that the trials of a search share. None where they share none, such as on XLA's plugin of the CPU,
/// whose memory is then the trial's own.
///
/// # Errors
/// If the device process, which the search has started, does not serve this trial.
fn joined(device: &DeviceName) -> Result<Option<Client>, BoxError> {
    let trial = std::env::var(TRIAL_VARIABLE).ok().and_then(|name| trial_named(&name));
    let claim = std::env::var(DEVICE_MEMORY_VARIABLE).ok();
    let (Some(client), Some(claim)) = (trial, claim.filter(|_| device.is_shared_by_trials())) else { return Ok(None) };
    let memory = match claim.split_once('/') {
        Some((_, parts)) => MemoryClaim::Part(parts.parse()?),
        None => MemoryClaim::Bytes(claim.parse()?),
    };
    // The process has the plugin by its own path, and not by the path of the study's copy.
    let plugin = device.find_plugin(&Machine::this())?;
    let route = Route { device: device.first().to_string(), plugin, program: None, client, memory };
    Ok(Some(Client::far(route)?))
}

fn open_alone(device: &DeviceName, plugin: &Path) -> Result<Client, BoxError> {
    if let Some((program, client)) = PROCESS.get() {
        let (device, plugin) = (device.first().to_string(), plugin.to_owned());
        let (program, client) = (Some(program.clone()), client.clone());
        return Ok(Client::far(Route { device, plugin, program, client, memory: MemoryClaim::Free })?);
    }
    if let Some(client) = joined(device)? {
        return Ok(client);
    }
    let loaded = Plugin::load(plugin)?;
    // Recorded also if no client opens, because the plugin may have started threads.
    fork::opened();
    Ok(loaded.client(&[])?.into())
}
