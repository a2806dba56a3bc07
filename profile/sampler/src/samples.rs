//! The recorded samples: a tree of the places in which threads have used CPU time, without names.

use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// The greatest number of nodes; CPU time that would need another node counts for the nearest caller.
const MOST_NODES: usize = 100_000;

/// The CPU time of a process, by the stacks of its threads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Samples {
    /// The duration of the recording, in microseconds.
    pub wall_us: u64,
    /// The number of samples.
    pub count: u64,
    /// Paths of the files that contain the sampled code.
    pub modules: Vec<String>,
    /// The nodes of the tree; every node comes after its parent.
    pub nodes: Vec<Node>,
    /// The number of threads that could not be sampled.
    pub threads_missed: u64,
}

/// A node of the tree: a place in which CPU time was used, under one caller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// The caller's index; none for a thread.
    pub parent: Option<u32>,
    /// The place.
    pub place: Place,
    /// The CPU time that was used here and in none of the callees, in microseconds.
    pub own_us: u64,
}

/// The place of a node in the tree.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "place", rename_all = "snake_case")]
pub enum Place {
    /// All threads of one name.
    Thread {
        /// The name.
        name: String,
    },
    /// An instruction in a file's code.
    Code {
        /// Index of the file among [`Samples::modules`].
        module: u32,
        /// The address of the instruction in the file's own numbering.
        address: u64,
    },
    /// Code that belongs to no file, or callers that could not be found.
    Unknown,
}

/// A tree of samples that is being built.
#[derive(Default)]
pub(crate) struct Tree {
    pub(crate) nodes: Vec<Node>,
    children: HashMap<(Option<u32>, Place), u32>,
}

impl Tree {
    /// Adds CPU time to a stack, from its outermost place to its innermost.
    pub(crate) fn add(&mut self, stack: impl IntoIterator<Item = Place>, own_us: u64) {
        let mut at = None;
        for place in stack {
            match self.child(at, place) {
                Some(child) => at = Some(child),
                None => break,
            }
        }
        if let Some(node) = at.and_then(|at| self.nodes.get_mut(at as usize)) {
            node.own_us += own_us;
        }
    }

    fn child(&mut self, parent: Option<u32>, place: Place) -> Option<u32> {
        let key = (parent, place);
        if let Some(child) = self.children.get(&key) {
            return Some(*child);
        }
        let number = u32::try_from(self.nodes.len()).ok().filter(|_| self.nodes.len() < MOST_NODES)?;
        self.nodes.push(Node { parent, place: key.1.clone(), own_us: 0 });
        self.children.insert(key, number);
        Some(number)
    }
}
