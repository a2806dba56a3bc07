//! Arrays that are spread over the cores of a mesh, by GSPMD: a program computes with whole arrays, and the compiler spreads the
//! program over cores as its annotations say. So an annotation changes the place of a value and never the value.
//!
//! [GSPMD](https://arxiv.org/abs/2105.04663) derives the sharding of arrays without an annotation from that of annotated ones.

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
/// axis that is given for it, and whole with `None`. The name and meaning are those of JAX's function. On a device without a mesh the
/// function returns the tensor itself, so that the same program runs everywhere.
///
/// The tensor's gradient is spread in the same way. [`spread`] spreads a variable in the same way.
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
/// If the mesh has no such axis, an axis is used twice, the number of its cores does not divide the dimension, or the number of axes
/// and `None`s differs from the number of dimensions.
pub fn with_sharding_constraint(tensor: &Tensor, axes: &[Option<&str>]) -> Result<Tensor> {
    match backend_of(tensor.device()).and_then(|backend| backend.cores().mesh()) {
        Some(mesh) => constrained(tensor, mesh.sharding(tensor.dims(), axes)?),
        None => Ok(tensor.clone()),
    }
}

/// Spreads a variable over the mesh of its device, as [`with_sharding_constraint`] does. The variable stays spread from then on, and
/// each core has only its part. Spread variables before the optimiser and the first step are made, since a compiled step keeps their
/// sharding as it was. On a device without a mesh nothing changes.
///
/// # Errors
/// The errors of [`with_sharding_constraint`], and in a compiled step.
pub fn spread(variable: &Var, axes: &[Option<&str>]) -> Result<()> {
    let Some(backend) = backend_of(variable.device()) else { return Ok(()) };
    backend.trace.refuse("spread")?;
    match backend.cores().mesh() {
        Some(mesh) => variable.set(&constrained(variable, mesh.sharding(variable.dims(), axes)?)?),
        None => Ok(()),
    }
}

/// Zeros of the shape, type, device and sharding of a tensor.
///
/// # Errors
/// The errors of candle.
pub fn zeros_like(tensor: &Tensor) -> Result<Tensor> {
    zeros_as(tensor, tensor.dtype())
}

/// Zeros of the shape, device and sharding of a tensor, in another type.
pub(crate) fn zeros_as(tensor: &Tensor, dtype: DType) -> Result<Tensor> {
    let zeros = Tensor::zeros(tensor.shape(), dtype, tensor.device())?;
    match sharding_of(tensor)? {
        Some(sharding) => constrained(&zeros, sharding),
        None => Ok(zeros),
    }
}

/// The bytes that a tensor's value takes on the first device: the bytes of a part, if it is spread over a mesh. Computes the value.
///
/// # Errors
/// The errors of the device, and if the tensor is not on a device of a plugin.
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

/// The sharding of a tensor, if one was set.
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

/// The old value that an in-place operation changes, if it has a sharding, which the new value keeps.
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

/// The new value with the sharding of the old one that it replaces, unless another sharding was set.
pub(crate) fn like(old: &Node, new: Value) -> Value {
    let node = new.node();
    match &old.sharding {
        Some(sharding) if node.sharding.is_none() => Value::Node(node.reshape(&old.dims).spread(sharding.clone())),
        _ => new,
    }
}

/// Whether the node only spreads an uploaded array, which each core has as a whole until the node is computed.
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
