//! Objects of a plugin, and the questions that many of them answer.
#![expect(unsafe_code, reason = "calls the plugin")]

use super::abi::{Arguments, Function, Integer, List, Number, One, Other, Pointer, Text};
use super::api::{Api, slice_of, text_of};
use super::error::PjrtError;

/// An object that this process frees, with `destroy`, when it is dropped.
#[derive(Debug)]
pub(super) struct Object {
    pub(super) api: Api,
    pub(super) pointer: Pointer,
    destroy: Function,
}

// SAFETY: PJRT's objects may be used and freed from any thread, several at a time.
unsafe impl Send for Object {}
// SAFETY: as above.
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
            // Nothing can be done about it: the object is not used again.
            eprintln!("ferrotune: {error}");
        }
    }
}

/// An object that is alive, whichever process frees it.
#[derive(Clone, Copy)]
pub(super) struct View {
    pub(super) api: Api,
    pub(super) pointer: Pointer,
}

impl View {
    /// For functions that take [`Text`].
    pub(super) fn text(self, function: Function) -> Result<String, PjrtError> {
        let mut arguments = Arguments::<Text>::zeroed();
        arguments.fields.object = self.pointer;
        // SAFETY: the function takes this structure, and its text lives as long as the object.
        unsafe {
            self.api.call(function, &mut arguments)?;
            Ok(text_of(arguments.fields.text.cast(), arguments.fields.length))
        }
    }

    /// For functions that take [`Number`].
    pub(super) fn number(self, function: Function) -> Result<usize, PjrtError> {
        let mut arguments = Arguments::<Number>::zeroed();
        arguments.fields.object = self.pointer;
        // SAFETY: the function takes this structure.
        unsafe { self.api.call(function, &mut arguments) }?;
        Ok(arguments.fields.value)
    }

    /// For functions that take [`Integer`].
    pub(super) fn integer(self, function: Function) -> Result<i32, PjrtError> {
        let mut arguments = Arguments::<Integer>::zeroed();
        arguments.fields.object = self.pointer;
        // SAFETY: the function takes this structure.
        unsafe { self.api.call(function, &mut arguments) }?;
        Ok(arguments.fields.value)
    }

    /// For functions that take [`Other`].
    pub(super) fn other(self, function: Function) -> Result<Pointer, PjrtError> {
        let mut arguments = Arguments::<Other>::zeroed();
        arguments.fields.object = self.pointer;
        // SAFETY: the function takes this structure.
        unsafe { self.api.call(function, &mut arguments) }?;
        Ok(arguments.fields.other)
    }

    /// For functions that take [`List`].
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
