//! The profiler of a plugin, which is an optional extension of its table: `xla/pjrt/c/pjrt_c_api_profiler_extension.h` and
//! `xla/backends/profiler/plugin/profiler_c_api.h` in OpenXLA. Unlike PJRT's own structures, these have exactly their size.
#![expect(unsafe_code, reason = "calls the plugin")]

use super::abi::Pointer;
use super::api::{slice_of, text_of};
use super::error::{Code, PjrtError};
use super::plugin::Plugin;
use crate::fork;
use std::ffi::c_int;
use std::ptr::{null, null_mut};

/// An element of the list of extensions, which begins at the table of a plugin.
#[repr(C)]
struct Extension {
    size: usize,
    kind: c_int,
    next: *const Extension,
}

/// The type number of the profiler extension.
const PROFILER: c_int = 1;

#[repr(C)]
struct ProfilerExtension {
    head: Extension,
    /// The profiler's table; none where the extension only gives identifiers for traces.
    table: Option<&'static Table>,
}

/// A function that takes a pointer to its structure, and returns an error or null.
type Entry<T> = Option<unsafe extern "C" fn(*mut T) -> Pointer>;

#[repr(C)]
struct Table {
    size: usize,
    private: Pointer,
    error_destroy: Option<unsafe extern "C" fn(*mut ErrorDestroy)>,
    error_message: Option<unsafe extern "C" fn(*mut ErrorMessage)>,
    error_code: Entry<ErrorCode>,
    create: Entry<Create>,
    destroy: Entry<One>,
    start: Entry<One>,
    stop: Entry<One>,
    collect: Entry<Collect>,
}

#[repr(C)]
struct ErrorDestroy {
    size: usize,
    private: Pointer,
    error: Pointer,
}

#[repr(C)]
struct ErrorMessage {
    size: usize,
    private: Pointer,
    error: Pointer,
    text: *const u8,
    length: usize,
}

#[repr(C)]
struct ErrorCode {
    size: usize,
    private: Pointer,
    error: Pointer,
    code: c_int,
}

#[repr(C)]
struct Create {
    size: usize,
    options: *const u8,
    length: usize,
    profiler: Pointer,
}

#[repr(C)]
struct One {
    size: usize,
    profiler: Pointer,
}

#[repr(C)]
struct Collect {
    size: usize,
    profiler: Pointer,
    buffer: *mut u8,
    length: usize,
}

/// The message `tensorflow.ProfileOptions` (`tsl/profiler/protobuf/profiler_options.proto`) with the values that JAX and TensorFlow
/// set: field numbers, and the values of the fields.
const OPTIONS: [u8; 10] = [
    1 << 3,
    1, // include_dataset_ops
    2 << 3,
    2, // host_tracer_level: info
    3 << 3,
    1, // device_tracer_level: on
    5 << 3,
    1, // version: fields that are not here are off
    7 << 3,
    1, // enable_hlo_proto
];

/// A plugin's profiler, which records until it is dropped.
///
/// ```no_run
/// use ferrotune_devices::pjrt::Plugin;
///
/// let plugin = Plugin::load("/opt/libtpu.so".as_ref())?;
/// let profiler = plugin.profile()?;
/// // … programs run …
/// std::fs::write("host.xplane.pb", profiler.finish()?)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Profiler {
    table: &'static Table,
    pointer: Pointer,
}

// SAFETY: a profiler may be stopped and freed by another thread than the one that has made it.
unsafe impl Send for Profiler {}

impl std::fmt::Debug for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Table").field("size", &self.size).finish_non_exhaustive()
    }
}

impl Plugin {
    /// Begins to record the activity of the plugin's devices.
    ///
    /// # Errors
    /// If the plugin has no profiler, and the errors of the plugin, for example if a profiler is running already.
    pub fn profile(self) -> Result<Profiler, PjrtError> {
        fork::check()?;
        let table = profiler_of(self.api.extensions().cast()).ok_or(PjrtError::NoProfiler)?;
        let mut create = Create {
            size: size_of::<Create>(),
            options: OPTIONS.as_ptr(),
            length: OPTIONS.len(),
            profiler: null_mut(),
        };
        table.call("Create", table.create, &mut create)?;
        if create.profiler.is_null() {
            return Err(PjrtError::NoProfiler);
        }
        let profiler = Profiler { table, pointer: create.profiler };
        profiler.call("Start", table.start)?;
        Ok(profiler)
    }
}

/// The profiler's table, in the list of extensions.
fn profiler_of(mut extension: *const Extension) -> Option<&'static Table> {
    // SAFETY: extensions are static in the plugin, which stays loaded, and the last extension has a null pointer as its next one.
    while let Some(head) = unsafe { extension.as_ref() } {
        if head.kind == PROFILER && head.size >= size_of::<ProfilerExtension>() {
            // SAFETY: by its kind and size, the extension is a profiler's and long enough.
            let profiler = unsafe { &*extension.cast::<ProfilerExtension>() };
            return profiler.table.filter(|table| table.size >= size_of::<Table>());
        }
        extension = head.next;
    }
    None
}

