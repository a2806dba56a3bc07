//! A plugin's table of functions: calls of the functions, and their errors.
#![expect(unsafe_code, reason = "calls the plugin")]

use super::abi::{Arguments, Entry, Function, Header, Integer, One, Pointer, Text, Zeroable};
use super::error::{Code, PjrtError};
use crate::fork;

/// A plugin's table of functions.
#[derive(Clone, Copy)]
pub(super) struct Api {
    header: &'static Header,
}

// SAFETY: the table is constant, and PJRT lets its functions be called from any thread.
unsafe impl Send for Api {}
// SAFETY: the table is constant, and PJRT lets its functions be called from any thread.
unsafe impl Sync for Api {}

impl std::fmt::Debug for Api {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PJRT {}.{}", self.header.major, self.header.minor)
    }
}

impl Api {
    pub(super) fn new(header: &'static Header) -> Api {
        Api { header }
    }

    /// The version of PJRT's interface that the plugin has.
    pub(super) fn version(self) -> (i32, i32) {
        (self.header.major, self.header.minor)
    }

    /// The beginning of the list of extensions; null where there are none.
    pub(super) fn extensions(self) -> Pointer {
        self.header.extension
    }

    fn entry(self, function: Function) -> Result<Entry, PjrtError> {
        let offset = size_of::<Header>() + function as usize * size_of::<Option<Entry>>();
        let entry = if offset + size_of::<Option<Entry>>() <= self.header.size {
            let table: *const Header = self.header;
            // SAFETY: by its size, the table is long enough, and after its head it contains functions or null.
            unsafe { table.byte_add(offset).cast::<Option<Entry>>().read() }
        } else {
            None
        };
        entry.ok_or_else(|| PjrtError::Missing {
            function: name(function),
            major: self.header.major,
            minor: self.header.minor,
        })
    }

    /// Calls a function; returns an error in a process that has forked from one with open devices.
    ///
    /// # Safety
    /// `T` is the structure that the function takes, and its pointers are valid for every use that the function makes of them.
    pub(super) unsafe fn call<T: Zeroable>(
        self,
        function: Function,
        arguments: &mut Arguments<T>,
    ) -> Result<(), PjrtError> {
        // A plugin waits for its threads, which do not exist in a fork.
        fork::check()?;
        let entry = self.entry(function)?;
        // SAFETY: the caller guarantees the structure and its pointers.
        let error = unsafe { entry((&raw mut *arguments).cast()) };
        if error.is_null() { Ok(()) } else { Err(self.take_error(function, error)) }
    }

    /// Reads the text and code of an error, and frees it.
    pub(super) fn take_error(self, function: Function, error: Pointer) -> PjrtError {
        let mut message = Arguments::<Text>::zeroed();
        let mut code = Arguments::<Integer>::zeroed();
        let mut destroy = Arguments::<One>::zeroed();
        (message.fields.object, code.fields.object, destroy.fields.object) = (error, error, error);
        // SAFETY: the three functions take these structures, the error is alive until the last call, and its text
        // is copied before. The calls fail only if a function is absent. Two of the functions return nothing, and the result of the
        // third is not read.
        unsafe {
            if let Ok(get_message) = self.entry(Function::ErrorMessage) {
                get_message((&raw mut message).cast());
            }
            if let Ok(get_code) = self.entry(Function::ErrorGetCode) {
                get_code((&raw mut code).cast());
            }
            let text = text_of(message.fields.text.cast(), message.fields.length);
            if let Ok(destroy_error) = self.entry(Function::ErrorDestroy) {
                destroy_error((&raw mut destroy).cast());
            }
            PjrtError::Refused { function: name(function), code: Code(code.fields.value), message: text }
        }
    }
}

fn name(function: Function) -> String {
    format!("PJRT_{function:?}")
}

/// # Safety
/// `items` is null, or has `length` elements that live for `'a`.
pub(super) unsafe fn slice_of<'a, T>(items: *const T, length: usize) -> &'a [T] {
    if items.is_null() || length == 0 {
        return &[];
    }
    // SAFETY: the caller guarantees the pointer and the length.
    unsafe { std::slice::from_raw_parts(items, length) }
}

/// # Safety
/// `bytes` is null, or has `length` bytes.
pub(super) unsafe fn text_of(bytes: *const u8, length: usize) -> String {
    // SAFETY: the caller guarantees the pointer and the length.
    String::from_utf8_lossy(unsafe { slice_of(bytes, length) }).into_owned()
}
