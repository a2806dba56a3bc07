//! Pooling over windows without padding, and its gradients.

use super::{Wanted, no_lowering, widened};
use crate::element::is_float;
use crate::graph::{Array as _, Binary, Node, Op, Reduction};
use candle_core::{Result, bail};
use std::sync::Arc;

type Pair = (usize, usize);

/// The mean of each window.
pub(super) fn average(x: &Arc<Node>, size: Pair, stride: Pair, wanted: Wanted<'_>) -> Result<Arc<Node>> {
    if !is_float(x.element) {
        return no_lowering("avg_pool2d", x.element);
    }
    let scale = 1.0 / (size.0 * size.1) as f64;
    Ok(widened(x, |x| window(x, Reduction::Sum, size, stride, wanted).binary_number(Binary::Multiply, scale)))
}

pub(super) fn greatest(x: &Arc<Node>, size: Pair, stride: Pair, wanted: Wanted<'_>) -> Arc<Node> {
    window(x, Reduction::Maximum, size, stride, wanted)
}

fn window(x: &Arc<Node>, reduction: Reduction, size: Pair, stride: Pair, wanted: Wanted<'_>) -> Arc<Node> {
    Node::new(Op::Window { reduction, size, stride }, vec![x.clone()], wanted.dims, x.element)
}

/// The gradient of a maximum, which goes to the first greatest element of each window, in row order.
pub(super) fn greatest_gradient(x: &Arc<Node>, gradient: &Arc<Node>, attributes: &[f64]) -> Result<Arc<Node>> {
    let (size, stride) = windows(x, gradient, attributes)?;
    let inputs = vec![x.clone(), gradient.clone()];
    Ok(Node::new(Op::SelectAndScatter { size, stride }, inputs, &x.dims, x.element))
}

/// The gradient of a mean, which goes to all elements of its window in equal parts: each element gets the sum over the windows that
/// contain it.
pub(super) fn average_gradient(x: &Arc<Node>, gradient: &Arc<Node>, attributes: &[f64]) -> Result<Arc<Node>> {
    let (size, stride) = windows(x, gradient, attributes)?;
    let part = gradient.binary_number(Binary::Multiply, 1.0 / (size.0 * size.1) as f64);
    let spread = |dim: usize, stride: usize| ((gradient.dims[dim] - 1) * stride + 1) as i64;
    let low = vec![0, 0, size.0 as i64 - 1, size.1 as i64 - 1];
    let high = vec![0, 0, x.dims[2] as i64 - spread(2, stride.0), x.dims[3] as i64 - spread(3, stride.1)];
    let dims: Vec<usize> = x.dims.iter().zip(&low).map(|(size, low)| size + *low as usize).collect();
    let between = vec![0, 0, stride.0 - 1, stride.1 - 1];
    let zero = Node::constant(0.0, &[], x.element);
    let padded = Node::new(Op::Pad { low, high, between }, vec![part, zero], &dims, x.element);
    Ok(window(&padded, Reduction::Sum, size, (1, 1), Wanted { dims: &x.dims, element: x.element }))
}

/// The size and stride of the windows, from the attributes of a gradient.
fn windows(x: &Arc<Node>, gradient: &Arc<Node>, attributes: &[f64]) -> Result<(Pair, Pair)> {
    let numbers: Vec<usize> = attributes.iter().map(|number| *number as usize).collect();
    let ([height, width, down, right], [_, _, rows, columns], [.., x_rows, x_columns]) =
        (numbers.as_slice(), gradient.dims.as_slice(), x.dims.as_slice())
    else {
        bail!("the gradient of a pooling has four attributes and four dimensions, not {attributes:?} and {:?}", x.dims)
    };
    let fits = |count: usize, size: usize, stride: usize, of: usize| {
        count > 0 && size > 0 && stride > 0 && (count - 1) * stride + size <= of
    };
    if !fits(*rows, *height, *down, *x_rows) || !fits(*columns, *width, *right, *x_columns) {
        bail!("the gradient {:?} of a pooling by {numbers:?} does not fit {:?}", gradient.dims, x.dims);
    }
    Ok(((*height, *width), (*down, *right)))
}
