//! Facts of the machine that the kernel, its cells and searches all need, each read in one place: memory, cgroups,
//! processes, NVIDIA's devices; files in memory; and how sizes and durations are written for people.
//!
//! It decides nothing: budgets, and whom to kill, are for those who ask. It links no candle, CUDA or PJRT.

pub mod cgroup;
pub mod child;
pub mod format;
pub mod identity;
pub mod memory;
pub mod memory_file;
pub mod nvidia;
pub mod process_tree;

use std::fs;
use std::path::Path;

/// Reads a small file; `None` where it is absent or unreadable. [`file`] reads this machine's, and a test or a described
/// machine has its own.
pub type Read<'a> = &'a dyn Fn(&Path) -> Option<String>;

/// A [`Read`] of this machine. What a file would tell is unknown where it cannot be read, whatever the reason.
pub fn file(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok()
}

/// The number after `name` in a text of lines `NAME NUMBER …`.
fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.split_whitespace().next() == Some(name))?;
    line.split_whitespace().nth(1)?.parse().ok()
}
