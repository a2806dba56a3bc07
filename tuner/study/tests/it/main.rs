//! Tests of searches in plain Rust programs, with and without processes.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod additions;
mod in_process;
#[path = "../../../journal/tests/it/postgres.rs"]
mod postgres;
mod processes;
mod storage;
mod warm_start;
