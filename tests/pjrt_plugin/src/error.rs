//! The plugin's errors: a code of PJRT and a message.

use crate::abi::{Arguments, Function, made};
use std::ffi::c_void;
use std::ptr::null_mut;

/// Places in the table.
pub(crate) const FUNCTIONS: &[(usize, Function)] = &[(0, error_destroy), (1, error_message), (2, error_code)];

/// Those that destroy an error and give its message and its code.
pub(crate) const ERRORS: [Function; 3] = [error_destroy, error_message, error_code];

/// An error on its way to the caller.
#[derive(Clone)]
pub(crate) struct Failure {
    pub(crate) code: i32,
    pub(crate) message: String,
}

impl Failure {
    pub(crate) fn internal(message: impl Into<String>) -> Failure {
        Failure { code: 13, message: message.into() }
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Failure {
        Failure { code: 3, message: message.into() }
    }
}

/// Null for success, or an error that the caller frees.
pub(crate) fn answer(result: Result<(), Failure>) -> *mut c_void {
    result.map_or_else(|failure| made(failure).cast(), |()| null_mut())
}

unsafe extern "C" fn error_destroy(arguments: Arguments) -> *mut c_void {
    arguments.free::<Failure>(0);
    null_mut()
}

unsafe extern "C" fn error_message(arguments: Arguments) -> *mut c_void {
    arguments.set_text(1, &arguments.object::<Failure>(0).message);
    null_mut()
}

unsafe extern "C" fn error_code(arguments: Arguments) -> *mut c_void {
    arguments.set(1, arguments.object::<Failure>(0).code);
    null_mut()
}
