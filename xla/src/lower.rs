//! Lowers candle's kernels to nodes of the graph.
//!
//! The results are candle's on the CPU, with these exceptions, which depend on values:
//!
//! * An index outside its dimension, which is an error on the CPU at once, is an error here when a value that depends on it is
//!   read (`checks`). A program without checks reads a NaN there (0 for integers) and writes nothing. Compiled steps have checks
//!   only if `FERROTUNE_CHECK_INDEXES` is 1, and no program has checks if it is 0. The greatest number of an index type is padding:
//!   it reads 0 and writes nothing, as on the CPU.
//! * If `scatter` puts several elements into one place, any of them remains.
//! * Integers divided by zero give a number that depends on the device.
//! * Bilinear interpolation of integers may give a neighbour, since its sums are rounded in another order.
//! * A sum of integers wraps around if it is outside the range of its type.
//!
//! Sums of 16-bit floats are computed in `f32`. An extreme over elements with a NaN is NaN, and a sort puts NaN above every number.

mod copy;
mod cores;
mod custom;
mod draw;
mod elementwise;
mod index;
mod norm;
mod pool;
mod reduce;
mod rotary;
mod space;
mod upsample;

use crate::element::element_of;
use crate::graph::{Array as _, Compare, Node, Op};
use crate::precision::factor;
use crate::random::Keys;
use crate::value::Value;
use crate::{element, view};
use candle_core::external::{CmpOp, Input, Op as Kernel};
use candle_core::{DType, Result, Shape, bail};
pub(crate) use cores::{ALL_REDUCE_MEAN, CONSTRAINT, SHARD};
pub(crate) use custom::custom;
use ferrotune_devices::pjrt::Element;
use std::sync::Arc;

/// The shape and type of the array that a kernel makes.
#[derive(Clone, Copy)]
struct Wanted<'a> {
    dims: &'a [usize],
    element: Element,
}

/// Lowers a kernel to the node of its result, of this shape and type, without computing it. A kernel that changes a value in place
/// keeps the sharding of the value.
///
/// # Errors
/// If candle's kernel refuses such inputs, or they have no lowering.
pub(crate) fn apply(
    keys: Keys<'_>,
    kernel: Kernel,
    inputs: &[Input<'_>],
    shape: &Shape,
    dtype: DType,
) -> Result<Value> {
    let old = cores::kept(&kernel, inputs)?;
    let value = applied(keys, kernel, inputs, shape, dtype)?;
    Ok(match old {
        Some(old) => cores::like(&old, value),
        None => value,
    })
}

fn applied(keys: Keys<'_>, kernel: Kernel, inputs: &[Input<'_>], shape: &Shape, dtype: DType) -> Result<Value> {
    match (&kernel, inputs) {
        // These kernels change only a part of the old value, so its parts need not be joined first.
        (Kernel::Copy { offset }, [old, source]) => return copy::elements(old, source, *offset),
        (Kernel::Copy2d { rows, columns, source: from, target }, [old, source]) => {
            return copy::rows(old, source, *rows, *columns, *from, *target);
        }
        (Kernel::Set(number), [old]) => return copy::set(old, *number),
        // The node of a whole storage is used without its flat view, because the value may be spread along the node's own dimensions.
        (Kernel::ToDType, [input]) if copy::is_whole(input) => {
            let node = Value::node_in(input.storage.slot())?;
            return Ok(Value::Node(elementwise::cast(&node, element_of(dtype)?)));
        }
        _ => {}
    }
    let inputs = inputs.iter().map(view::dense).collect::<Result<Vec<_>>>()?;
    let wanted = Wanted { dims: shape.dims(), element: element_of(dtype)? };
    Ok(Value::Node(lowered(keys, kernel, &inputs, wanted)?))
}

