//! A value that stays at one address, also while variables of a notebook borrow from it. A `Box` may not be moved while something
//! borrows from its content; this pointer may.

#![expect(unsafe_code, reason = "variables that borrow from a value are types without the value's lifetime")]

use std::any::{Any, TypeId};
use std::mem;
use std::ptr::NonNull;

/// The owner of a value of any type, at one address.
#[derive(Debug)]
pub(super) struct Pinned {
    value: NonNull<dyn Any>,
    /// The type, which is known without a look at the value: a look ends what borrows from the value alone.
    type_id: TypeId,
}

impl Pinned {
    pub(super) fn new<T: 'static>(value: T) -> Self {
        let value: Box<dyn Any> = Box::new(value);
        Self { type_id: TypeId::of::<T>(), value: NonNull::from(Box::leak(value)) }
    }

    pub(super) fn type_id(&self) -> TypeId {
        self.type_id
    }

    /// The address of the value, if it has this type.
    pub(super) fn address<T: 'static>(&self) -> Option<NonNull<T>> {
        (self.type_id == TypeId::of::<T>()).then(|| self.value.cast())
    }

    /// The value, from which nothing may borrow any more.
    pub(super) fn into_box(self) -> Box<dyn Any> {
        let value = self.value;
        mem::forget(self);
        // SAFETY: the pointer is from a box, and this owner of it is forgotten.
        unsafe { Box::from_raw(value.as_ptr()) }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // SAFETY: the pointer is from a box, and no other owner of it is left.
        drop(unsafe { Box::from_raw(self.value.as_ptr()) });
    }
}

/// The address of the value within a pinned `Option`, if there is one of this type. Nothing may have borrowed it for itself alone.
pub(super) fn content<T: 'static>(pinned: &Pinned) -> Option<NonNull<T>> {
    let option = pinned.address::<Option<T>>()?;
    // SAFETY: the address is of such an option, which others may only read at the same time.
    let content: *const T = unsafe { option.as_ref() }.as_ref()?;
    let offset = content.addr() - option.addr().get();
    // A pointer that is made of the reference could not write.
    // SAFETY: the content is within the option.
    Some(unsafe { option.byte_add(offset) }.cast())
}

/// A clone of the value at an address.
pub(super) fn copied<T: Clone>(address: NonNull<T>) -> T {
    // SAFETY: the store holds the value, and lends no such value.
    unsafe { address.as_ref().clone() }
}
