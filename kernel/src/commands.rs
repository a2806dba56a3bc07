//! What a user runs in a terminal and no part of a running kernel: installing and removing, the report of `doctor`, the toolchain of
//! `setup`, and searches and workers without a notebook.

pub(crate) mod candle;
pub(crate) mod doctor;
pub(crate) mod export;
pub(crate) mod install;
pub(crate) mod kernelspec;
pub(crate) mod oracle;
pub(crate) mod package;
pub(crate) mod resume;
pub(crate) mod setup;
pub(crate) mod uninstall;
pub(crate) mod worker;

use crate::folders;
use anyhow::Result;
use std::io::IsTerminal as _;

fn remove_old_preludes() {
    if let Some(line) = folders::preludes::remove_old() {
        eprintln!("{line}");
    }
}

/// Does a thing that shows its progress: one changing line in a terminal, and a line for each change in a file.
pub(crate) fn with_progress<T>(act: impl FnOnce(&mut dyn FnMut(&str)) -> Result<T>) -> Result<T> {
    let is_terminal = std::io::stderr().is_terminal();
    let mut has_shown = false;
    let result = act(&mut |line| {
        has_shown = true;
        if is_terminal { eprint!("\r\x1b[2K{line}") } else { eprintln!("{line}") }
    });
    if has_shown && is_terminal {
        eprintln!();
    }
    result
}
