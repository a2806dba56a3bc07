//! Sums, extremes and their places.

use super::{Wanted, widened};
use crate::graph::{Array as _, Compare, Node, Reduction, is_float};
use candle_core::op::ReduceOp;
use candle_core::{Result, bail};
use ferrotune_devices::pjrt::Element;
use std::sync::Arc;

/// Reduces these dimensions to size 1.
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
        _ => extreme.value(),
    };
    Ok(result.reshape(wanted.dims))
}

fn sum(x: &Arc<Node>, over: &[usize]) -> Arc<Node> {
    if over.is_empty() {
        return x.clone();
    }
    widened(x, |x| x.reduce(Reduction::Sum, over))
}

/// The greatest or least elements along a dimension. As on the CPU, a NaN counts only where it is the first element.
struct Extreme {
    /// The elements, with each NaN replaced by what is never chosen.
    numbers: Arc<Node>,
    /// Where the first element is a NaN, if elements can be.
    starts_with_nan: Option<Arc<Node>>,
    /// Without the dimension.
    best: Arc<Node>,
    dim: usize,
}

impl Extreme {
    fn new(x: &Arc<Node>, dim: usize, is_greatest: bool) -> Extreme {
        let (reduction, never) = match is_greatest {
            true => (Reduction::Maximum, f64::NEG_INFINITY),
            false => (Reduction::Minimum, f64::INFINITY),
        };
        let (mut numbers, mut starts_with_nan) = (x.clone(), None);
        if is_float(x.element) {
            let is_nan = x.compare(Compare::NotEqual, x);
            numbers = is_nan.select(&x.like(never), x);
            let (start, mut end) = (vec![0; x.dims.len()], x.dims.clone());
            end[dim] = 1;
            starts_with_nan = Some(is_nan.slice(&start, &end));
        }
        let best = numbers.reduce(reduction, &[dim]);
        Extreme { numbers, starts_with_nan: starts_with_nan.map(|first| first.reshape(&best.dims)), best, dim }
    }

    fn value(&self) -> Arc<Node> {
        match &self.starts_with_nan {
            Some(is_nan) => is_nan.select(&self.best.like(f64::NAN), &self.best),
            None => self.best.clone(),
        }
    }

    /// The place of the first element that is as great, in `u32`.
    fn place(&self) -> Arc<Node> {
        let dims = &self.numbers.dims;
        let others: Vec<usize> = (0..dims.len()).filter(|other| *other != self.dim).collect();
        let is_best = self.numbers.compare(Compare::Equal, &self.best.broadcast(&others, dims));
        let places = Node::iota(self.dim, dims, Element::U32);
        let first = is_best.select(&places, &places.like(f64::from(u32::MAX))).reduce(Reduction::Minimum, &[self.dim]);
        match &self.starts_with_nan {
            Some(is_nan) => is_nan.select(&first.like(0.0), &first),
            None => first,
        }
    }
}
