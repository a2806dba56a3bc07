//! Searches of plain Rust programs: their processes, and the ones that have none.

mod here;
mod processes;
