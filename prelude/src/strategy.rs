//! Strategies over candle: several replicas of a model train on parts of a batch as one would on all of it.
//!
//! CUDA devices exchange gradients through the host's memory here; a transport between the devices themselves is not
//! there yet.

use candle_core::backprop::GradStore;
use candle_core::{DType, Device, Error, Result, Tensor, Var};
pub use ferrotune_devices::{Precision, Replica, Strategy, StrategyError};

/// The type of a model's tensors.
pub fn dtype(precision: Precision) -> DType {
    match precision {
        Precision::F32 => DType::F32,
        Precision::Bf16 => DType::BF16,
    }
}

/// The device of a replica.
///
/// # Errors
/// Those of candle where the device cannot be opened.
pub fn device(replica: &Replica<'_>) -> ferrotune_trial::Result<Device> {
    ferrotune_trial::open_device(replica.device())
}

/// Replaces the gradients of `vars` by their mean over all replicas, before the optimiser's step. A variable without a
/// gradient counts as one of zeros. Every replica names the same variables in the same order.
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
/// Those of candle, and that of the strategy where another replica has ended.
pub fn average(replica: &Replica<'_>, gradients: &mut GradStore, vars: &[Var]) -> Result<()> {
    let mut values = Vec::new();
    for var in vars {
        match gradients.get(var) {
            Some(gradient) => values.extend(gradient.flatten_all()?.to_dtype(DType::F32)?.to_vec1::<f32>()?),
            None => values.resize(values.len() + var.elem_count(), 0.0),
        }
    }
    replica.all_reduce_mean(&mut values).map_err(Error::wrap)?;
    let mut rest = values.as_slice();
    for var in vars {
        let (own, others) = rest.split_at(var.elem_count());
        rest = others;
        let gradient = Tensor::from_slice(own, var.shape(), var.device())?.to_dtype(var.dtype())?;
        gradients.insert(var, gradient);
    }
    Ok(())
}
