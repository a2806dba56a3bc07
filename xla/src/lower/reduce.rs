//! Sums, extremes and the indices of extremes.

use super::{Wanted, widened};
use crate::element::is_float;
use crate::graph::{Array as _, Binary, Compare, Node, Reduction};
use candle_core::op::ReduceOp;
use candle_core::{Result, bail};
use ferrotune_devices::pjrt::Element;
use std::sync::Arc;

/// Reduces these dimensions, and keeps them with size 1.
pub(super) fn reduce(x: &Arc<Node>, op: ReduceOp, over: &[usize], wanted: Wanted<'_>) -> Result<Arc<Node>> {
    let name = match op {
        ReduceOp::Sum => return Ok(sum(x, over).reshape(wanted.dims)),
        ReduceOp::Max => "max",
        ReduceOp::Min => "min",
        ReduceOp::ArgMax => "argmax",
        ReduceOp::ArgMin => "argmin",
    };
    let [dim] = over else { bail!("{name} reduces one dimension at a time, not {over:?}") };
    if wanted.dims.contains(&0) {
        return Ok(Node::constant(0.0, wanted.dims, wanted.element));
    }
    if x.count() == 0 {
        bail!("{name} of a tensor without elements has no value");
    }
    let extreme = Extreme::new(x, *dim, matches!(op, ReduceOp::Max | ReduceOp::ArgMax));
    let result = match op {
        ReduceOp::ArgMax | ReduceOp::ArgMin => extreme.place(),
        _ => extreme.best,
    };
    Ok(result.reshape(wanted.dims))
}

fn sum(x: &Arc<Node>, over: &[usize]) -> Arc<Node> {
    if over.is_empty() {
        return x.clone();
    }
    widened(x, |x| x.reduce(Reduction::Sum, over))
}

/// The greatest or least elements along a dimension; a NaN where there is one.
struct Extreme {
    numbers: Arc<Node>,
    /// The extreme elements, without the reduced dimension.
    best: Arc<Node>,
    dim: usize,
}

impl Extreme {
    fn new(x: &Arc<Node>, dim: usize, is_greatest: bool) -> Extreme {
        let reduction = if is_greatest { Reduction::Maximum } else { Reduction::Minimum };
        Extreme { numbers: x.clone(), best: x.reduce(reduction, &[dim]), dim }
    }

    /// The index of the first extreme element, in `u32`.
    fn place(&self) -> Arc<Node> {
        let (x, dims) = (&self.numbers, &self.numbers.dims);
        let others: Vec<usize> = (0..dims.len()).filter(|other| *other != self.dim).collect();
        let mut is_best = x.compare(Compare::Equal, &self.best.broadcast(&others, dims));
        if is_float(x.element) {
            // A NaN is equal to no element, so the NaNs are also compared with themselves.
            is_best = is_best.binary(Binary::Or, &x.compare(Compare::NotEqual, x));
        }
        let places = Node::iota(self.dim, dims, Element::U32);
        is_best.select(&places, &places.like(f64::from(u32::MAX))).reduce(Reduction::Minimum, &[self.dim])
    }
}
