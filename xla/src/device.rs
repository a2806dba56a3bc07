//! Opens the devices of plugins as devices of candle.

use crate::backend::{Backend, backend_of, numbers_of};
use crate::budget::Budget;
use crate::executables::Executables;
use crate::mesh::Cores;
use crate::random::Generator;
use candle_core::{Device, Error, Result, bail, external};
pub use ferrotune_devices::identity;
use ferrotune_devices::pjrt::{Override, Plugin};
use ferrotune_devices::runtime::{self, Client, Profiler};
use ferrotune_devices::{Cluster, open_jointly};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The folder, beside kept executables, for what the compiler for cards has measured.
const TUNING: &str = "autotuning";

/// The options with which a device is opened.
#[derive(Clone, Copy, Debug)]
pub struct Options<'a> {
    /// The number of the plugin's devices that compute each program. They have the same values, except values that were uploaded for each.
    pub replicas: usize,
    /// The axes of a mesh of devices, such as `&[("data", 2), ("model", 4)]`: eight devices have each array once, as
    /// [`with_sharding_constraint`](crate::with_sharding_constraint) spreads it. Empty for no mesh; a device has either replicas or a
    /// mesh.
    pub mesh: &'a [(&'a str, usize)],
    /// Whether the mesh may have more cores than the plugin has here. Then nothing runs, and
    /// [`Step::stablehlo`](crate::Step::stablehlo) gives the program for a machine that has the cores.
    pub ahead_of_time: bool,
    /// The number of the first of the plugin's devices that is used: 1 for `cuda:1`.
    pub first: usize,
    /// The folder in which compiled programs are kept for later processes; none to keep no programs.
    pub cache: Option<&'a Path>,
    /// The memory budget of a program, in bytes, if the plugin does not report the memory of its device. A program that needs more is
    /// refused before it runs.
    pub memory_bytes: Option<u64>,
    /// The device's name in messages; none for the plugin's own name.
    pub name: Option<&'a str>,
}

impl Default for Options<'_> {
    /// The options for one device without a mesh, a folder or a memory budget, on which programs run.
    fn default() -> Self {
        Options { replicas: 1, mesh: &[], ahead_of_time: false, first: 0, cache: None, memory_bytes: None, name: None }
    }
}

/// Opens the first device of a plugin, such as XLA:CPU or libtpu.
///
/// ```no_run
/// let device = ferrotune_xla::open("libpjrt_cpu.so".as_ref())?;
/// let x = candle_core::Tensor::arange(0f32, 4f32, &device)?;
/// assert_eq!(x.sqr()?.sum_all()?.to_scalar::<f32>()?, 14.0);
/// # Ok::<(), candle_core::Error>(())
/// ```
///
/// # Errors
/// If the library is no plugin, or the plugin's device does not open.
pub fn open(plugin: &Path) -> Result<Device> {
    open_with(plugin, Options::default())
}

/// Opens the first devices of a plugin as one device.
///
/// # Errors
/// If the library is no plugin, its devices do not open, or it has fewer devices than replicas or the mesh need.
pub fn open_with(plugin: &Path, options: Options<'_>) -> Result<Device> {
    let client = Plugin::load(plugin).and_then(|plugin| plugin.client(&[])).map_err(Error::wrap)?;
    device_on(client.into(), &identity(plugin), options)
}

/// Opens the first devices of a plugin in each of several processes as one device. All workers of the cluster call this at the same
/// time, with the same options, and then compute the same in the same order, as in JAX. `replicas` or the mesh are those of all
/// processes, with the devices of the first worker before those of the second. If the workers compute different programs, this is an
/// error before the programs run. A tensor that is made from values must be made from the same values in all workers.
///
/// ```no_run
/// use ferrotune_devices::Cluster;
/// use ferrotune_xla::{Options, open_across};
/// let cluster = Cluster::new(["10.0.0.1:4000", "10.0.0.2:4000"], 0)?;
/// let device = open_across("xla_cuda_plugin.so".as_ref(), &cluster, Options { mesh: &[("data", 16)], ..Options::default() })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// The errors of [`open_jointly`], and if the processes have too few devices.
pub fn open_across(plugin: &Path, cluster: &Cluster, options: Options<'_>) -> Result<Device> {
    let client = open_jointly(plugin, cluster).map_err(Error::wrap)?;
    device_across(client.into(), &identity(plugin), options)
}

/// The first devices of an open client as one device. `plugin` is the [`identity`] of its library.
///
/// # Errors
/// The errors of the plugin, and if there are fewer devices than replicas or the mesh need, or the mesh is not valid.
pub fn device_on(client: Client, plugin: &str, options: Options<'_>) -> Result<Device> {
    let platform = client.platform().map_err(Error::wrap)?;
    let name = options.name.unwrap_or(&platform);
    let all = client.devices().map_err(Error::wrap)?;
    let cores = Cores::new(options.replicas, options.mesh)?;
    let (count, first) = (cores.count(), options.first);
    if count == 0 || all.len() < first + count && !options.ahead_of_time {
        bail!("{name} needs {} devices of its plugin, which has {}", first + count, all.len());
    }
    let devices: Vec<_> = all.into_iter().skip(first).take(count).collect();
    let numbers = numbers_of(&devices)?;
    assembled(client, plugin, options, cores, Chosen { here: devices, numbers, is_joint: false })
}

