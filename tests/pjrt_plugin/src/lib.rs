//! A PJRT plugin for tests: its devices are CPUs, on which a helper process with jaxlib compiles and runs.
//!
//! What it knows of PJRT's structures is written down here a second time, so that a mistake in `devices/src/pjrt` does
//! not agree with itself. It refuses what no test needs, and it misbehaves where a test asks for it
//! (`FERROTUNE_PJRT_FAULT`).
#![expect(unsafe_code, reason = "a C interface is made of pointers")]

mod abi;
mod error;
mod executables;
mod fault;
mod helper;
mod objects;
mod profiler;
mod shared;
mod transfers;

use abi::{API_MINOR, FUNCTION_COUNT, Function, Table};
use std::ffi::c_void;
use std::sync::OnceLock;

/// What a plugin exports.
#[unsafe(no_mangle)]
pub extern "C" fn GetPjrtApi() -> *const c_void {
    fault::strike("load");
    static TABLE: OnceLock<Table> = OnceLock::new();
    let table = TABLE.get_or_init(|| {
        let mut functions: [Option<Function>; FUNCTION_COUNT] = [None; FUNCTION_COUNT];
        for (place, function) in
            error::FUNCTIONS.iter().chain(objects::FUNCTIONS).chain(transfers::FUNCTIONS).chain(executables::FUNCTIONS)
        {
            functions[*place] = Some(*function);
        }
        Table::new(API_MINOR, &raw const profiler::EXTENSION as usize, functions)
    });
    std::ptr::from_ref(table).cast()
}
