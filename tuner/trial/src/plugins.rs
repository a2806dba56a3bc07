//! Devices of PJRT plugins, and what else needs candle with Ferrotune's changes: seeds of the CPU's random numbers, and the search
//! for the operation that makes a NaN. Beside it, `plain` has the same functions for candle as it is.

use crate::any_error::BoxError;
use crate::error::TrialError;
use crate::origin::{calls_to, witness_errors};
use crate::place::{innermost_in_notebook, place_in_backtrace};
use crate::seed::given_seed;
use candle_core::random::{Draws, with_draws};
use candle_core::{Device, anomaly};
use ferrotune_devices::pjrt::{Client, Plugin};
use ferrotune_devices::{Cluster, Machine, find_plugin, fork, open_jointly};
use ferrotune_space::wire::{BUDGET_VARIABLE, PluginCopy};
use ferrotune_xla::{Options, identity};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

pub(crate) use ferrotune_xla::{shortage_of, write_first_program, writes_first_program, zeros_like};

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

/// Whether this process has opened this plugin.
pub fn is_open(plugin: &Path) -> bool {
    open_plugins().contains_key(&real(plugin))
}

/// How many cores a plugin has for this process, by the name of its device. Opens the plugin.
pub(crate) fn count_cores(device: &str) -> Result<usize, BoxError> {
    Ok(opened(&mut open_plugins(), library_of(device)?, None)?.client.devices()?.len())
}

fn open_plugins() -> MutexGuard<'static, BTreeMap<PathBuf, Opened>> {
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Lets the random numbers of every open plugin's devices begin with a seed.
pub(crate) fn seed_open(seed: u64) -> Result<(), BoxError> {
    let plugins = open_plugins();
    let mut devices = plugins.values().flat_map(|opened| opened.devices.values());
    Ok(devices.try_for_each(|device| device.set_seed(seed))?)
}

/// Lets the random numbers of the CPU begin with a seed.
pub(crate) fn seed_cpu(seed: u64) -> Result<(), BoxError> {
    Ok(Device::Cpu.set_seed(seed)?)
}

/// The seed of the CPU's random numbers, which is a random one at first.
pub(crate) fn seed_of_cpu() -> u64 {
    Device::Cpu.get_current_seed().expect("the CPU always has a seed")
}

/// Runs a function whose random numbers on the CPU are those of a seed, in this thread.
pub(crate) fn with_seed<R>(seed: u64, run: impl FnOnce() -> R) -> R {
    with_draws(Draws { seed, drawn: 0 }, run)
}

/// Begins or ends to look at the result of each operation.
pub(crate) fn detect_anomalies(on: bool) -> Result<(), BoxError> {
    anomaly::detect(on);
    Ok(())
}

/// The operation that has panicked with this message, because it has made a NaN or an infinity, and its line in the cell.
pub(crate) fn take_anomaly(message: &str) -> Option<String> {
    let anomaly = anomaly::take().filter(|anomaly| message.starts_with(&anomaly.to_string()))?;
    let place = place_in_backtrace(anomaly.backtrace()).map(|place| format!(" ({place})"));
    Some(format!("{anomaly}{}", place.unwrap_or_default()))
}

/// Remembers from now on where errors of candle are made.
pub(crate) fn remember_errors() {
    witness_errors();
}

/// The innermost line of the notebook that led to the error of candle which this message is about.
pub(crate) fn line_of_error(message: &str) -> Option<String> {
    innermost_in_notebook(&calls_to(message))
}

/// Kind, version and memory in use of an open plugin's device, as far as the plugin tells; none of any other device.
pub(crate) fn facts_of(device: &str) -> Option<(Option<String>, Option<String>, Option<u64>)> {
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

/// The library of the plugin that the name of a device stands for: what the search has hashed, if this is a trial on it.
fn library_of(device: &str) -> Result<PathBuf, BoxError> {
    match PluginCopy::given(device)? {
        Some(copy) => Ok(copy.path.into()),
        None => Ok(find_plugin(&Machine::this(), device).map(|plugin| real(&plugin))?),
    }
}

/// What tells the library of a device from another build of it.
fn identity_of(device: &str, library: &Path) -> Result<String, BoxError> {
    let copy = PluginCopy::given(device)?;
    Ok(copy.map_or_else(|| identity(library), |copy| format!("{device} {}", copy.hash)))
}

/// The library itself, to which several names may lead.
fn real(plugin: &Path) -> PathBuf {
    plugin.canonicalize().unwrap_or_else(|_| plugin.to_owned())
}

/// So many cores of the plugin with this name, with those of the other processes of a cluster, opened now or before.
pub(crate) fn open(name: &str, cores: usize, cluster: Option<&Cluster>) -> Result<Device, BoxError> {
    let plugin = library_of(name)?;
    let identity = identity_of(name, &plugin)?;
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
    given_seed().map_or(Ok(()), |seed| device.set_seed(seed))?;
    open.devices.insert(key, device.clone());
    Ok(device)
}

/// The plugin as it is open, or opened now: together with the other processes of a cluster, if there is one.
fn opened<'a>(
    plugins: &'a mut BTreeMap<PathBuf, Opened>,
    plugin: PathBuf,
    cluster: Option<&Cluster>,
) -> Result<&'a mut Opened, BoxError> {
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

fn open_alone(plugin: &Path) -> Result<Client, BoxError> {
    let loaded = Plugin::load(plugin)?;
    // Recorded also if no client opens, because the plugin may have started threads.
    fork::opened();
    Ok(loaded.client(&[])?)
}
