//! The trace of a step: a record of the step's effects on a device while the step is traced.

use crate::graph::Node;
use crate::value::Value;
use candle_core::external::{self, Input, Slot};
use candle_core::{Result, bail};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{self, ThreadId};

/// The trace of a device; none, or that of the thread that traces a step.
#[derive(Default)]
pub(crate) struct Trace(Mutex<Option<Traced>>);

/// The effects of a step that is traced.
pub(crate) struct Traced {
    thread: ThreadId,
    /// The number from which on nodes were made by the step.
    start: u64,
    /// The storages that existed before the step and that it has changed, with their earlier values.
    pub(crate) changed: Vec<(Arc<Slot>, Arc<Node>)>,
    /// The storages in which nodes from before the step were found, by the numbers of the nodes.
    pub(crate) seen: HashMap<u64, Weak<Slot>>,
    /// The number of keys for random numbers that the step has requested.
    pub(crate) keys: u64,
}

impl Trace {
    /// Begins to trace on this thread. The nodes that the step makes have the number `start` or a greater one.
    pub(crate) fn begin(&self, start: u64) -> Result<Running<'_>> {
        let mut running = self.lock();
        if running.is_some() {
            bail!("another thread traces a step of this device; run steps of one device one after the other");
        }
        let (changed, seen) = (Vec::new(), HashMap::new());
        *running = Some(Traced { thread: thread::current().id(), start, changed, seen, keys: 0 });
        Ok(Running(self))
    }

    /// Whether this thread traces a step.
    pub(crate) fn is_running(&self) -> bool {
        self.lock().as_ref().is_some_and(Traced::is_own)
    }

    /// Counts a key; returns the number of keys that the step of this thread has requested before it.
    pub(crate) fn next_key(&self) -> Option<u64> {
        let mut running = self.lock();
        let traced = running.as_mut().filter(|traced| traced.is_own())?;
        traced.keys += 1;
        Some(traced.keys - 1)
    }

    /// Whether the step that this thread traces has given a variable another value.
    pub(crate) fn has_changes(&self) -> bool {
        self.lock().as_ref().is_some_and(|traced| traced.is_own() && !traced.changed.is_empty())
    }

    /// Records that the step uses these storages.
    pub(crate) fn saw(&self, inputs: &[Input<'_>]) -> Result<()> {
        let mut running = self.lock();
        let Some(traced) = running.as_mut().filter(|traced| traced.is_own()) else { return Ok(()) };
        for Input { storage, .. } in inputs {
            let node = Value::node_in(storage.slot())?;
            if node.id < traced.start {
                traced.seen.entry(node.id).or_insert_with(|| Arc::downgrade(storage.slot()));
            }
        }
        Ok(())
    }

    /// Fails if a step reads a value: a value that it computes does not exist yet, and one from outside would be the same in each run.
    pub(crate) fn refuse_read(&self, node: &Arc<Node>) -> Result<()> {
        let running = self.lock();
        let Some(traced) = running.as_ref().filter(|traced| traced.is_own()) else { return Ok(()) };
        if node.id >= traced.start {
            bail!(
                "a compiled step reads a value that it computes, which is not there while the step is traced; choose with \
                 `where_cond`, or return the tensor from the step and read it there"
            );
        }
        bail!(
            "a compiled step reads a value from outside, and would use that of its first call for ever; compute with the \
             tensor, or make the number an argument"
        )
    }

    /// Records that a storage no longer refers to the value `before`. Returns whether a step has changed it.
    pub(crate) fn assigned(&self, slot: &Arc<Slot>, before: &external::Value) -> bool {
        let mut running = self.lock();
        let Some(traced) = running.as_mut().filter(|traced| traced.is_own()) else { return false };
        let Ok(before) = Value::of(before).map(Value::node) else { return false };
        // A storage that the step itself has made is no variable.
        if before.id < traced.start && !traced.changed.iter().any(|(other, _)| Arc::ptr_eq(other, slot)) {
            traced.changed.push((slot.clone(), before));
        }
        true
    }

    /// Fails if an operation is called that a step must not call.
    pub(crate) fn refuse(&self, what: &str) -> Result<()> {
        if self.is_running() {
            bail!("`{what}` is called in a compiled step while it is traced; call it after the step");
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Option<Traced>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A trace in progress, which ends on drop, even by a panic of the step.
pub(crate) struct Running<'a>(&'a Trace);

impl Running<'_> {
    /// Ends the trace, and gives the variables their old values. Returns the effects of the step and the new values of the variables.
    pub(crate) fn end(self) -> Result<(Traced, Vec<Arc<Node>>)> {
        let Some(traced) = self.0.lock().take() else { bail!("the trace of a step has ended before the step") };
        let after = traced.restore()?;
        Ok((traced, after))
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if let Some(traced) = self.0.lock().take() {
            // Only a step that has panicked gets here, and its results are not used.
            let _ = traced.restore();
        }
    }
}

impl Traced {
    fn is_own(&self) -> bool {
        self.thread == thread::current().id()
    }

    /// Gives every variable the value that it had before the step was traced. Returns the values that the step has given them.
    fn restore(&self) -> Result<Vec<Arc<Node>>> {
        let restored = |(slot, before): &(Arc<Slot>, Arc<Node>)| slot.replace(Arc::new(Value::Node(before.clone())));
        let after: Vec<external::Value> = self.changed.iter().map(restored).collect();
        after.iter().map(|value| Ok(Value::of(value)?.node())).collect()
    }

    /// The nodes from before the step that the step uses, as their storages refer to them now.
    pub(crate) fn used(&self) -> Result<Vec<Arc<Node>>> {
        let changed = self.changed.iter().map(|(_, before)| Ok(before.clone()));
        let seen = self.seen.values().filter_map(Weak::upgrade).map(|slot| Value::node_in(&slot));
        changed.chain(seen).collect()
    }
}
