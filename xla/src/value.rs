//! The value that a storage of candle refers to.

mod parts;

use crate::graph::{Node, Op};
use candle_core::external;
use candle_core::{Result, bail};
pub(crate) use parts::{Parts, Place};
use std::sync::Arc;

/// The value of a storage, which is a dense array.
pub(crate) enum Value {
    /// An array of the graph.
    Node(Arc<Node>),
    /// An array into which candle copies one part after the other.
    Parts(Parts),
}

impl Value {
    /// The value of this crate in candle's wrapper.
    pub(crate) fn of(value: &external::Value) -> Result<&Value> {
        match value.downcast_ref() {
            Some(value) => Ok(value),
            None => bail!("a value of another device is used on this one; move the tensor with `to_device`"),
        }
    }

    /// The array that a storage refers to.
    pub(crate) fn node_in(slot: &external::Slot) -> Result<Arc<Node>> {
        Ok(Value::of(&slot.value())?.node())
    }

    /// This value, if its node has the number `first` or a greater one; otherwise a copy with a new node. Each storage has its own
    /// node, because a compiled step identifies the storage of an argument by its node.
    pub(crate) fn of_its_own(self, first: u64) -> Value {
        match self {
            Value::Node(node) if node.id < first => {
                Value::Node(Node::new(Op::Reshape, vec![node.clone()], &node.dims, node.element))
            }
            value => value,
        }
    }

    /// Records the storage that refers to this value.
    pub(crate) fn set_storage(&self, slot: &Arc<external::Slot>) {
        match self {
            Value::Node(node) => node.set_storage(slot),
            Value::Parts(parts) => parts.set_storage(slot),
        }
    }

    /// Whether candle has set none, or only parts, of the array's elements.
    pub(crate) fn is_uninit(&self) -> bool {
        match self {
            Value::Node(node) => node.op == Op::Uninit,
            Value::Parts(parts) => parts.is_over_uninit(),
        }
    }

    pub(crate) fn into_node(self) -> Arc<Node> {
        match self {
            Value::Node(node) => node,
            Value::Parts(parts) => parts.node(),
        }
    }

    pub(crate) fn node(&self) -> Arc<Node> {
        match self {
            Value::Node(node) => node.clone(),
            Value::Parts(parts) => parts.node(),
        }
    }

    /// This value with `source` as the part at this place.
    pub(crate) fn with(&self, place: Place, source: &Arc<Node>) -> Value {
        match self {
            Value::Parts(parts) if parts.has_room(place, source) => Value::Parts(parts.with(place.column, source)),
            value => Value::Parts(Parts::new(&value.node(), place, source)),
        }
    }
}
