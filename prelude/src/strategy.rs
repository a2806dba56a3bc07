//! Strategies for candle: several replicas of a model train on parts of a batch, with the same result as one model that trains
//! on the whole batch.
//!
//! Replicas exchange gradients through the memory of their hosts; the cores of a plugin exchange them in the plugin.

use candle_core::random::{Draws, set_draws_of_thread};
use candle_core::{DType, Device, Result, Tensor};
use ferrotune_devices::DeviceName;
pub use ferrotune_devices::{Cluster, Precision, Reduce, Replica, Strategy, StrategyError};
use ferrotune_trial::{BoxError, derived_seed, located};
pub use ferrotune_xla::strategy::{average, shard};

/// The strategy of the connected device, with one replica: TensorFlow's `get_strategy`.
pub fn current() -> Strategy {
    Strategy::on(crate::device::name())
}

/// All cores of the connected plugin (`tpu`, `cuda`, `xla:cpu`) as one device, over which a batch is spread: TensorFlow's `TPUStrategy`.
/// If no plugin is connected, the cores are those of the attached TPU, which a separate process opens to count them.
///
/// # Errors
/// If there is no TPU, or if it cannot be opened.
#[track_caller]
pub fn tpu() -> ferrotune_trial::Result<Strategy> {
    located(cores_of_tpu())
}

fn cores_of_tpu() -> std::result::Result<Strategy, BoxError> {
    let name = crate::device::name();
    if DeviceName::parse(&name).is_some() {
        let cores = ferrotune_trial::count_cores(&name)?;
        return Ok(Strategy::cores(name, cores)?);
    }
    Ok(Strategy::tpu(&crate::device::opened_tpu()?)?)
}

/// The device of a replica. All cores of a plugin are one device; over several processes, it has the cores of all of them.
///
/// From this call on, the replicas of a process draw the same random numbers on the CPU, so that their
/// models begin with the same weights. Each scope has different random numbers.
///
/// # Errors
/// If the device cannot be opened. Over several processes: if another process does not open it at the same time, or if this process
/// has opened its plugin alone before.
#[track_caller]
pub fn device(replica: &Replica<'_>) -> ferrotune_trial::Result<Device> {
    located(open(replica))
}

fn open(replica: &Replica<'_>) -> std::result::Result<Device, BoxError> {
    if replica.strategy().devices().len() > 1 {
        // The replica has its own thread.
        let seed = derived_seed(Device::Cpu.get_current_seed()?, replica.scope());
        set_draws_of_thread(Draws { seed, drawn: 0 });
    }
    let strategy = replica.strategy();
    match (strategy.spread(), strategy.cluster()) {
        (Some(cores), Some(cluster)) => ferrotune_trial::open_cores_across(replica.device(), cores, cluster),
        (Some(cores), None) => ferrotune_trial::open_cores(replica.device(), cores),
        (None, _) => ferrotune_trial::open_device(replica.device()),
    }
}

/// A tensor in the precision of the replica's strategy, for computations. Variables keep their own type, and so do
/// their gradients: this is TensorFlow's `mixed_bfloat16`.
///
/// ```ignore
/// let hidden = strategy::cast(replica, &x)?.matmul(&strategy::cast(replica, &weights)?)?.relu()?;
/// ```
///
/// # Errors
/// The errors of candle, if the device does not have this type.
pub fn cast(replica: &Replica<'_>, tensor: &Tensor) -> Result<Tensor> {
    tensor.to_dtype(match replica.strategy().precision() {
        Precision::F32 => DType::F32,
        Precision::Bf16 => DType::BF16,
    })
}