impl Profiler {
    /// Stops recording, and returns the profile: a message `tensorflow.profiler.XSpace` (`tsl/profiler/protobuf/xplane.proto`), which
    /// TensorBoard's profile plugin reads from files that end in `.xplane.pb`.
    ///
    /// # Errors
    /// The errors of the plugin.
    pub fn finish(self) -> Result<Vec<u8>, PjrtError> {
        fork::check()?;
        self.call("Stop", self.table.stop)?;
        let mut collect = Collect { size: size_of::<Collect>(), profiler: self.pointer, buffer: null_mut(), length: 0 };
        self.table.call("CollectData", self.table.collect, &mut collect)?;
        if !collect.buffer.is_null() {
            // SAFETY: the plugin gives a buffer of its own, of this length, that lives as long as the profiler.
            let bytes = unsafe { slice_of(collect.buffer, collect.length) };
            return Ok(bytes[..end_of_message(bytes)].to_vec());
        }
        // Other plugins report only the length, and fill a buffer of the caller in a second call.
        let mut bytes = vec![0; collect.length];
        if !bytes.is_empty() {
            collect.buffer = bytes.as_mut_ptr();
            self.table.call("CollectData", self.table.collect, &mut collect)?;
        }
        Ok(bytes)
    }

    fn call(&self, name: &str, entry: Entry<One>) -> Result<(), PjrtError> {
        self.table.call(name, entry, &mut One { size: size_of::<One>(), profiler: self.pointer })
    }
}

/// The length of the message in libtpu's buffer, which has one more byte, 0. No field of a message has the number 0
/// (<https://protobuf.dev/programming-guides/encoding/>), and all fields of an `XSpace` have a length.
fn end_of_message(bytes: &[u8]) -> usize {
    let mut at = 0;
    while bytes.get(at).is_some_and(|tag| *tag != 0) {
        let Some((length, begin)) = varint(bytes, at + 1) else { return bytes.len() };
        let Some(end) = begin.checked_add(length).filter(|end| *end <= bytes.len()) else { return bytes.len() };
        at = end;
    }
    at
}

/// The varint at an offset, in groups of 7 bits with the lowest first, and the offset behind it.
fn varint(bytes: &[u8], from: usize) -> Option<(usize, usize)> {
    let mut number = 0;
    for (index, byte) in bytes.get(from..)?.iter().take(9).enumerate() {
        number |= usize::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            return Some((number, from + index + 1));
        }
    }
    None
}

impl Drop for Profiler {
    fn drop(&mut self) {
        if fork::check().is_err() {
            return; // a profiler that another process has made is freed by that process
        }
        if let Err(error) = self.call("Destroy", self.table.destroy) {
            // The error needs no handling: the profiler is not used again.
            eprintln!("ferrotune: {error}");
        }
    }
}

impl Table {
    fn call<T>(&self, name: &str, entry: Entry<T>, arguments: &mut T) -> Result<(), PjrtError> {
        let entry = entry.ok_or(PjrtError::NoProfiler)?;
        // SAFETY: the callers give the structure that the function takes, whose pointers live until it returns.
        let error = unsafe { entry(arguments) };
        if error.is_null() { Ok(()) } else { Err(self.take_error(name, error)) }
    }

    /// Reads the text and code of an error, and frees it.
    fn take_error(&self, name: &str, error: Pointer) -> PjrtError {
        let private = null_mut();
        let mut message = ErrorMessage { size: size_of::<ErrorMessage>(), private, error, text: null(), length: 0 };
        let mut code = ErrorCode { size: size_of::<ErrorCode>(), private, error, code: 0 };
        // SAFETY: the functions take these structures, the error is alive until the last one, and its text is copied before.
        let text = unsafe {
            if let Some(get) = self.error_message {
                get(&raw mut message);
            }
            if let Some(get) = self.error_code {
                get(&raw mut code);
            }
            let text = text_of(message.text, message.length);
            if let Some(destroy) = self.error_destroy {
                destroy(&mut ErrorDestroy { size: size_of::<ErrorDestroy>(), private, error });
            }
            text
        };
        PjrtError::Refused { function: format!("PLUGIN_Profiler_{name}"), code: Code(code.code), message: text }
    }
}

#[cfg(test)]
mod tests {
    use super::end_of_message;

    #[test]
    fn a_byte_behind_the_message_is_not_part_of_it() {
        let long = [&[1 << 3 | 2, 0x80, 0x02][..], &[0; 256]].concat();
        for message in [&[][..], &[1 << 3 | 2, 2, 7, 0], &[1 << 3 | 2, 0, 4 << 3 | 2, 1, 0], &long] {
            assert_eq!(end_of_message(message), message.len());
            assert_eq!(end_of_message(&[message, &[0]].concat()), message.len());
        }
        // Bytes that are no message are returned whole.
        assert_eq!(end_of_message(&[1 << 3 | 2, 9, 7]), 3);
    }
}
