//! Strategies over candle: several replicas of a model train on parts of a batch, with the result of one model that trains
//! on all of it.
//!
//! CUDA devices of one process exchange gradients through NCCL, all others through the memory of their hosts.

#[cfg(feature = "cuda")]
mod nccl;

use candle_core::backprop::GradStore;
use candle_core::{DType, Device, Error, Result, Tensor, Var};
pub use ferrotune_devices::{Cluster, Precision, Reduce, Replica, Strategy, StrategyError};

/// The strategy of the connected device, with one replica: TensorFlow's `get_strategy`.
pub fn current() -> Strategy {
    Strategy::on(crate::device::name())
}

/// A replica on each core of the attached TPU, which is opened in a process of its own to count them: TensorFlow's
/// `TPUStrategy`. A description: of its cores only the first one can be opened by name so far; see [`Strategy::tpu`].
///
/// # Errors
/// If there is no TPU, or it does not open.
pub fn tpu() -> ferrotune_trial::Result<Strategy> {
    Ok(Strategy::tpu(&crate::device::opened_tpu()?)?)
}

/// The device of a replica.
///
/// # Errors
/// If the device cannot be opened; of a TPU's cores only the first one can be.
pub fn device(replica: &Replica<'_>) -> ferrotune_trial::Result<Device> {
    ferrotune_trial::open_device(replica.device())
}

/// A tensor in the precision of the replica's strategy, to compute with it. Variables stay in their own type, and so do
/// their gradients: this is TensorFlow's `mixed_bfloat16`.
///
/// ```ignore
/// let hidden = strategy::cast(replica, &x)?.matmul(&strategy::cast(replica, &weights)?)?.relu()?;
/// ```
///
/// # Errors
/// Those of candle if the device does not have this type.
pub fn cast(replica: &Replica<'_>, tensor: &Tensor) -> Result<Tensor> {
    tensor.to_dtype(match replica.strategy().precision() {
        Precision::F32 => DType::F32,
        Precision::Bf16 => DType::BF16,
    })
}

/// Replaces the gradients of `vars` by their mean over all replicas, before the optimiser's step. A variable without a
/// gradient has a gradient of zeros. Every replica names the same variables in the same order. Double precision is kept;
/// all else is exchanged in single precision.
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
/// Those of candle, and that of the strategy if another replica has ended.
pub fn average(replica: &Replica<'_>, gradients: &mut GradStore, vars: &[Var]) -> Result<()> {
    let (double, single): (Vec<&Var>, Vec<&Var>) = vars.iter().partition(|var| var.dtype() == DType::F64);
    for (vars, dtype) in [(single, DType::F32), (double, DType::F64)] {
        if !vars.is_empty() {
            average_as(dtype, replica, gradients, &vars)?;
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
    #[cfg(feature = "cuda")]
    if nccl::serves(replica.strategy()) {
        return nccl::mean(replica, values);
    }
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
