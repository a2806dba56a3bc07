//! PJRT's structures as the plugin sees them: the address of an argument, and offsets from it.

use std::ffi::c_void;

/// A function of the table: takes its structure, gives an error or null.
pub(crate) type Function = unsafe extern "C" fn(Arguments) -> *mut c_void;

pub(crate) const API_MINOR: i32 = 69;
/// As many as version 0.69 has.
pub(crate) const FUNCTION_COUNT: usize = 113;

/// What `GetPjrtApi` gives.
#[repr(C)]
pub(crate) struct Table {
    size: usize,
    extension: usize,
    version_size: usize,
    version_extension: usize,
    major: i32,
    minor: i32,
    functions: [Option<Function>; FUNCTION_COUNT],
}

impl Table {
    pub(crate) fn new(minor: i32, extension: usize, functions: [Option<Function>; FUNCTION_COUNT]) -> Table {
        let (size, version_size) = (size_of::<Table>(), 24);
        Table { size, extension, version_size, version_extension: 0, major: 0, minor, functions }
    }
}

/// The structure that a function takes. Every one begins with its size and an extension, of 8 bytes each.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Arguments(*mut u8);

impl Arguments {
    /// Field number `index` behind the head, where all fields take 8 bytes, as they do but for the neighbours of
    /// 32-bit fields, which are padded.
    pub(crate) fn get<T: Copy>(self, index: usize) -> T {
        // SAFETY: the caller of the plugin gives a structure of the function's own kind, and the callers of this name
        // fields that it has.
        unsafe { self.0.add(16 + 8 * index).cast::<T>().read_unaligned() }
    }

    pub(crate) fn set<T: Copy>(self, index: usize, value: T) {
        // SAFETY: as above; outputs may be written.
        unsafe { self.0.add(16 + 8 * index).cast::<T>().write_unaligned(value) }
    }

    /// A list of `length` elements, by the fields of its address and its length.
    pub(crate) fn list<'a, T>(self, address: usize, length: usize) -> &'a [T] {
        slice(self.get(address), self.get(length))
    }

    /// The object that a field points to.
    pub(crate) fn object<'a, T>(self, index: usize) -> &'a T {
        // SAFETY: the caller of the plugin gives back objects that the plugin made and that are not freed.
        unsafe { &*self.get::<*const T>(index) }
    }

    /// Takes an object back.
    pub(crate) fn free<T>(self, index: usize) {
        let pointer: *mut T = self.get(index);
        if !pointer.is_null() {
            // SAFETY: objects are made by `made`, and freed once.
            drop(unsafe { Box::from_raw(pointer) });
        }
    }

    /// Gives text that lives as long as its object.
    pub(crate) fn set_text(self, index: usize, text: &str) {
        self.set(index, text.as_ptr());
        self.set(index + 1, text.len());
    }
}

/// A list of the caller's.
pub(crate) fn slice<'a, T>(address: *const T, length: usize) -> &'a [T] {
    if length == 0 {
        return &[];
    }
    // SAFETY: the caller of the plugin says how long its lists are.
    unsafe { std::slice::from_raw_parts(address, length) }
}

/// An object that is the caller's to free.
pub(crate) fn made<T>(object: T) -> *mut T {
    Box::into_raw(Box::new(object))
}

/// An option or an attribute: 56 bytes.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct NamedValue {
    pub(crate) size: usize,
    pub(crate) extension: usize,
    pub(crate) name: *const u8,
    pub(crate) name_length: usize,
    pub(crate) kind: i32,
    /// A pointer, an `i64`, or in the lowest bytes an `f32` or a `bool`.
    pub(crate) value: u64,
    pub(crate) length: usize,
}
