//! Strategies for candle: several replicas of a model train on parts of a batch, with the same result as one model that trains
//! on the whole batch.
//!
//! Replicas exchange gradients through the memory of their hosts; the cores of a plugin exchange them in the plugin.

use candle_core::backprop::GradStore;
use candle_core::random::{Draws, set_draws_of_thread};
use candle_core::{DType, Device, Error, Result, Tensor, Var, bail};
use ferrotune_devices::DeviceName;
pub use ferrotune_devices::{Cluster, Precision, Reduce, Replica, Strategy, StrategyError};
use ferrotune_trial::{BoxError, derived_seed, located};

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

/// The rows of a batch that belong to a replica, where each replica has the same batch. The first dimension is the examples.
/// Over the cores of a plugin, in one process or several, it is the whole batch, which is spread over them.
///
/// ```ignore
/// let x = strategy::shard(replica, &batch)?;
/// let loss = model.forward(&x)?.sqr()?.mean_all()?;     // the mean over the rows that `shard` gives
/// ```
///
/// # Errors
/// If the replicas or cores cannot have the same number of rows.
pub fn shard(replica: &Replica<'_>, batch: &Tensor) -> Result<Tensor> {
    let (index, count, rows) = (replica.index(), replica.count(), batch.dim(0)?);
    if replica.strategy().spread().is_some() {
        let mut axes = vec![None; batch.rank()];
        axes[0] = Some("data");
        return ferrotune_xla::with_sharding_constraint(batch, &axes);
    }
    if rows % count != 0 {
        bail!("{count} replicas cannot share a batch of {rows} rows; make them a multiple of {count}");
    }
    batch.narrow(0, index * (rows / count), rows / count)
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

/// Replaces the gradients of `vars` by their mean over all replicas, before the optimiser's step. A variable without a
/// gradient counts with a gradient of zeros. Every replica names the same variables in the same order. Double precision is kept;
/// all other types are exchanged in single precision.
///
/// Over the cores of a plugin, and with one replica, the gradients do not change: if the loss is a mean over the rows of
/// [`shard`], they are already the gradients of the whole batch.
///
/// ```ignore
/// let losses = Strategy::mirrored(["cpu", "cpu"])?.scope(|replica| {
///     let device = strategy::device(replica)?;
///     …
///     let mut gradients = loss.backward()?;
///     strategy::average(replica, &mut gradients, &vars)?;
///     optimizer.step(&gradients)
/// });
/// ```
///
/// # Errors
/// The errors of candle, and an error of the strategy if another replica has ended.
pub fn average(replica: &Replica<'_>, gradients: &mut GradStore, vars: &[Var]) -> Result<()> {
    if replica.count() == 1 {
        return add_zeros(gradients, vars);
    }
    let (double, single): (Vec<&Var>, Vec<&Var>) = vars.iter().partition(|var| var.dtype() == DType::F64);
    for (vars, dtype) in [(single, DType::F32), (double, DType::F64)] {
        if !vars.is_empty() {
            average_as(dtype, replica, gradients, &vars)?;
        }
    }
    Ok(())
}

/// Gives variables without a gradient a gradient of zeros.
fn add_zeros(gradients: &mut GradStore, vars: &[Var]) -> Result<()> {
    for var in vars {
        if gradients.get(var).is_none() {
            gradients.insert(var, ferrotune_xla::zeros_like(var)?);
        }
    }
    Ok(())
}

fn average_as(dtype: DType, replica: &Replica<'_>, gradients: &mut GradStore, vars: &[&Var]) -> Result<()> {
    let flat = |var: &&Var| match gradients.get(var) {
        Some(gradient) => gradient.flatten_all()?.to_dtype(dtype),
        None => Tensor::zeros(var.elem_count(), dtype, var.device()),
    };
    let all = Tensor::cat(&vars.iter().map(flat).collect::<Result<Vec<_>>>()?, 0)?;
    let mean = mean(replica, &all)?;
    let mut start = 0;
    for var in vars {
        let own = mean.narrow(0, start, var.elem_count())?.reshape(var.shape())?;
        gradients.insert(var, own.to_dtype(var.dtype())?);
        start += var.elem_count();
    }
    Ok(())
}

/// The mean of a row of values over all replicas.
fn mean(replica: &Replica<'_>, values: &Tensor) -> Result<Tensor> {
    match values.dtype() {
        DType::F64 => through_memory::<f64>(replica, values),
        _ => through_memory::<f32>(replica, values),
    }
}

fn through_memory<R: Reduce + candle_core::WithDType>(replica: &Replica<'_>, values: &Tensor) -> Result<Tensor> {
    let mut own = values.to_vec1::<R>()?;
    replica.all_reduce_mean(&mut own).map_err(Error::wrap)?;
    Tensor::from_vec(own, values.shape(), values.device())
}
