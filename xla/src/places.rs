//! The places of a program for which programs are compiled. A place that compiles many is noted once, since a loop that does the same in
//! each step needs one or two, and each takes as long as hundreds of steps.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::Path;
use std::sync::{Mutex, OnceLock, PoisonError};

/// The greatest number of programs that a place compiles without a note.
const MOST_PROGRAMS: usize = 10;

/// The largest number of calls that identify a place.
const MOST_CALLS: usize = 256;

/// The name of a place whose line is unknown.
pub const UNKNOWN_PLACE: &str = "a line that has no debug information";

const NOTE: &str = "more than 10 programs were compiled for this line, because it computes with other shapes or in another way from step \
                    to step; give its tensors the same shapes in each step, or make the step with `ferrotune::compile`";

/// Shows a note about the place to which the calls at these addresses have led, innermost first.
pub type ShowNote = fn(calls: &[usize], note: &str);

static SHOW: OnceLock<ShowNote> = OnceLock::new();

/// The number of programs that were compiled for each place, by a hash of the addresses of its calls.
static COUNTS: Mutex<BTreeMap<u64, usize>> = Mutex::new(BTreeMap::new());

/// Shows notes about places with this function, for a process that can name a place better than by its file, such as that of a
/// notebook's cells. The first function stays; without one, notes go to the standard error.
pub fn show_notes_with(show: ShowNote) {
    SHOW.get_or_init(|| show);
}

/// Whether a call in the form `file:line:column` is in the program itself, and not in a library of the system, Rust's own, a crate of a
/// registry, or Ferrotune's or candle's own sources.
pub fn is_in_program(call: &str) -> bool {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("/"));
    let is_ours = Path::new(call).starts_with(workspace) && call.contains("/src/");
    let libraries = ["/rustc/", "/rustlib/src/", "/registry/src/", "/candle-core/src/", "/candle-nn/src/"];
    let is_library = libraries.iter().any(|folder| call.contains(folder));
    call.contains(".rs:") && !is_ours && !is_library
}

/// Counts a program that was compiled for the place from which this is called.
pub(crate) fn count_program() {
    let mut calls = Vec::with_capacity(64);
    backtrace::trace(|frame| {
        calls.push(frame.ip().addr());
        calls.len() < MOST_CALLS
    });
    if counted(&calls) == MOST_PROGRAMS + 1 {
        SHOW.get().copied().unwrap_or(print)(&calls, NOTE);
    }
}

/// The number of programs of the place to which these calls lead, with one more.
fn counted(calls: &[usize]) -> usize {
    let mut hasher = DefaultHasher::new();
    calls.hash(&mut hasher);
    let mut counts = COUNTS.lock().unwrap_or_else(PoisonError::into_inner);
    let count = counts.entry(hasher.finish()).or_default();
    *count += 1;
    *count
}

fn print(calls: &[usize], note: &str) {
    let place = calls.iter().flat_map(|address| lines_at(*address)).find(|call| is_in_program(call));
    eprintln!("ferrotune: {}: {note}", place.as_deref().unwrap_or(UNKNOWN_PLACE));
}

/// The calls at an address as `file:line:1`, several where functions have been inlined; none without debug information.
pub fn lines_at(address: usize) -> Vec<String> {
    let mut lines = Vec::new();
    backtrace::resolve(std::ptr::without_provenance_mut::<c_void>(address), |symbol| {
        let line = symbol.filename().zip(symbol.lineno());
        lines.extend(line.map(|(file, line)| format!("{}:{line}:1", file.display())));
    });
    lines
}
