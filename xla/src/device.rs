//! Devices of plugins as candle's.

use crate::backend::Backend;
use candle_core::{Device, Error, Result, external};
use ferrotune_devices::pjrt::Plugin;
use std::any::Any;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

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
    open_replicas(plugin, 1)
}

/// The first `replicas` devices of a plugin as one: each computes the same program, on the same values unless they were
/// uploaded for each.
///
/// # Errors
/// If the library is no plugin, its devices do not open, or there are fewer.
pub fn open_replicas(plugin: &Path, replicas: usize) -> Result<Device> {
    let client = Plugin::load(plugin).and_then(|plugin| plugin.client(&[])).map_err(Error::wrap)?;
    let name = client.platform().map_err(Error::wrap)?;
    Ok(device_of(Backend::new(&name, client, replicas)?))
}

/// A device of which only programs are wanted: nothing can be computed on it. `name` is how messages call it.
pub fn describe(name: &str) -> Device {
    device_of(Backend::described(name, 1))
}

/// The backend of a device that this crate has made.
pub fn backend_of(device: &Device) -> Option<&Backend> {
    let backend: &dyn Any = device.as_external()?.as_ref();
    backend.downcast_ref()
}

/// candle tells devices apart by their number alone in some places.
fn device_of(backend: Backend) -> Device {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let backend: Arc<dyn external::Backend> = Arc::new(backend);
    Device::external(backend, NEXT.fetch_add(1, Ordering::Relaxed))
}
