//! Searches of plain Rust programs: their processes, and the ones that have none.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod in_process;
mod processes;
