//! Operations on an array, each of which makes one more node.

use super::{Binary, Compare, Node, Op, Reduction, Unary};
use ferrotune_devices::pjrt::Element;
use std::sync::Arc;

/// The operations on an array.
pub(crate) trait Array {
    fn reshape(&self, dims: &[usize]) -> Arc<Node>;
    fn slice(&self, start: &[usize], end: &[usize]) -> Arc<Node>;
    fn transpose(&self, order: &[usize]) -> Arc<Node>;
    /// A broadcast of the array; `at` is the dimension of the result for each dimension of the array.
    fn broadcast(&self, at: &[usize], dims: &[usize]) -> Arc<Node>;
    /// An array with `number` in each element, and the shape and type of this one.
    fn like(&self, number: f64) -> Arc<Node>;
    fn unary(&self, unary: Unary) -> Arc<Node>;
    fn binary(&self, binary: Binary, right: &Arc<Node>) -> Arc<Node>;
    fn binary_number(&self, binary: Binary, right: f64) -> Arc<Node>;
    fn compare(&self, compare: Compare, right: &Arc<Node>) -> Arc<Node>;
    /// A choice with this array as the predicate: `yes` where it holds, `no` elsewhere.
    fn select(&self, yes: &Arc<Node>, no: &Arc<Node>) -> Arc<Node>;
    fn convert(&self, element: Element) -> Arc<Node>;
    /// A reduction that removes these dimensions.
    fn reduce(&self, reduction: Reduction, dims: &[usize]) -> Arc<Node>;
    /// A reduction of the last dimension, repeated along it.
    fn over_last(&self, reduction: Reduction) -> Arc<Node>;
}

impl Array for Arc<Node> {
    fn reshape(&self, dims: &[usize]) -> Arc<Node> {
        if self.dims == dims {
            return self.clone();
        }
        Node::new(Op::Reshape, vec![self.clone()], dims, self.element)
    }

    fn slice(&self, start: &[usize], end: &[usize]) -> Arc<Node> {
        if start.iter().all(|start| *start == 0) && end == self.dims {
            return self.clone();
        }
        let dims: Vec<usize> = start.iter().zip(end).map(|(start, end)| end - start).collect();
        let op = Op::Slice { start: start.to_vec(), end: end.to_vec(), stride: vec![1; start.len()] };
        Node::new(op, vec![self.clone()], &dims, self.element)
    }

    fn transpose(&self, order: &[usize]) -> Arc<Node> {
        if order.is_sorted() {
            return self.clone();
        }
        let dims: Vec<usize> = order.iter().map(|dim| self.dims[*dim]).collect();
        Node::new(Op::Transpose(order.to_vec()), vec![self.clone()], &dims, self.element)
    }

    fn broadcast(&self, at: &[usize], dims: &[usize]) -> Arc<Node> {
        if self.dims == dims {
            return self.clone();
        }
        Node::new(Op::Broadcast(at.to_vec()), vec![self.clone()], dims, self.element)
    }

    fn like(&self, number: f64) -> Arc<Node> {
        Node::constant(number, &self.dims, self.element)
    }

    fn unary(&self, unary: Unary) -> Arc<Node> {
        Node::new(Op::Unary(unary), vec![self.clone()], &self.dims, self.element)
    }

    fn binary(&self, binary: Binary, right: &Arc<Node>) -> Arc<Node> {
        Node::new(Op::Binary(binary), vec![self.clone(), right.clone()], &self.dims, self.element)
    }

    fn binary_number(&self, binary: Binary, right: f64) -> Arc<Node> {
        self.binary(binary, &self.like(right))
    }

    fn compare(&self, compare: Compare, right: &Arc<Node>) -> Arc<Node> {
        Node::new(Op::Compare(compare), vec![self.clone(), right.clone()], &self.dims, Element::Pred)
    }

    fn select(&self, yes: &Arc<Node>, no: &Arc<Node>) -> Arc<Node> {
        Node::new(Op::Select, vec![self.clone(), yes.clone(), no.clone()], &yes.dims, yes.element)
    }

    fn convert(&self, element: Element) -> Arc<Node> {
        if self.element == element {
            return self.clone();
        }
        Node::new(Op::Convert, vec![self.clone()], &self.dims, element)
    }

    fn reduce(&self, reduction: Reduction, over: &[usize]) -> Arc<Node> {
        let kept = (0..self.dims.len()).filter(|dim| !over.contains(dim));
        let dims: Vec<usize> = kept.map(|dim| self.dims[dim]).collect();
        Node::new(Op::Reduce(reduction, over.to_vec()), vec![self.clone()], &dims, self.element)
    }

    fn over_last(&self, reduction: Reduction) -> Arc<Node> {
        let last = self.dims.len() - 1;
        let others: Vec<usize> = (0..last).collect();
        self.reduce(reduction, &[last]).broadcast(&others, &self.dims)
    }
}
