//! What a storage of candle refers to.

use crate::graph::Node;
use candle_core::external;
use candle_core::{Result, bail};
use std::sync::Arc;

/// The value of a storage: a dense array.
pub(crate) enum Value {
    /// An array of the graph.
    Node(Arc<Node>),
}

impl Value {
    /// The value as this crate has made it.
    pub(crate) fn of(value: &external::Value) -> Result<&Value> {
        match value.downcast_ref() {
            Some(value) => Ok(value),
            None => bail!("a value of another device is used on this one; move the tensor with `to_device`"),
        }
    }

    pub(crate) fn into_node(self) -> Arc<Node> {
        match self {
            Value::Node(node) => node,
        }
    }

    pub(crate) fn node(&self) -> Arc<Node> {
        match self {
            Value::Node(node) => node.clone(),
        }
    }
}
