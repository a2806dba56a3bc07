//! Facts of the machine that the kernel, its cells and searches all need, each read in one place: processor, memory, cgroups,
//! processes and NVIDIA's devices. It also makes files in memory, and handles on processes.
//!
//! This crate decides nothing: its callers choose budgets, and which process to kill. It links no candle, CUDA or PJRT.

pub mod cgroup;
pub mod child;
pub mod handle;
pub mod identity;
pub mod mappings;
pub mod memory;
pub mod memory_file;
pub mod nvidia;
pub mod own;
pub mod process;
pub mod process_tree;
pub mod processor;

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

/// The value in a text of lines `NAME : VALUE`; that of the first line with this name.
pub fn value<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim())
    })
}

/// The number after `name` in a text of lines `NAME NUMBER …`.
fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.split_whitespace().next() == Some(name))?;
    line.split_whitespace().nth(1)?.parse().ok()
}
