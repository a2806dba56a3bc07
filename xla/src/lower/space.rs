//! Lowers convolutions.

use super::Wanted;
use crate::graph::{Convolution, Node, Op};
use std::sync::Arc;

/// The stride, padding and dilation of a kernel, which are the same in each spatial dimension.
#[derive(Clone, Copy)]
pub(super) struct Steps {
    pub(super) spatial: usize,
    pub(super) stride: usize,
    pub(super) padding: usize,
    pub(super) dilation: usize,
}

pub(super) fn convolution(x: &Arc<Node>, kernel: &Arc<Node>, steps: Steps, wanted: Wanted<'_>) -> Arc<Node> {
    let padding = steps.padding as i64;
    let convolution = Convolution {
        spatial: steps.spatial,
        stride: steps.stride,
        padding: vec![(padding, padding); steps.spatial],
        input_dilation: 1,
        kernel_dilation: steps.dilation,
        transposed: false,
    };
    let inputs = vec![x.clone(), kernel.clone()];
    Node::new(Op::Convolution(convolution), inputs, wanted.dims, wanted.element)
}

/// A transposed convolution: a convolution of the input, whose elements are `stride` apart, with the reversed kernel.
pub(super) fn transposed(
    x: &Arc<Node>,
    kernel: &Arc<Node>,
    steps: Steps,
    output_padding: usize,
    wanted: Wanted<'_>,
) -> Arc<Node> {
    let Steps { spatial, stride, padding, dilation } = steps;
    let before = |size: &usize| (dilation * size.saturating_sub(1)) as i64 - padding as i64;
    let sides = |size: &usize| (before(size), before(size) + output_padding as i64);
    let convolution = Convolution {
        spatial,
        stride: 1,
        padding: kernel.dims.iter().skip(2).map(sides).collect(),
        input_dilation: stride,
        kernel_dilation: dilation,
        transposed: true,
    };
    let reversed =
        Node::new(Op::Reverse((2..2 + spatial).collect()), vec![kernel.clone()], &kernel.dims, kernel.element);
    Node::new(Op::Convolution(convolution), vec![x.clone(), reversed], wanted.dims, wanted.element)
}
