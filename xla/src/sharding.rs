//! Arrays that are spread over the cores of a mesh, by GSPMD: a program computes with whole arrays, and the compiler spreads the
//! program over cores as its annotations say. So an annotation changes the place of a value and never the value.
//!
//! [GSPMD](https://arxiv.org/abs/2105.04663) derives the sharding of arrays without an annotation from that of annotated ones.

use crate::backend::backend_of;
use crate::lower::CONSTRAINT;
use crate::mesh::Sharding;
use crate::view::node_of;
use candle_core::{CpuStorage, CustomOp1, DType, Error, Layout, Result, Shape, Tensor, Var, bail};

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
/// let device = open_with("libpjrt_cpu.so".as_ref(), options)?;
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
