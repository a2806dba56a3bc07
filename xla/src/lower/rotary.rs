//! Rotary position embeddings: pairs of elements of each head, rotated by angles that depend on the time.

use crate::graph::{Array as _, Binary, Node, Op};
use candle_core::{Result, bail};
use std::sync::Arc;

/// The order of the four dimensions of an array: batch, heads, time, features, or batch, time, heads, features.
#[derive(Clone, Copy)]
pub(super) enum Heads {
    BeforeTime,
    AfterTime,
}

/// Rotates each element of the first half of the features with the corresponding element of the second half.
pub(super) fn halves(x: &Arc<Node>, cos: &Arc<Node>, sin: &Arc<Node>, heads: Heads) -> Result<Arc<Node>> {
    let angles = Angles::new(x, cos, sin, heads)?;
    let half = angles.dims[3];
    let (mut start, mut end) = (vec![0; 4], x.dims.clone());
    end[3] = half;
    let first = x.slice(&start, &end);
    (start[3], end[3]) = (half, 2 * half);
    let (first, second) = angles.rotated(&first, &x.slice(&start, &end));
    Ok(Node::new(Op::Concatenate(3), vec![first, second], &x.dims, x.element))
}

/// Rotates each element with an even index with the next one.
pub(super) fn pairs(x: &Arc<Node>, cos: &Arc<Node>, sin: &Arc<Node>) -> Result<Arc<Node>> {
    let angles = Angles::new(x, cos, sin, Heads::BeforeTime)?;
    let column = [&angles.dims[..], &[1]].concat();
    let both = [&angles.dims[..], &[2]].concat();
    let paired = x.reshape(&both);
    let (start, mut second) = (vec![0; 5], vec![0; 5]);
    second[4] = 1;
    let half = |start: &[usize], end: &[usize]| paired.slice(start, end).reshape(&angles.dims);
    let (first, second) = angles.rotated(&half(&start, &column), &half(&second, &both));
    let columns = vec![first.reshape(&column), second.reshape(&column)];
    Ok(Node::new(Op::Concatenate(4), columns, &both, x.element).reshape(&x.dims))
}

/// The cosines and sines of the angles of all pairs.
struct Angles {
    cos: Arc<Node>,
    sin: Arc<Node>,
    /// The dimensions of the input with half the features.
    dims: Vec<usize>,
}

impl Angles {
    fn new(x: &Arc<Node>, cos: &Arc<Node>, sin: &Arc<Node>, heads: Heads) -> Result<Angles> {
        let [batch, second, third, features] = x.dims[..] else {
            bail!("a rotary embedding takes four dimensions, not {:?}", x.dims)
        };
        let dims = vec![batch, second, third, features / 2];
        let time = match heads {
            Heads::BeforeTime => 2,
            Heads::AfterTime => 1,
        };
        let spread = |angles: &Arc<Node>| spread(angles, &dims, time);
        match (spread(cos), spread(sin)) {
            (Some(cos), Some(sin)) if features.is_multiple_of(2) => Ok(Angles { cos, sin, dims }),
            _ => bail!("a rotary embedding of {:?} does not fit angles of {:?} and {:?}", x.dims, cos.dims, sin.dims),
        }
    }

    fn rotated(&self, first: &Arc<Node>, second: &Arc<Node>) -> (Arc<Node>, Arc<Node>) {
        let product = |x: &Arc<Node>, y: &Arc<Node>| x.binary(Binary::Multiply, y);
        let turned = product(first, &self.cos).binary(Binary::Subtract, &product(second, &self.sin));
        (turned, product(first, &self.sin).binary(Binary::Add, &product(second, &self.cos)))
    }
}

/// Repeats angles by time and feature, or by batch, time and feature, for all heads; none if their shape does not fit.
fn spread(angles: &Arc<Node>, dims: &[usize], time: usize) -> Option<Arc<Node>> {
    let at: &[usize] = match (angles.dims.len(), time) {
        (2, 1) => &[1, 3],
        (2, _) => &[2, 3],
        (3, 1) => &[0, 1, 3],
        (3, _) => &[0, 2, 3],
        _ => return None,
    };
    // The table of angles may also have later times.
    let needed: Vec<usize> = at.iter().map(|dim| dims[*dim]).collect();
    let is_enough = needed.iter().zip(&angles.dims).all(|(needed, size)| needed <= size);
    is_enough.then(|| angles.slice(&vec![0; needed.len()], &needed).broadcast(at, dims))
}
