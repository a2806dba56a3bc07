//! Searches of plain Rust programs: their processes, and the ones that have none.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod additions;
mod in_process;
#[path = "../../../journal/tests/it/postgres.rs"]
mod postgres;
mod processes;
mod storage;
mod warm_start;
