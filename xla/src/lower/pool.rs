//! Pooling over windows without padding.

use super::{Wanted, widened};
use crate::element::saturated;
use crate::graph::{Array as _, Binary, Node, Op, Reduction, is_float};
use std::sync::Arc;

type Pair = (usize, usize);

/// The mean of each window. As on the CPU, integers are multiplied by a whole number, which is 0 unless a window is one
/// element.
pub(super) fn average(x: &Arc<Node>, size: Pair, stride: Pair, wanted: Wanted<'_>) -> Arc<Node> {
    let mut scale = 1.0 / (size.0 * size.1) as f64;
    if !is_float(x.element) {
        scale = saturated(scale, x.element);
    }
    widened(x, |x| window(x, Reduction::Sum, size, stride, wanted).binary_number(Binary::Multiply, scale))
}

pub(super) fn greatest(x: &Arc<Node>, size: Pair, stride: Pair, wanted: Wanted<'_>) -> Arc<Node> {
    window(x, Reduction::Maximum, size, stride, wanted)
}

fn window(x: &Arc<Node>, reduction: Reduction, size: Pair, stride: Pair, wanted: Wanted<'_>) -> Arc<Node> {
    Node::new(Op::Window { reduction, size, stride }, vec![x.clone()], wanted.dims, x.element)
}
