//! The origin of an error of candle: the calls that led to it. `?` records no place in a function that returns candle's own result,
//! such as a model's `forward`, so the calls are the only way to the line.
//!
//! candle calls a hook when it makes an error, and the hook keeps the addresses of the calls. The files and lines are looked up
//! only for an error that ends a cell or a trial.

use crate::place::innermost_in_notebook;
use addr2line::Context;
use addr2line::gimli::{DwarfSections, EndianSlice, LittleEndian, Reader, SectionId};
use ferrotune_machine::mappings;
use object::read::ReadCache;
use object::{Object as _, ObjectSection as _};
use std::cell::RefCell;
use std::fs::File;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// The largest number of calls that is kept. rayon and the kernel add some tens of calls to those of the user.
const MOST_CALLS: usize = 256;

thread_local! {
    /// The last error of this thread.
    static LAST: RefCell<Option<Origin>> = const { RefCell::new(None) };
}

struct Origin {
    error: String,
    addresses: Vec<usize>,
}

/// Installs the hooks that record the calls that lead to each error of candle, and name the place of a note of the device.
#[doc(hidden)]
pub fn witness_errors() {
    candle_core::error::on_error(witness);
    ferrotune_xla::show_notes_with(show_note);
}

/// Prints a note with the innermost line of the notebook, or of the program, among these calls.
fn show_note(calls: &[usize], note: &str) {
    let lines = lines_of(calls);
    let in_program = || lines.iter().find(|line| ferrotune_xla::is_in_program(line)).cloned();
    let place = innermost_in_notebook(|| lines.clone()).or_else(in_program);
    eprintln!("ferrotune: {}: {note}", place.as_deref().unwrap_or(ferrotune_xla::UNKNOWN_PLACE));
}

fn witness(error: &candle_core::Error) {
    let mut addresses = Vec::with_capacity(64);
    backtrace::trace(|frame| {
        addresses.push(frame.ip().addr());
        addresses.len() < MOST_CALLS
    });
    LAST.set(Some(Origin { error: error.to_string(), addresses }));
}

/// The calls that led to the error of candle with this message, as `file:line:column`, innermost first. Empty if the error is not
/// the last error of this thread, and for libraries without debug information.
#[doc(hidden)]
pub fn calls_to(message: &str) -> Vec<String> {
    let addresses = LAST.with_borrow(|last| {
        let origin = last.as_ref().filter(|origin| !origin.error.is_empty() && message.contains(&origin.error));
        origin.map_or_else(Vec::new, |origin| origin.addresses.clone())
    });
    lines_of(&addresses)
}

/// The calls at these addresses, as `file:line:column`. Empty for libraries without debug information.
#[doc(hidden)]
pub fn lines_of(addresses: &[usize]) -> Vec<String> {
    if addresses.is_empty() {
        return Vec::new();
    }
    // Without this file there are no calls, and the error keeps the place of its `?`.
    let libraries = mappings::own().unwrap_or_default();
    let path_of = |address: &usize| {
        let library = libraries.iter().find(|library| library.addresses.contains(address))?;
        Some(library.path.as_path())
    };
    // Calls within one library follow each other, and its file is read once for them.
    let runs = addresses.chunk_by(|one, other| path_of(one) == path_of(other));
    let calls = runs.filter_map(|run| match path_of(&run[0])? {
        // The dynamic linker has another name for a library that exists only in memory. Those of a trial are all loaded before its first
        // error.
        path if path.as_os_str().as_bytes().starts_with(b"/memfd:") => {
            Some(run.iter().copied().flat_map(ferrotune_xla::lines_at).collect())
        }
        path => {
            let start = libraries.iter().find(|first| first.path == path)?.addresses.start;
            calls_at(path, start, run)
        }
    });
    calls.flatten().collect()
}

/// The calls at addresses of a library that is mapped from `start` on, innermost first; several at one address where functions have been
/// inlined, and `None` where the library has no debug information. The crate backtrace does not see libraries that were loaded after
/// its first look-up of a line.
fn calls_at(library: &Path, start: usize, addresses: &[usize]) -> Option<Vec<String>> {
    let cache = ReadCache::new(File::open(library).ok()?);
    let object = object::File::parse(&cache).ok()?;
    let section = |id: SectionId| -> Result<_, object::Error> {
        let bytes = object.section_by_name(id.name()).map(|section| section.uncompressed_data()).transpose()?;
        Ok(bytes.unwrap_or_default())
    };
    let sections = DwarfSections::load(section).ok()?;
    let lines = Context::from_dwarf(sections.borrow(|bytes| EndianSlice::new(bytes, LittleEndian))).ok()?;
    // Each address is that of the instruction after the call.
    let places = addresses.iter().filter_map(|address| address.checked_sub(start + 1));
    Some(places.filter_map(|place| calls_of(&lines, place as u64)).flatten().collect())
}

fn calls_of<R: Reader>(lines: &Context<R>, address: u64) -> Option<Vec<String>> {
    let mut frames = lines.find_frames(address).skip_all_loads().ok()?;
    let mut calls = Vec::new();
    while let Some(frame) = frames.next().ok()? {
        let place = frame.location.and_then(|at| Some((at.file?, at.line?)));
        calls.extend(place.map(|(file, line)| format!("{file}:{line}:1")));
    }
    Some(calls)
}
