//! Devices of plugins as candle's.

use crate::backend::{Backend, numbers_of};
use crate::budget::Budget;
use crate::executables::Executables;
use crate::mesh::Cores;
use crate::random::Generator;
use candle_core::{Device, Error, Result, bail, external};
use ferrotune_devices::pjrt::{self, Client, Override, Plugin, Profiler};
use ferrotune_devices::{Cluster, open_jointly};
use std::any::Any;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How a device is opened.
#[derive(Clone, Copy, Debug)]
pub struct Options<'a> {
    /// How many devices of the plugin compute each program, on the same values unless they were uploaded for each.
    pub replicas: usize,
    /// The axes of a mesh of devices, such as `&[("data", 2), ("model", 4)]`: eight devices have each array once, as
    /// [`with_sharding_constraint`](crate::with_sharding_constraint) spreads it. Empty for none; a device has replicas or a
    /// mesh.
    pub mesh: &'a [(&'a str, usize)],
    /// The mesh may have more cores than the plugin has here: nothing runs, and [`Step::stablehlo`](crate::Step::stablehlo)
    /// gives the program for a machine that has them.
    pub ahead_of_time: bool,
    /// Where compiled programs are kept for later processes; nowhere without a folder.
    pub cache: Option<&'a Path>,
    /// What a program may need, in bytes, if the plugin does not report the memory of its device. One that needs more is an
    /// error before it runs.
    pub memory_bytes: Option<u64>,
    /// How messages call the device; by the plugin's own name without one.
    pub name: Option<&'a str>,
}

impl Default for Options<'_> {
    /// One device, no mesh, no folder, any memory, and programs run here.
    fn default() -> Self {
        Options { replicas: 1, mesh: &[], ahead_of_time: false, cache: None, memory_bytes: None, name: None }
    }
}

/// The first device of a plugin, such as XLA:CPU or libtpu.
///
/// ```no_run
/// let device = ferrotune_xla::open("xla_cpu_pjrt.so".as_ref())?;
/// let x = candle_core::Tensor::arange(0f32, 4f32, &device)?;
/// assert_eq!(x.sqr()?.sum_all()?.to_scalar::<f32>()?, 14.0);
/// # Ok::<(), candle_core::Error>(())
/// ```
///
/// # Errors
/// If the library is no plugin, or its device does not open.
pub fn open(plugin: &Path) -> Result<Device> {
    open_with(plugin, Options::default())
}

/// The first devices of a plugin as one.
///
/// # Errors
/// If the library is no plugin, its devices do not open, or there are fewer than replicas or the mesh need.
pub fn open_with(plugin: &Path, options: Options<'_>) -> Result<Device> {
    let client = Plugin::load(plugin).and_then(|plugin| plugin.client(&[])).map_err(Error::wrap)?;
    device_on(client, &identity(plugin), options)
}

/// What tells a plugin's library from another build of it: XLA:CPU, for one, has no version of its own.
pub fn identity(plugin: &Path) -> String {
    let file = std::fs::metadata(plugin).ok();
    let changed = file.as_ref().and_then(|file| file.modified().ok());
    format!("{} {:?} {changed:?}", plugin.display(), file.map(|file| file.len()))
}

/// The first devices of a plugin in each of several processes, as one: all workers of the cluster call this at the same time, with
/// the same options, and then compute the same in the same order, as in JAX. `replicas` or the mesh are those of all processes, the
/// devices of the first worker before those of the second. A program that the workers do not compute alike is an error before it
/// runs. A tensor that is made from values must be made from the same values in all workers.
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
/// Those of [`open_jointly`], and if the processes do not have so many devices.
pub fn open_across(plugin: &Path, cluster: &Cluster, options: Options<'_>) -> Result<Device> {
    let client = open_jointly(plugin, cluster).map_err(Error::wrap)?;
    device_across(client, &identity(plugin), options)
}

/// The first devices of a client that is open already, as one. `plugin` is the [`identity`] of its library.
///
/// # Errors
/// Those of the plugin, and if there are fewer devices than replicas or the mesh need, or the mesh is none.
pub fn device_on(client: Client, plugin: &str, options: Options<'_>) -> Result<Device> {
    let name = client.platform().map_err(Error::wrap)?;
    let mut devices = client.devices().map_err(Error::wrap)?;
    let cores = Cores::new(options.replicas, options.mesh)?;
    let count = cores.count();
    if count == 0 || devices.len() < count && !options.ahead_of_time {
        bail!("{name} has {} devices and not {count}", devices.len());
    }
    devices.truncate(count);
    let numbers = numbers_of(&devices)?;
    assembled(client, plugin, options, cores, Chosen { here: devices, numbers, is_joint: false })
}

