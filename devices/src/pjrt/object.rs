//! An object of a plugin's that is ours to free, and what is commonly asked of one.
#![expect(unsafe_code, reason = "calls the plugin")]

use super::abi::{Arguments, Function, Integer, List, Number, One, Other, Pointer, Text};
use super::error::PjrtError;
use super::plugin::Api;

/// Freed with `destroy` when dropped.
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
    /// Takes charge of what a function has made.
    pub(super) fn new(api: Api, pointer: Pointer, destroy: Function) -> Result<Object, PjrtError> {
        if pointer.is_null() {
            let what = format!("the plugin made nothing for PJRT_{destroy:?} to free, and reported no error");
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
            // What another process has opened is that process' to free.
            && !matches!(error, PjrtError::Forked(_))
        {
            // Nobody can act on it: the object is as good as gone, and the process goes on.
            eprintln!("ferrotune: {error}");
        }
    }
}

/// An object that is alive, whoever frees it.
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

/// # Safety
/// `items` is null, or has `length` elements that live for `'a`.
pub(super) unsafe fn slice_of<'a, T>(items: *const T, length: usize) -> &'a [T] {
    if items.is_null() || length == 0 {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(items, length) }
}

/// # Safety
/// `bytes` is null, or has `length` bytes.
pub(super) unsafe fn text_of(bytes: *const u8, length: usize) -> String {
    // SAFETY: the caller's promise.
    String::from_utf8_lossy(unsafe { slice_of(bytes, length) }).into_owned()
}