fn lowered(keys: Keys<'_>, kernel: Kernel, inputs: &[Arc<Node>], wanted: Wanted<'_>) -> Result<Arc<Node>> {
    let Wanted { dims, element } = wanted;
    if let (Kernel::Reduce(op, over), [x]) = (&kernel, inputs) {
        return reduce::reduce(x, *op, over, wanted);
    }
    if dims.contains(&0) {
        return Ok(Node::constant(0.0, dims, element));
    }
    Ok(match (kernel, inputs) {
        (Kernel::Affine { mul, add }, [x]) => elementwise::affine(x, mul, add),
        (Kernel::Powf(exponent), [x]) => elementwise::powf(x, exponent)?,
        (Kernel::Elu { alpha }, [x]) => elementwise::elu(x, alpha)?,
        (Kernel::Cmp(comparison), [x, y]) => x.compare(compare(comparison), y).convert(element),
        (Kernel::ToDType, [x]) => elementwise::cast(x, element),
        (Kernel::Unary(name), [x]) => elementwise::unary(x, name)?,
        (Kernel::Binary(name), [x, y]) => elementwise::binary(x, y, name)?,
        (Kernel::WhereCond, [condition, yes, no]) => {
            condition.compare(Compare::NotEqual, &condition.like(0.0)).select(yes, no)
        }
        (Kernel::Matmul, [x, y]) => {
            let batches = dims.len().saturating_sub(2);
            Node::new(Op::Dot { batches }, vec![factor(x), factor(y)], dims, element)
        }
        (Kernel::Conv { spatial, stride, padding, dilation }, [x, kernel]) => {
            space::convolution(&factor(x), &factor(kernel), space::Steps { spatial, stride, padding, dilation }, wanted)
        }
        (Kernel::ConvTranspose { spatial, stride, padding, output_padding, dilation }, [x, kernel]) => {
            let steps = space::Steps { spatial, stride, padding, dilation };
            space::transposed(&factor(x), &factor(kernel), steps, output_padding, wanted)
        }
        (Kernel::AvgPool2d { kernel, stride }, [x]) => pool::average(x, kernel, stride, wanted)?,
        (Kernel::MaxPool2d { kernel, stride }, [x]) => pool::greatest(x, kernel, stride, wanted),
        (Kernel::UpsampleNearest(_) | Kernel::UpsampleBilinear2d { .. }, [x]) if x.count() == 0 => {
            bail!("an image without elements, of shape {:?}, cannot be made greater", x.dims)
        }
        (Kernel::UpsampleNearest(sizes), [x]) => upsample::nearest(x, &sizes),
        (Kernel::UpsampleBilinear2d { size, align_corners, scale }, [x]) => {
            upsample::bilinear(x, size, align_corners, scale)
        }
        (Kernel::IndexSelect { dim }, [x, indices]) => index::select(x, indices, dim)?,
        (Kernel::IndexAdd { dim }, [old, indices, source]) => index::add(old, indices, source, dim)?,
        (Kernel::Gather { dim }, [x, indices]) => index::gather(x, indices, dim)?,
        (Kernel::Scatter { dim }, [old, indices, source]) => index::scatter(old, indices, source, dim)?,
        (Kernel::ScatterAdd { dim }, [old, indices, source]) => index::scatter_add(old, indices, source, dim)?,
        (Kernel::Uniform { low, high }, []) => draw::uniform(keys, low, high, wanted)?,
        (Kernel::Normal { mean, deviation }, []) => draw::normal(keys, mean, deviation, wanted)?,
        (Kernel::Zeros, []) => Node::constant(0.0, dims, element),
        (Kernel::Uninit, []) => Node::new(Op::Uninit, Vec::new(), dims, element),
        (kernel, inputs) => bail!("{kernel:?} of {} inputs has no lowering to XLA", inputs.len()),
    })
}

fn compare(comparison: CmpOp) -> Compare {
    match comparison {
        CmpOp::Eq => Compare::Equal,
        CmpOp::Ne => Compare::NotEqual,
        CmpOp::Le => Compare::LessOrEqual,
        CmpOp::Ge => Compare::GreaterOrEqual,
        CmpOp::Lt => Compare::Less,
        CmpOp::Gt => Compare::Greater,
    }
}

/// The error for a function that has no lowering for this element type.
fn no_lowering<T>(name: &str, element: Element) -> Result<T> {
    let dtype = element::to_dtype(element)?;
    bail!(
        "{name} of {} elements has no lowering to XLA; convert them with to_dtype, or compute it on the CPU with to_device",
        dtype.as_str()
    )
}

/// Computes in `f32` for 16-bit floats, and in the array's own type for all other types.
fn widened(x: &Arc<Node>, compute: impl FnOnce(&Arc<Node>) -> Arc<Node>) -> Arc<Node> {
    match element::is_short_float(x.element) {
        true => compute(&x.convert(Element::F32)).convert(x.element),
        false => compute(x),
    }
}