/// The first devices of each process of a client that several processes have opened together, as one device; see [`open_across`].
///
/// # Errors
/// The errors of the plugin, and if the processes have too few devices, or different numbers of them.
pub fn device_across(client: Client, plugin: &str, options: Options<'_>) -> Result<Device> {
    let name = client.platform().map_err(Error::wrap)?;
    let mut by_process: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
    for device in client.all_devices().map_err(Error::wrap)? {
        let description = device.description().map_err(Error::wrap)?;
        by_process.entry(description.process).or_default().push(description.id);
    }
    let cores = Cores::new(options.replicas, options.mesh)?;
    let (count, first, processes) = (cores.count(), options.first, by_process.len());
    let each = count / processes.max(1);
    if count == 0 || each * processes != count || by_process.values().any(|numbers| numbers.len() < first + each) {
        let have: Vec<usize> = by_process.values().map(Vec::len).collect();
        bail!("{count} cores cannot be equally many in each of {processes} processes, whose {name} has {have:?}");
    }
    let numbers: Vec<i32> =
        by_process.into_values().flat_map(|numbers| numbers.into_iter().skip(first).take(each)).collect();
    let here = client.devices().map_err(Error::wrap)?;
    let here = numbers_of(&here)?.into_iter().zip(here).filter(|(number, _)| numbers.contains(number));
    let here = here.map(|(_, device)| device).collect();
    // The processes share no cache folder: a process that had kept a program would load it while the others compile it alone.
    let options = Options { cache: None, ..options };
    assembled(client, plugin, options, cores, Chosen { here, numbers, is_joint: true })
}

/// The devices that compute together, which were chosen among those of a client.
struct Chosen {
    here: Vec<runtime::Device>,
    /// The numbers of the devices of all processes.
    numbers: Vec<i32>,
    is_joint: bool,
}

fn assembled(client: Client, plugin: &str, options: Options<'_>, cores: Cores, chosen: Chosen) -> Result<Device> {
    let Chosen { here, numbers, is_joint } = chosen;
    let platform = client.platform().map_err(Error::wrap)?;
    let version = client.version().map_err(Error::wrap)?;
    let flags = std::env::var_os("XLA_FLAGS").unwrap_or_default();
    let plugin = format!("{plugin} {platform} {version} {flags:?}");
    // Some plugins do not report memory, so the budget of the options is used for them.
    let reported = here.first().and_then(|device| device.memory().ok()?.limit_bytes);
    let name = options.name.unwrap_or(&platform);
    let budget = Budget::new(name, reported.or(options.memory_bytes));
    let generator = Generator::new(&numbers);
    let elsewhere = numbers.len() - here.len();
    let mut compiled = cores.options().on(numbers);
    compiled.overrides.extend(setting(&platform, options.cache));
    let executables = Executables::new(options.cache, &plugin, compiled, budget).of_platform(&platform);
    let executables = if is_joint { executables.jointly() } else { executables };
    Ok(device_of(Backend::new(name.to_owned(), client, (here, elsewhere), cores, executables, generator)))
}

/// The compiler's setting for the devices of a platform; `cache` is the folder of kept executables.
fn setting(platform: &str, cache: Option<&Path>) -> Option<(String, Override)> {
    match platform {
        // Without this setting XLA:CPU loses a NaN in `maximum` and `minimum`, which StableHLO keeps.
        "cpu" => Some(("xla_cpu_enable_fast_min_max".to_owned(), Override::Flag(false))),
        // What the compiler has measured of one kernel is kept for later processes: a program that differs in the rest compiles faster.
        "cuda" => {
            let folder = cache?.join(TUNING);
            // Without the folder, as without that of the executables, the next process compiles again.
            std::fs::create_dir_all(&folder).ok()?;
            Some(("xla_gpu_per_fusion_autotune_cache_dir".to_owned(), Override::Text(folder.to_str()?.to_owned())))
        }
        _ => None,
    }
}

/// All cores of the plugin that a device belongs to, each as a device of its own: a process can open a TPU only once. The first
/// one is `device` itself. If it consists of several cores, so do the others, and cores that are left over are not used.
/// A device without a plugin (`cpu`) is returned alone.
///
/// Each call makes new devices of the other cores, so call it once.
///
/// ```no_run
/// let cores = ferrotune_xla::cores(&ferrotune_xla::open("libtpu.so".as_ref())?)?;
/// let weights = candle_core::Tensor::zeros((4096, 4096), candle_core::DType::F32, &cores[3])?;
/// # Ok::<(), candle_core::Error>(())
/// ```
///
/// # Errors
/// The errors of the plugin.
pub fn cores(device: &Device) -> Result<Vec<Device>> {
    let others = backend_of(device).map_or(Ok(Vec::new()), Backend::others)?;
    Ok(std::iter::once(device.clone()).chain(others.into_iter().map(device_of)).collect())
}

/// Begins to record the activity of all devices of a device's plugin.
///
/// # Errors
/// If the device belongs to no plugin (`cpu`), and the errors of [`Client::profile`].
pub fn profile(device: &Device) -> Result<Profiler> {
    let Some(backend) = backend_of(device) else { bail!("only devices of PJRT plugins have a profiler of their own") };
    backend.client().profile().map_err(Error::wrap)
}

fn device_of(backend: Backend) -> Device {
    // In some places candle compares devices by their number alone.
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let backend: Arc<dyn external::Backend> = Arc::new(backend);
    Device::external(backend, NEXT.fetch_add(1, Ordering::Relaxed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_card_has_measured_is_kept_beside_the_executables() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let tuning = folder.path().join(TUNING);
        assert!(
            matches!(setting("cpu", Some(folder.path())), Some((name, Override::Flag(false))) if name.ends_with("min_max"))
        );
        assert!(!tuning.exists());
        let expected = Override::Text(tuning.display().to_string());
        assert!(matches!(setting("cuda", Some(folder.path())), Some((_, value)) if value == expected));
        assert!(tuning.is_dir());
        assert!(setting("cuda", None).is_none() && setting("tpu", Some(folder.path())).is_none());
        Ok(())
    }
}
