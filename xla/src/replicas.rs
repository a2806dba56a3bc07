//! Data parallelism: each replica computes the same program on its own rows of the batch, and gradients are averaged over all.
//!
//! The replicas of a device ([`Options::replicas`](crate::Options)) have the same tensors. [`shard`] gives each replica its own rows,
//! and [`all_reduce_mean`] makes tensors that follow from them the same on all replicas again. On a device with one replica, and on
//! candle's own devices, both return their argument.

use crate::backend::backend_of;
use crate::lower::{ALL_REDUCE_MEAN, SHARD};
use candle_core::backprop::GradStore;
use candle_core::{CpuStorage, CustomOp1, Layout, Result, Shape, Tensor, Var, bail};

/// This replica's rows of a tensor whose first dimension is the global batch.
///
/// # Errors
/// If the replicas cannot have the same number of rows.
pub fn shard(batch: &Tensor) -> Result<Tensor> {
    if replicas_of(batch) == 1 { Ok(batch.clone()) } else { batch.apply_op1_no_bwd(&Collective(SHARD)) }
}

/// The mean of a tensor over all replicas.
///
/// # Errors
/// If the tensor has no floating-point numbers.
pub fn all_reduce_mean(tensor: &Tensor) -> Result<Tensor> {
    if replicas_of(tensor) == 1 { Ok(tensor.clone()) } else { tensor.apply_op1_no_bwd(&Collective(ALL_REDUCE_MEAN)) }
}

/// Replaces the gradients of `vars` by their means over all replicas. A training calls this between `backward` and the optimiser's step.
///
/// # Errors
/// The errors of [`all_reduce_mean`].
pub fn all_reduce_gradients(vars: &[Var], gradients: &mut GradStore) -> Result<()> {
    for var in vars {
        if let Some(gradient) = gradients.get(var) {
            let mean = all_reduce_mean(gradient)?;
            gradients.insert(var, mean);
        }
    }
    Ok(())
}

fn replicas_of(tensor: &Tensor) -> usize {
    backend_of(tensor.device()).map_or(1, |backend| backend.cores().replicas())
}

/// An operation over all replicas, identified by its name.
struct Collective(&'static str);

impl CustomOp1 for Collective {
    fn name(&self) -> &'static str {
        self.0
    }

    fn cpu_fwd(&self, _: &CpuStorage, _: &Layout) -> Result<(CpuStorage, Shape)> {
        bail!("{} is for devices with several replicas; the CPU is one", self.0)
    }
}
