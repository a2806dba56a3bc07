//! Records which process has opened an accelerator. The accelerator's threads and contexts exist in that process alone, and not in
//! its forks. This module opens no device: the code that opens one calls [`opened`].

use crate::memory::original::Original;
use serde::{Deserialize, Serialize};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// The id of the process that opened an accelerator, which is this process or one that it was forked from; 0 if there is none.
static OPENED_BY: AtomicU32 = AtomicU32::new(0);

/// Since an accelerator was opened: tells this process from its forks.
static ORIGINAL: OnceLock<Option<Original>> = OnceLock::new();

/// The error in a process that is a fork of one that had opened an accelerator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error(
    "this process forked from process {opened_by}, which had opened an accelerator, and no copy of that process can use \
     one; open it in a new process: in a notebook, %undo to before it was opened, or restart the kernel"
)]
pub struct Forked {
    /// Process id of the process that opened the accelerator.
    pub opened_by: u32,
}

/// Records that this process has opened an accelerator.
pub fn opened() {
    OPENED_BY.store(std::process::id(), Ordering::Relaxed);
    ORIGINAL.get_or_init(Original::new);
}

/// Whether this process itself has opened an accelerator, so that a fork of it could not use the accelerator.
pub fn is_open() -> bool {
    let opened_by = OPENED_BY.load(Ordering::Relaxed);
    opened_by != 0 && is_this_process(opened_by)
}

/// Checks that this process may open or use an accelerator. Each call of a plugin does that, without a system call.
///
/// # Errors
/// If this process is a fork of one that had opened an accelerator.
pub fn check() -> Result<(), Forked> {
    let opened_by = OPENED_BY.load(Ordering::Relaxed);
    if opened_by != 0 && !is_this_process(opened_by) { Err(Forked { opened_by }) } else { Ok(()) }
}

fn is_this_process(opened_by: u32) -> bool {
    match ORIGINAL.get() {
        Some(Some(original)) => original.is_here(),
        _ => opened_by == std::process::id(),
    }
}
