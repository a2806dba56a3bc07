//! Lowers candle's custom operations, by name.

use super::cores::{ALL_REDUCE_MEAN, CONSTRAINT, SHARD, mean, rows_of};
use super::{no_lowering, norm, pool, rotary, widened};
use crate::element::{is_float, to_dtype};
use crate::graph::{Array as _, Binary, Node, Op, Reduction, Unary};
use crate::mesh::Sharding;
use crate::value::Value;
use crate::view;
use candle_core::external::Input;
use candle_core::{DType, Result, Shape, bail};
use ferrotune_devices::pjrt::Element;
use std::sync::Arc;

/// The result of a custom operation, with its shape and type. `attributes` are the numbers that define the operation, and `replicas` is
/// the number of the device's replicas.
///
/// # Errors
/// If there is no lowering for an operation of this name with such inputs.
pub(crate) fn custom(
    name: &str,
    attributes: &[f64],
    inputs: &[Input<'_>],
    replicas: usize,
) -> Result<(Value, Shape, DType)> {
    let inputs = inputs.iter().map(view::dense).collect::<Result<Vec<_>>>()?;
    let result = match (name, inputs.as_slice()) {
        (SHARD, [batch]) => rows_of(batch, replicas)?,
        (ALL_REDUCE_MEAN, [x]) => mean(x, replicas)?,
        (CONSTRAINT, [x]) => x.spread(Sharding::of_numbers(attributes)),
        (name, inputs) => lowered(name, attributes, inputs)?,
    };
    let (shape, dtype) = (Shape::from(result.dims.as_slice()), to_dtype(result.element)?);
    Ok((Value::Node(result), shape, dtype))
}

fn lowered(name: &str, attributes: &[f64], inputs: &[Arc<Node>]) -> Result<Arc<Node>> {
    if let Some(x) = inputs.first().filter(|x| x.dims.is_empty() && !matches!(name, "sigmoid" | "softplus" | "pow")) {
        bail!("{name} needs a tensor with dimensions, not a scalar of {:?}", x.element);
    }
    let attribute = || match attributes.first() {
        Some(number) => Ok(*number),
        None => {
            bail!("{name} has no lowering to XLA without the number that defines it; write it with candle's operations")
        }
    };
    match (name, inputs) {
        ("argsort", [x]) => Ok(sorted_places(x, attribute()? != 0.0)),
        ("sigmoid", [x]) => floats(name, x).map(|x| x.unary(Unary::Logistic)),
        ("softplus", [x]) => floats(name, x).map(|x| widened(x, softplus)),
        ("pow", [x, y]) => floats(name, x).map(|x| x.binary(Binary::Power, y)),
        ("cumsum", [x]) => cumsum(x, attributes),
        ("softmax-last-dim", [x]) => floats(name, x).map(|x| widened(x, softmax)),
        ("rms-norm", [x, scale]) => norm::rms(floats(name, x)?, scale, attribute()?),
        ("layer-norm", [x, scale, shift]) => norm::layer(floats(name, x)?, scale, shift, attribute()?),
        ("rotary-emb", [x, cos, sin]) => {
            let heads = if attribute()? == 0.0 { rotary::Heads::BeforeTime } else { rotary::Heads::AfterTime };
            rotary::halves(floats(name, x)?, cos, sin, heads)
        }
        ("max-pool2d-grad", [x, gradient]) => pool::greatest_gradient(floats(name, x)?, gradient, attributes),
        ("avg-pool2d-grad", [x, gradient]) => pool::average_gradient(floats(name, x)?, gradient, attributes),
        ("rotary-emb-int", [x, cos, sin]) => rotary::pairs(floats(name, x)?, cos, sin),
        _ => bail!(
            "{name} has no lowering to XLA; compute it on the CPU with to_device, or write it with candle's operations"
        ),
    }
}

fn floats<'a>(name: &str, x: &'a Arc<Node>) -> Result<&'a Arc<Node>> {
    if is_float(x.element) { Ok(x) } else { no_lowering(name, x.element) }
}

/// The indices that sort the elements along the last dimension. Equal elements keep their order.
fn sorted_places(x: &Arc<Node>, ascending: bool) -> Arc<Node> {
    Node::new(Op::SortPlaces { ascending }, vec![x.clone()], &x.dims, Element::U32)
}

/// The function `log(1 + exp(x))`.
fn softplus(x: &Arc<Node>) -> Arc<Node> {
    let rest = x.unary(Unary::Abs).unary(Unary::Negate).unary(Unary::Exponential).unary(Unary::LogPlusOne);
    x.binary(Binary::Maximum, &x.like(0.0)).binary(Binary::Add, &rest)
}

/// The cumulative sums along a dimension up to each element, or from each element on. They are computed by sums over distances of
/// one, two, four and so on (Hillis and Steele 1986), which take as much memory as the result.
fn cumsum(x: &Arc<Node>, attributes: &[f64]) -> Result<Arc<Node>> {
    let [dim, from_end] = attributes else { bail!("cumsum has two attributes, not {attributes:?}") };
    let (dim, from_end) = (*dim as usize, *from_end != 0.0);
    let Some(size) = x.dims.get(dim).copied() else { bail!("cumsum along dimension {dim} of {:?}", x.dims) };
    let moved = |x: &Arc<Node>, distance: usize| {
        let (mut start, mut end) = (vec![0; x.dims.len()], x.dims.clone());
        let (mut low, mut high) = (vec![0; x.dims.len()], vec![0; x.dims.len()]);
        match from_end {
            false => (end[dim], low[dim]) = (size - distance, distance as i64),
            true => (start[dim], high[dim]) = (distance, distance as i64),
        }
        let zero = Node::constant(0.0, &[], x.element);
        let between = vec![0; x.dims.len()];
        Node::new(Op::Pad { low, high, between }, vec![x.slice(&start, &end), zero], &x.dims, x.element)
    };
    Ok(widened(x, |x| {
        let distances = std::iter::successors(Some(1), |distance| Some(distance * 2)).take_while(|it| *it < size);
        distances.fold(x.clone(), |sums, distance| sums.binary(Binary::Add, &moved(&sums, distance)))
    }))
}

fn softmax(x: &Arc<Node>) -> Arc<Node> {
    let exponential = x.binary(Binary::Subtract, &x.over_last(Reduction::Maximum)).unary(Unary::Exponential);
    exponential.binary(Binary::Divide, &exponential.over_last(Reduction::Sum))
}
