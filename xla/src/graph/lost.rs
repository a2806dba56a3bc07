//! Which values can never be computed.

use super::{Node, Op};
use ferrotune_devices::runtime::Buffer;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

/// The numbers of those of these nodes, and of the nodes on the way to them, that need a value which exists no more: its device process
/// has ended, or a step that failed has taken it.
pub(crate) fn lost(nodes: &[Arc<Node>]) -> HashSet<u64> {
    let (mut found, mut unseen) = (BTreeMap::new(), nodes.to_vec());
    while let Some(node) = unseen.pop() {
        found.entry(node.id).or_insert_with(|| {
            if node.value().is_none() {
                unseen.extend(node.inputs());
            }
            node
        });
    }
    let mut lost = HashSet::new();
    // A node has a greater number than its inputs.
    for (id, node) in found {
        let is_lost = match node.value() {
            Some(buffers) => buffers.iter().any(Buffer::is_lost),
            None => node.op == Op::Data || node.inputs().iter().any(|input| lost.contains(&input.id)),
        };
        if is_lost {
            lost.insert(id);
        }
    }
    lost
}
