//! Arrays that are spread over the cores of a mesh, by GSPMD: a program computes with whole arrays, and the compiler spreads it
//! over cores as its annotations say, so that an annotation changes where a value is and never the value.
//!
//! [GSPMD](https://arxiv.org/abs/2105.04663) spreads what is not annotated by what is.

use crate::device::backend_of;
use crate::graph::{Array as _, Node, Op};
use crate::mesh::Sharding;
use crate::value::Value;
use crate::view::{dense, node_of};
use candle_core::external::{Input, Op as Kernel};
use candle_core::{CpuStorage, CustomOp1, DType, Error, Layout, Result, Shape, Tensor, Var, bail};
use std::sync::Arc;

const CONSTRAINT: &str = "sharding-constraint";

/// The same tensor, spread over the mesh of its device ([`Options::mesh`](crate::Options)): each dimension is split along the
/// axis that is named for it, and whole with `None`. Named as JAX's function, with its meaning. On a device without a mesh it is
/// the tensor itself, so that the same program runs everywhere.
///
/// Its gradient is spread in the same way. [`spread`] does the same to a variable.
///
/// ```no_run
/// use candle_core::{DType, Tensor, Var};
/// use ferrotune_xla::{Options, open_with, spread, with_sharding_constraint};
/// let options = Options { mesh: &[("data", 2), ("model", 2)], ..Options::default() };
/// let device = open_with("xla_cpu_pjrt.so".as_ref(), options)?;
/// let weights = Var::zeros((1024, 4096), DType::F32, &device)?;
/// spread(&weights, &[None, Some("model")])?;                                       // 1024 × 2048 on each core
/// let x = Tensor::ones((8, 1024), DType::F32, &device)?;
/// let x = with_sharding_constraint(&x, &[Some("data"), None])?;                    // four rows on each core
/// assert_eq!(x.matmul(&weights)?.dims(), [8, 4096]);
/// # Ok::<(), candle_core::Error>(())
/// ```
///
/// # Errors
/// If the mesh has no such axis, an axis is named twice, its cores do not divide the dimension, or there is not one axis or
/// `None` for each dimension.
pub fn with_sharding_constraint(tensor: &Tensor, axes: &[Option<&str>]) -> Result<Tensor> {
    match backend_of(tensor.device()).and_then(|backend| backend.cores().mesh()) {
        Some(mesh) => constrained(tensor, mesh.sharding(tensor.dims(), axes)?),
        None => Ok(tensor.clone()),
    }
}

/// Spreads a variable over the mesh of its device, as [`with_sharding_constraint`] does; it stays so from then on, and a core has
/// only its part. Spread variables before the optimiser and the first step are made, since a compiled step keeps them as they
/// were. On a device without a mesh nothing changes.
///
/// # Errors
/// Those of [`with_sharding_constraint`], and in a compiled step.
pub fn spread(variable: &Var, axes: &[Option<&str>]) -> Result<()> {
    let Some(backend) = backend_of(variable.device()) else { return Ok(()) };
    backend.trace.refuse("spread")?;
    match backend.cores().mesh() {
        Some(mesh) => variable.set(&constrained(variable, mesh.sharding(variable.dims(), axes)?)?),
        None => Ok(()),
    }
}

/// Zeros of the shape, type and device of a tensor that are spread over a mesh as it is.
///
/// # Errors
/// Those of candle.
pub fn zeros_like(tensor: &Tensor) -> Result<Tensor> {
    zeros_as(tensor, tensor.dtype())
}

/// The same of another type.
pub(crate) fn zeros_as(tensor: &Tensor, dtype: DType) -> Result<Tensor> {
    let zeros = Tensor::zeros(tensor.shape(), dtype, tensor.device())?;
    match sharding_of(tensor)? {
        Some(sharding) => constrained(&zeros, sharding),
        None => Ok(zeros),
    }
}

/// The bytes that a tensor's value takes on the first device: its part, if it is spread over a mesh. Computes the value.
///
/// # Errors
/// Those of the device, and if the tensor is not on one of a plugin.
pub fn device_bytes(tensor: &Tensor) -> Result<usize> {
    let Some(backend) = backend_of(tensor.device()) else {
        bail!("{:?} is no device of a plugin; its tensors are whole", tensor.device().location())
    };
    let node = node_of(tensor)?;
    backend.compute(std::slice::from_ref(&node))?;
    let buffer = node.value().and_then(<[_]>::first);
    buffer.map_or(Ok(0), |buffer| buffer.device_bytes().map_err(Error::wrap))
}

fn constrained(tensor: &Tensor, sharding: Sharding) -> Result<Tensor> {
    tensor.apply_op1(Constraint(sharding))
}

/// How the value of a tensor is spread, if that was said.
fn sharding_of(tensor: &Tensor) -> Result<Option<Sharding>> {
    match backend_of(tensor.device()) {
        Some(_) => Ok(node_of(tensor)?.sharding.clone()),
        None => Ok(None),
    }
}

struct Constraint(Sharding);

impl CustomOp1 for Constraint {
    fn name(&self) -> &'static str {
        CONSTRAINT
    }

    fn attributes(&self) -> Result<Vec<f64>> {
        Ok(self.0.to_numbers())
    }

    fn cpu_fwd(&self, _: &CpuStorage, _: &Layout) -> Result<(CpuStorage, Shape)> {
        bail!("{CONSTRAINT} is for devices with a mesh; the CPU is one core")
    }

    fn bwd(&self, _: &Tensor, _: &Tensor, gradient: &Tensor) -> Result<Option<Tensor>> {
        constrained(gradient, self.0.clone()).map(Some)
    }
}

/// The lowering of a constraint, if `name` is one.
pub(crate) fn lowered(name: &str, axes: &[f64], inputs: &[Input<'_>]) -> Option<Result<(Value, Shape, DType)>> {
    let ([input], CONSTRAINT) = (inputs, name) else { return None };
    let spread = dense(input).map(|node| node.spread(Sharding::of_numbers(axes)));
    Some(spread.map(|node| (Value::Node(node), input.layout.shape().clone(), input.storage.dtype())))
}

/// The old value that an operation in place changes, if it is spread: the new one stays so.
pub(crate) fn kept(kernel: &Kernel, inputs: &[Input<'_>]) -> Result<Option<Arc<Node>>> {
    let is_in_place = matches!(
        kernel,
        Kernel::Copy { .. }
            | Kernel::Copy2d { .. }
            | Kernel::Set(_)
            | Kernel::Scatter { .. }
            | Kernel::ScatterAdd { .. }
    );
    let Some(old) = inputs.first().filter(|_| is_in_place) else { return Ok(None) };
    match Value::of(&old.storage.slot().value())? {
        Value::Node(node) if node.sharding.is_some() => Ok(Some(node.clone())),
        _ => Ok(None),
    }
}

/// The new value in the place of an old one that is spread, spread in the same way, unless another way was asked for.
pub(crate) fn like(old: &Node, new: Value) -> Value {
    let node = new.node();
    match &old.sharding {
        Some(sharding) if node.sharding.is_none() => Value::Node(node.reshape(&old.dims).spread(sharding.clone())),
        _ => new,
    }
}

/// Whether the node only spreads an array that was uploaded, which each core has as a whole until then.
pub(crate) fn is_of_uploaded(node: &Node) -> bool {
    let mut inputs = if matches!(node.op, Op::Sharding) { node.inputs() } else { Vec::new() };
    while let [input] = inputs.as_slice() {
        if input.value().is_some() {
            return true;
        }
        inputs = if input.op == Op::Reshape { input.inputs() } else { Vec::new() };
    }
    false
}