/// The first devices of each process of a client that several have opened together, as one; see [`open_across`].
///
/// # Errors
/// Those of the plugin, and if the processes do not have so many devices, each equally many.
pub fn device_across(client: Client, plugin: &str, options: Options<'_>) -> Result<Device> {
    let name = client.platform().map_err(Error::wrap)?;
    let mut by_process: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
    for device in client.all_devices().map_err(Error::wrap)? {
        let description = device.description().map_err(Error::wrap)?;
        by_process.entry(description.process).or_default().push(description.id);
    }
    let cores = Cores::new(options.replicas, options.mesh)?;
    let (count, processes) = (cores.count(), by_process.len());
    let each = count / processes.max(1);
    if count == 0 || each * processes != count || by_process.values().any(|numbers| numbers.len() < each) {
        let have: Vec<usize> = by_process.values().map(Vec::len).collect();
        bail!("{count} cores cannot be equally many in each of {processes} processes, whose {name} has {have:?}");
    }
    let numbers: Vec<i32> = by_process.into_values().flat_map(|numbers| numbers.into_iter().take(each)).collect();
    let here = client.devices().map_err(Error::wrap)?;
    let here = numbers_of(&here)?.into_iter().zip(here).filter(|(number, _)| numbers.contains(number));
    let here = here.map(|(_, device)| device).collect();
    // Where a program was kept by one process and not by another one, the other one would compile it alone.
    let options = Options { cache: None, ..options };
    assembled(client, plugin, options, cores, Chosen { here, numbers, is_joint: true })
}

/// The devices that compute together.
struct Chosen {
    here: Vec<pjrt::Device>,
    /// Those of all processes.
    numbers: Vec<i32>,
    is_joint: bool,
}

fn assembled(client: Client, plugin: &str, options: Options<'_>, cores: Cores, chosen: Chosen) -> Result<Device> {
    let Chosen { here, numbers, is_joint } = chosen;
    let name = client.platform().map_err(Error::wrap)?;
    let version = client.version().map_err(Error::wrap)?;
    let flags = std::env::var_os("XLA_FLAGS").unwrap_or_default();
    let plugin = format!("{plugin} {name} {version} {flags:?}");
    // Some plugins do not report memory.
    let reported = here.first().and_then(|device| device.memory().ok()?.limit_bytes);
    let budget = Budget::new(options.name.unwrap_or(&name), reported.or(options.memory_bytes));
    let generator = Generator::new(&numbers);
    let elsewhere = numbers.len() - here.len();
    let mut compiled = cores.options().on(numbers);
    if name == "cpu" {
        // XLA:CPU otherwise loses a NaN in `maximum` and `minimum`, which StableHLO keeps.
        compiled.overrides.push(("xla_cpu_enable_fast_min_max".to_owned(), Override::Flag(false)));
    }
    let executables = Executables::new(options.cache, &plugin, compiled, budget);
    let executables = if is_joint { executables.jointly() } else { executables };
    Ok(device_of(Backend::new(name, client, (here, elsewhere), cores, executables, generator)))
}

/// All cores of the plugin that a device belongs to, each as a device of its own: a process can open a TPU only once. The first
/// one is `device` itself; where it is made of several cores, so are the others, and cores that are left over are not used.
/// A device without a plugin (`cpu`, `cuda`) is alone.
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
/// Those of the plugin.
pub fn cores(device: &Device) -> Result<Vec<Device>> {
    let others = backend_of(device).map_or(Ok(Vec::new()), Backend::others)?;
    Ok(std::iter::once(device.clone()).chain(others.into_iter().map(device_of)).collect())
}

/// Begins to record what the devices of a device's plugin do.
///
/// # Errors
/// If the device is none of a plugin (`cpu`, `cuda`), and those of [`Plugin::profile`].
pub fn profile(device: &Device) -> Result<Profiler> {
    let Some(backend) = backend_of(device) else { bail!("only devices of PJRT plugins have a profiler of their own") };
    backend.client().plugin().profile().map_err(Error::wrap)
}

/// The backend of a device that this crate has made.
pub fn backend_of(device: &Device) -> Option<&Backend> {
    let backend: &dyn Any = device.as_external()?.as_ref();
    backend.downcast_ref()
}

fn device_of(backend: Backend) -> Device {
    // candle tells devices apart by their number alone in some places.
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let backend: Arc<dyn external::Backend> = Arc::new(backend);
    Device::external(backend, NEXT.fetch_add(1, Ordering::Relaxed))
}
