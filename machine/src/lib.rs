//! Facts of the machine that the kernel, its cells and searches all need, each read in one place: memory, cgroups,
//! processes and NVIDIA's devices. It also makes files in memory.
//!
//! This crate decides nothing: its callers choose budgets, and which process to kill. It links no candle, CUDA or PJRT.

pub mod cgroup;
pub mod child;
pub mod identity;
pub mod memory;
pub mod memory_file;
pub mod nvidia;
pub mod process_tree;

pub use ferrotune_format as format;

use std::fs;
use std::path::Path;

/// A function that reads a small file; `None` if the file is absent or unreadable. [`file()`] reads files of this machine; a
/// test, or a described machine, has its own function.
pub type Read<'a> = &'a dyn Fn(&Path) -> Option<String>;

/// A [`Read`] of this machine. If a file cannot be read, for whatever reason, its facts are unknown.
pub fn file(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok()
}

/// The number after `name` in a text of lines `NAME NUMBER …`.
fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.split_whitespace().next() == Some(name))?;
    line.split_whitespace().nth(1)?.parse().ok()
}
