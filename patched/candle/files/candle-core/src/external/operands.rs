//! Which storages only candle keeps, for `backward`.
//!
//! An operation on a variable keeps its operands, so that their storages live on when the program has dropped its tensors. A backend
//! that computes late asks which values the program may still read.

use super::Slot;
use crate::tensor::Tensor_;
use crate::{Device, Storage, Tensor};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Weak};

/// The operands of an operation on a device that the program provides. While this lives, each of their storages counts its use.
#[derive(Default)]
pub(crate) struct Operands(Vec<(Weak<Slot>, Weak<Tensor_>)>);

impl Operands {
    pub(crate) fn of<'a>(tensors: impl IntoIterator<Item = &'a Tensor>) -> Self {
        let external = tensors.into_iter().filter(|tensor| matches!(tensor.device(), Device::Metal(_)));
        Operands(external.filter_map(used).collect())
    }
}

fn used(tensor: &Tensor) -> Option<(Weak<Slot>, Weak<Tensor_>)> {
    let Storage::Metal(storage) = &*tensor.storage() else { return None };
    let pointer = tensor.downgrade();
    storage.slot().uses().add(&pointer);
    Some((Arc::downgrade(storage.slot()), pointer))
}

impl Clone for Operands {
    /// Counts the uses once more.
    fn clone(&self) -> Self {
        for (slot, tensor) in &self.0 {
            if let Some(slot) = slot.upgrade() {
                slot.uses().add(tensor);
            }
        }
        Operands(self.0.clone())
    }
}

impl Drop for Operands {
    fn drop(&mut self) {
        for (slot, tensor) in self.0.drain(..) {
            if let Some(slot) = slot.upgrade() {
                slot.uses().remove(&tensor);
            }
        }
    }
}

/// The tensors of a storage that operations use, by their addresses, each with the number of uses. A weight has one more in each step.
#[derive(Default)]
pub(super) struct Uses(HashMap<usize, (Weak<Tensor_>, usize)>);

impl Uses {
    fn add(&mut self, tensor: &Weak<Tensor_>) {
        let (_, uses) = self.0.entry(tensor.as_ptr().addr()).or_insert_with(|| (tensor.clone(), 0));
        *uses += 1;
    }

    fn remove(&mut self, tensor: &Weak<Tensor_>) {
        if let Entry::Occupied(mut entry) = self.0.entry(tensor.as_ptr().addr()) {
            entry.get_mut().1 -= 1;
            if entry.get().1 == 0 {
                entry.remove();
            }
        }
    }

    /// How many tensors of the storage nothing but these uses keeps.
    pub(super) fn tensors_kept(&self) -> usize {
        self.0.values().filter(|(tensor, uses)| tensor.strong_count() <= *uses).count()
    }

    /// One of the tensors. It must not be dropped while this is locked: it may be the last pointer, and remove a use.
    pub(super) fn any_tensor(&self) -> Option<Arc<Tensor_>> {
        self.0.values().find_map(|(tensor, _)| tensor.upgrade())
    }
}
