//! Upsampling of images by nearest and bilinear interpolation. The indices of the source elements depend only on the sizes.

use crate::element::{is_float, is_short_float};
use crate::graph::{Array as _, Binary, Node, Op};
use crate::lower::elementwise::cast;
use ferrotune_devices::pjrt::Element;
use std::sync::Arc;

/// Upsamples the dimensions after the first two to these sizes, by the nearest element.
pub(super) fn nearest(x: &Arc<Node>, sizes: &[usize]) -> Arc<Node> {
    sizes.iter().enumerate().fold(x.clone(), |x, (place, size)| nearest_along(&x, 2 + place, *size))
}

fn nearest_along(x: &Arc<Node>, dim: usize, size: usize) -> Arc<Node> {
    let from = x.dims[dim];
    if size.is_multiple_of(from) {
        return repeated(x, dim, size / from);
    }
    let scale = from as f64 / size as f64;
    let sources: Vec<usize> = (0..size).map(|place| (place as f64 * scale) as usize).collect();
    taken(x, dim, &sources)
}

/// An array in which each element of a dimension is repeated.
fn repeated(x: &Arc<Node>, dim: usize, times: usize) -> Arc<Node> {
    let mut wide = x.dims.clone();
    wide.insert(dim + 1, times);
    let at: Vec<usize> = (0..x.dims.len()).map(|other| if other > dim { other + 1 } else { other }).collect();
    let mut flat = x.dims.clone();
    flat[dim] *= times;
    x.broadcast(&at, &wide).reshape(&flat)
}

/// The elements at these indices of a dimension; an index behind the end gives the last element.
fn taken(x: &Arc<Node>, dim: usize, places: &[usize]) -> Arc<Node> {
    let last = x.dims[dim] - 1;
    let places = places.iter().map(|place| (*place).min(last) as u64).collect();
    let mut dims = x.dims.clone();
    let indices = Node::table(places, Element::U32);
    dims[dim] = indices.count();
    Node::new(Op::Take(dim), vec![x.clone(), indices], &dims, x.element)
}

/// Upsamples to this height and width by bilinear interpolation. Floats of up to 32 bits are computed in `f32`, all other types in `f64`.
pub(super) fn bilinear(
    x: &Arc<Node>,
    (height, width): (usize, usize),
    align_corners: bool,
    scale: (Option<f64>, Option<f64>),
) -> Arc<Node> {
    if x.dims[2..] == [height, width] {
        return x.clone();
    }
    let is_narrow = x.element == Element::F32 || is_short_float(x.element);
    let wide = x.convert(if is_narrow { Element::F32 } else { Element::F64 });
    let weights = |from: usize, to: usize, scale| Weights::new(from, to, align_corners, scale);
    let rows = weights(x.dims[3], width, scale.1).along(&wide, 3);
    let image = weights(x.dims[2], height, scale.0).along(&rows, 2);
    if is_float(x.element) { image.convert(x.element) } else { cast(&image, x.element) }
}

/// The two source elements next to each new element, and the weight of the second.
struct Weights {
    below: Vec<usize>,
    above: Vec<usize>,
    nearness: Vec<f64>,
}

impl Weights {
    fn new(from: usize, to: usize, align_corners: bool, scale: Option<f64>) -> Weights {
        let step = match (align_corners, scale) {
            (true, _) if to > 1 => (from - 1) as f64 / (to - 1) as f64,
            (true, _) => 0.0,
            (false, Some(scale)) => 1.0 / scale,
            (false, None) => from as f64 / to as f64,
        };
        let source = |place: usize| match align_corners {
            true => step * place as f64,
            false => (step * (place as f64 + 0.5) - 0.5).max(0.0),
        };
        let sources: Vec<f64> = (0..to).map(source).collect();
        let below: Vec<usize> = sources.iter().map(|source| source.floor() as usize).collect();
        let above = below.iter().map(|place| place + 1).collect();
        let nearness = sources.iter().zip(&below).map(|(source, below)| source - *below as f64).collect();
        Weights { below, above, nearness }
    }

    fn along(&self, x: &Arc<Node>, dim: usize) -> Arc<Node> {
        let (below, above) = (taken(x, dim, &self.below), taken(x, dim, &self.above));
        let weighted = |x: &Arc<Node>, weight: fn(&f64) -> f64| {
            let weights = self.nearness.iter().map(|nearness| weight(nearness).to_bits()).collect();
            x.binary(Binary::Multiply, &Node::table(weights, x.element).broadcast(&[dim], &x.dims))
        };
        weighted(&below, |nearness| 1.0 - nearness).binary(Binary::Add, &weighted(&above, |nearness| *nearness))
    }
}
