//! What [`Tensor::backward`] needs beside the chain rule: the sums of gradients, and those gradients that take more than a
//! line. An operation without a right gradient is an error that names it; a gradient is never left out in silence.
use crate::backprop::{detach, GradStore};
use crate::op::{BinaryOp, Op, ReduceOp};
use crate::{DType, Error, Result, Tensor, TensorId};
use std::collections::HashSet;

mod activation;
mod norm;
mod pool;
mod rotary;
mod rule;
mod view;

pub(crate) use activation::{gelu, gelu_erf, powf, silu};
pub(crate) use pool::{avg_pool2d, max_pool2d};
pub use rule::Rule;
pub(crate) use view::{matmul_like, scatter, sum_to, upsample_nearest};

/// The gradients of a backward pass in progress.
///
/// The first gradient of a tensor is moved in, and later ones are added to it. Only tensors that lead to a variable have
/// one: for the others, nothing is computed.
pub(crate) struct Gradients {
    store: GradStore,
    needed: HashSet<TensorId>,
}

impl Gradients {
    /// Starts at `root`, whose gradient is one. `nodes` are the tensors that lead from it to variables.
    pub(crate) fn new(root: &Tensor, nodes: &[&Tensor]) -> Result<Self> {
        let mut store = GradStore::new();
        store.insert(root, root.ones_like()?.contiguous()?);
        let needed = nodes.iter().map(|node| node.id()).collect();
        Ok(Self { store, needed })
    }

    /// Whether `tensor` leads to a variable.
    pub(crate) fn needs(&self, tensor: &Tensor) -> bool {
        self.needed.contains(&tensor.id())
    }

    /// Removes the complete gradient of `node`, in the layout that the gradient of its operation takes.
    pub(crate) fn take(&mut self, node: &Tensor) -> Result<Option<Tensor>> {
        match (self.store.remove(node), node.op()) {
            (Some(grad), Some(op)) if !takes_any_layout(op) => grad.contiguous().map(Some),
            (grad, _) => Ok(grad),
        }
    }

    /// Adds what `gradient` returns to the gradient of `tensor`, if one is needed.
    pub(crate) fn add(
        &mut self,
        tensor: &Tensor,
        gradient: impl FnOnce() -> Result<Tensor>,
    ) -> Result<()> {
        if !self.needs(tensor) {
            return Ok(());
        }
        let gradient = gradient()?;
        check(tensor, &gradient)?;
        let sum = match self.store.remove(tensor) {
            Some(sum) => sum.add(&gradient)?,
            None => gradient,
        };
        self.store.insert(tensor, detach(sum));
        Ok(())
    }

    /// Adds each gradient to that of its tensor.
    pub(crate) fn add_all<'a>(
        &mut self,
        gradients: impl IntoIterator<Item = (&'a Tensor, Option<Tensor>)>,
    ) -> Result<()> {
        for (tensor, gradient) in gradients {
            if let Some(gradient) = gradient {
                self.add(tensor, || Ok(gradient))?;
            }
        }
        Ok(())
    }

    /// Replaces the gradient of `tensor`, zeros at first, by what `accumulate` makes of it.
    pub(crate) fn add_to_sum(
        &mut self,
        tensor: &Tensor,
        accumulate: impl FnOnce(&Tensor) -> Result<Tensor>,
    ) -> Result<()> {
        if !self.needs(tensor) {
            return Ok(());
        }
        let sum = match self.store.remove(tensor) {
            Some(sum) => sum,
            None => tensor.zeros_like()?,
        };
        self.store.insert(tensor, detach(accumulate(&sum)?));
        Ok(())
    }

    /// The gradients of the variables: each one contiguous, and in memory of its own, so that changing one in place
    /// changes nothing else.
    pub(crate) fn finish(mut self, nodes: &[&Tensor]) -> Result<GradStore> {
        for node in nodes.iter().filter(|node| node.is_variable()) {
            if let Some(grad) = self.store.remove(node) {
                let grad = if grad.is_contiguous() && grad.owns_storage() {
                    grad
                } else {
                    detach(grad.force_contiguous()?)
                };
                self.store.insert(node, grad);
            }
        }
        Ok(self.store)
    }
}

/// Whether the gradient of `op` only moves elements or adds, and so costs no more for strided memory.
fn takes_any_layout(op: &Op) -> bool {
    matches!(
        op,
        Op::Binary(_, _, BinaryOp::Add)
            | Op::Cat(..)
            | Op::Copy(_)
            | Op::Permute(..)
            | Op::Reduce(_, ReduceOp::Sum, _)
            | Op::Reshape(_)
            | Op::Transpose(..)
    )
}

fn check(tensor: &Tensor, gradient: &Tensor) -> Result<()> {
    if tensor.shape() != gradient.shape() {
        Err(Error::ShapeMismatchBinaryOp {
            lhs: tensor.shape().clone(),
            rhs: gradient.shape().clone(),
            op: "backward",
        }
        .bt())?
    }
    if tensor.dtype() != gradient.dtype() {
        Err(Error::DTypeMismatchBinaryOp {
            lhs: tensor.dtype(),
            rhs: gradient.dtype(),
            op: "backward",
        }
        .bt())?
    }
    Ok(())
}

/// The dtype that a gradient is computed in: as in the forward kernels, f32 for the 16-bit floats.
fn compute_dtype(dtype: DType) -> DType {
    match dtype {
        DType::BF16 | DType::F16 => DType::F32,
        dtype => dtype,
    }
}
