//! What a step of training does in each replica of a [`Strategy`](ferrotune_devices::Strategy): it has its part of the batch, and
//! averages its gradients with those of the others.

use crate::backend::backend_of;
use crate::sharding::{with_sharding_constraint, zeros_like};
use candle_core::backprop::GradStore;
use candle_core::{DType, Device, Error, Result, Tensor, Var, bail};
use ferrotune_devices::{Reduce, Replica};

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
        return with_sharding_constraint(batch, &axes);
    }
    if rows % count != 0 {
        bail!("{count} replicas cannot share a batch of {rows} rows; make them a multiple of {count}");
    }
    batch.narrow(0, index * (rows / count), rows / count)
}

/// The number of cores that have the tensors of a device; 1 for the CPU.
pub fn cores_of(device: &Device) -> usize {
    backend_of(device).map_or(1, |backend| backend.cores().count())
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
            gradients.insert(var, zeros_like(var)?);
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

/// The mean of a tensor of floating-point numbers over all replicas, in its type and shape; in single precision unless it is `f64`.
///
/// # Errors
/// The errors of candle, and an error of the strategy if another replica has ended.
pub fn mean(replica: &Replica<'_>, values: &Tensor) -> Result<Tensor> {
    match values.dtype() {
        DType::F64 => through_memory::<f64>(replica, values),
        _ => through_memory::<f32>(replica, values),
    }
}

fn through_memory<R: Reduce + candle_core::WithDType>(replica: &Replica<'_>, values: &Tensor) -> Result<Tensor> {
    let mut own = values.flatten_all()?.to_vec1::<R>()?;
    replica.all_reduce_mean(&mut own).map_err(Error::wrap)?;
    Tensor::from_vec(own, values.shape(), values.device())
}
