//! Which values follow from others without computation.

use super::{Node, Op};
use std::sync::Arc;

impl Op {
    /// Whether the value is part of each program that uses it: numbers, or nothing.
    pub(crate) fn is_literal(&self) -> bool {
        matches!(self, Op::Number | Op::Uninit | Op::Constant(_) | Op::Table(_) | Op::Iota(_))
    }

    /// Whether the value has the elements of its input in their order.
    pub(crate) fn is_view(&self) -> bool {
        matches!(self, Op::Reshape | Op::Broadcast(_))
    }
}

/// Whether a value follows from numbers, or from another value that was computed, without computation.
pub(crate) fn follows(node: &Arc<Node>) -> bool {
    let mut node = node.clone();
    while node.op.is_view() && node.value().is_none() {
        let Some(input) = node.inputs().first().cloned() else { break };
        node = input;
    }
    node.value().is_some() || node.op.is_literal()
}
