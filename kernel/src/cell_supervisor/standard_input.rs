//! A cell that reads its standard input asks the user for a line.
//!
//! Rust's standard library, which the cells share, reads with the C library's `read`. This program exports its own `read`, which
//! the loader finds first. For programs that a cell starts, and for libraries that read in another way, the standard input is
//! empty.
#![expect(unsafe_code, reason = "takes the place of a function of the system library")]

use super::dead_ends::{Identity, identity};
use libc::{c_int, c_void, size_t, ssize_t};
use std::os::fd::BorrowedFd;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// A callback that receives the bytes of a line.
pub(super) type Take = extern "C" fn(*mut c_void, *const u8, usize);

/// Asks the user for a line and passes it to the callback, with the pointer. Returns 0, the number of an error, or [`END`].
pub(super) type ReadLine = extern "C" fn(Take, *mut c_void) -> c_int;

/// The result that means that the user has ended the input.
const END: c_int = -1;

/// The standard input of the cells; not set in other processes.
static STANDARD_INPUT: OnceLock<StandardInput> = OnceLock::new();

struct StandardInput {
    /// The file to which descriptor 0 refers, unless a cell has replaced the descriptor.
    nothing: Identity,
    read_line: ReadLine,
    /// The unread rest of the last line; none once a question has failed in the running cell.
    rest: Mutex<Option<Vec<u8>>>,
}

/// Makes each later read of descriptor 0 ask for a line, as long as the descriptor refers to the file `nothing`.
pub(super) fn ask_with(read_line: ReadLine, nothing: Identity) {
    STANDARD_INPUT.get_or_init(|| StandardInput { nothing, read_line, rest: Mutex::new(Some(Vec::new())) });
}

/// Drops, at the start of a cell, input that the user has typed for an earlier cell and that no cell has read.
pub(super) fn begin_cell() {
    if let Some(input) = STANDARD_INPUT.get() {
        *input.rest() = Some(Vec::new());
    }
}

impl StandardInput {
    /// Reads at most `capacity` bytes; fails with the number of an error. After an error, or after the user has ended the input, all
    /// later reads find the end of the input, so that a loop over all lines ends.
    fn read(&self, capacity: usize) -> Result<Vec<u8>, c_int> {
        let part = |line: &mut Vec<u8>| line.drain(..capacity.min(line.len())).collect();
        match &mut *self.rest() {
            None => return Ok(Vec::new()),
            Some(line) if !line.is_empty() => return Ok(part(line)),
            Some(_) => {}
        }
        // The question is asked without the lock: a snapshot that is made while the user types could never unlock it.
        let mut line = Vec::new();
        match (self.read_line)(take, (&raw mut line).cast()) {
            0 => line.push(b'\n'),
            error => {
                *self.rest() = None;
                return if error == END { Ok(Vec::new()) } else { Err(error) };
            }
        }
        let bytes = part(&mut line);
        if let Some(rest) = &mut *self.rest() {
            rest.append(&mut line);
        }
        Ok(bytes)
    }

    fn rest(&self) -> MutexGuard<'_, Option<Vec<u8>>> {
        self.rest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

extern "C" fn take(line: *mut c_void, bytes: *const u8, length: usize) {
    // SAFETY: `StandardInput::read` passes the address of its line, and `ReadLine` gives a text's bytes.
    unsafe { (*line.cast::<Vec<u8>>()).extend_from_slice(std::slice::from_raw_parts(bytes, length)) }
}

/// The `read(2)` of this program, which asks the user where a cell reads its standard input.
///
/// # Safety
/// `buffer` must have room for `count` bytes, as for the C library's function.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn read(fd: c_int, buffer: *mut c_void, count: size_t) -> ssize_t {
    let input = STANDARD_INPUT.get().filter(|input| {
        // SAFETY: descriptor 0 is only looked at; that it may be closed is an error of `fstat`.
        fd == 0 && count > 0 && identity(unsafe { BorrowedFd::borrow_raw(0) }) == Ok(input.nothing)
    });
    let Some(input) = input else {
        // SAFETY: as the caller promises.
        return unsafe { libc::syscall(libc::SYS_read, fd, buffer, count) } as ssize_t;
    };
    match input.read(count) {
        Ok(bytes) => {
            // SAFETY: the caller gives room for `count` bytes, and there are no more.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), buffer.cast(), bytes.len()) };
            bytes.len() as ssize_t
        }
        Err(error) => {
            // SAFETY: every thread has an `errno` of its own.
            unsafe { *libc::__errno_location() = error };
            -1
        }
    }
}
