//! Objects of a plugin, and the properties that many of them have.
#![expect(unsafe_code, reason = "calls the plugin")]

use super::abi::{Arguments, Function, Integer, List, Number, One, Other, Pointer, Text};
use super::api::{Api, slice_of, text_of};
use super::error::PjrtError;

/// An object of the plugin that this process frees, with `destroy`, when it is dropped.
#[derive(Debug)]
pub(super) struct Object {
    pub(super) api: Api,
    pub(super) pointer: Pointer,
    destroy: Function,
}

// SAFETY: PJRT's objects may be used and freed from any thread, several at a time.
unsafe impl Send for Object {}
// SAFETY: PJRT's objects may be used and freed from any thread, several at a time.
unsafe impl Sync for Object {}

impl Object {
    /// Takes ownership of an object that a function has made.
    pub(super) fn new(api: Api, pointer: Pointer, destroy: Function) -> Result<Object, PjrtError> {
        if pointer.is_null() {
            let what = format!("the plugin returned no object for PJRT_{destroy:?} to free, and reported no error");
            return Err(PjrtError::Mismatch { what });
        }
        Ok(Object { api, pointer, destroy })
    }

    pub(super) fn view(&self) -> View {
        View { api: self.api, pointer: self.pointer }
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        let mut arguments = Arguments::<One>::zeroed();
        arguments.fields.object = self.pointer;
        // SAFETY: functions that free take this structure, and the object is not used again.
        if let Err(error) = unsafe { self.api.call(self.destroy, &mut arguments) }
            // An object that another process has opened is freed by that process.
            && !matches!(error, PjrtError::Forked(_))
        {
            // The error needs no handling: the object is not used again.
            eprintln!("ferrotune: {error}");
        }
    }
}

/// A borrowed object of the plugin, which is alive and which another owner frees.
#[derive(Clone, Copy)]
pub(super) struct View {
    pub(super) api: Api,
    pub(super) pointer: Pointer,
}

impl View {
    /// Calls a function that takes [`Text`], and returns the text.
    pub(super) fn text(self, function: Function) -> Result<String, PjrtError> {
        let mut arguments = Arguments::<Text>::zeroed();
        arguments.fields.object = self.pointer;
        // SAFETY: the function takes this structure, and its text lives as long as the object.
        unsafe {
            self.api.call(function, &mut arguments)?;
            Ok(text_of(arguments.fields.text.cast(), arguments.fields.length))
        }
    }

    /// Calls a function that takes [`Number`], and returns the number.
    pub(super) fn number(self, function: Function) -> Result<usize, PjrtError> {
        let mut arguments = Arguments::<Number>::zeroed();
        arguments.fields.object = self.pointer;
        // SAFETY: the function takes this structure.
        unsafe { self.api.call(function, &mut arguments) }?;
        Ok(arguments.fields.value)
    }

    /// Calls a function that takes [`Integer`], and returns the integer.
    pub(super) fn integer(self, function: Function) -> Result<i32, PjrtError> {
        let mut arguments = Arguments::<Integer>::zeroed();
        arguments.fields.object = self.pointer;
        // SAFETY: the function takes this structure.
        unsafe { self.api.call(function, &mut arguments) }?;
        Ok(arguments.fields.value)
    }

    /// Calls a function that takes [`Other`], and returns the other object.
    pub(super) fn other(self, function: Function) -> Result<Pointer, PjrtError> {
        let mut arguments = Arguments::<Other>::zeroed();
        arguments.fields.object = self.pointer;
        // SAFETY: the function takes this structure.
        unsafe { self.api.call(function, &mut arguments) }?;
        Ok(arguments.fields.other)
    }

    /// Calls a function that takes [`List`], and returns the list.
    pub(super) fn list(self, function: Function) -> Result<Vec<Pointer>, PjrtError> {
        let mut arguments = Arguments::<List>::zeroed();
        arguments.fields.object = self.pointer;
        // SAFETY: the function takes this structure, and its list lives as long as the object.
        unsafe {
            self.api.call(function, &mut arguments)?;
            Ok(slice_of(arguments.fields.items, arguments.fields.length).to_vec())
        }
    }
}
