//! Lowers the operations over all cores of a device, and keeps the sharding of values that kernels change in place.

use super::widened;
use crate::element::is_float;
use crate::graph::{Array as _, Binary, Node, Op};
use crate::value::Value;
use candle_core::external::{Input, Op as Kernel};
use candle_core::{Result, bail};
use std::sync::Arc;

/// The name of the operation that gives each replica its own rows of a batch.
pub(crate) const SHARD: &str = "shard";
/// The name of the operation that averages a tensor over all replicas.
pub(crate) const ALL_REDUCE_MEAN: &str = "all-reduce-mean";
/// The name of the operation that spreads a tensor over a mesh.
pub(crate) const CONSTRAINT: &str = "sharding-constraint";

/// The rows of a batch that belong to this replica.
pub(super) fn rows_of(batch: &Arc<Node>, replicas: usize) -> Result<Arc<Node>> {
    match batch.dims.as_slice() {
        [rows, others @ ..] if rows % replicas == 0 => {
            let dims = [&[rows / replicas], others].concat();
            Ok(Node::new(Op::Shard, vec![batch.clone()], &dims, batch.element))
        }
        dims => {
            bail!("{replicas} replicas cannot share a batch of shape {dims:?}; make its rows a multiple of {replicas}")
        }
    }
}

/// The mean of an array over all replicas.
pub(super) fn mean(tensor: &Arc<Node>, replicas: usize) -> Result<Arc<Node>> {
    if !is_float(tensor.element) {
        bail!(
            "all_reduce_mean takes floating-point numbers and not {:?}; convert them with `to_dtype`",
            tensor.element
        );
    }
    Ok(widened(tensor, |tensor| {
        let sum = Node::new(Op::AllReduce, vec![tensor.clone()], &tensor.dims, tensor.element);
        sum.binary_number(Binary::Divide, replicas as f64)
    }))
}

/// The old value that an in-place operation changes, if it has a sharding, which the new value keeps.
pub(super) fn kept(kernel: &Kernel, inputs: &[Input<'_>]) -> Result<Option<Arc<Node>>> {
    let is_in_place = matches!(
        kernel,
        Kernel::Copy { .. }
            | Kernel::Copy2d { .. }
            | Kernel::Set(_)
            | Kernel::Scatter { .. }
            | Kernel::ScatterAdd { .. }
    );
    let Some(old) = inputs.first().filter(|_| is_in_place) else { return Ok(None) };
    match Value::of(&old.storage.slot().value())? {
        Value::Node(node) if node.sharding.is_some() => Ok(Some(node.clone())),
        _ => Ok(None),
    }
}

/// The new value with the sharding of the old one that it replaces, unless another sharding was set.
pub(super) fn like(old: &Node, new: Value) -> Value {
    let node = new.node();
    match &old.sharding {
        Some(sharding) if node.sharding.is_none() => Value::Node(node.reshape(&old.dims).spread(sharding.clone())),
        _ => new,
    }
}
