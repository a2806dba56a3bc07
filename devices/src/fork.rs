//! Records which process has opened an accelerator. The accelerator's threads and contexts exist in that process alone, and not in
//! its forks. This module opens no device: the code that opens one calls [`opened`].

use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicU32, Ordering};

/// The id of the process that opened an accelerator, which is this process or one that it was forked from; 0 if there is none.
static OPENED_BY: AtomicU32 = AtomicU32::new(0);

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
}

/// Whether this process itself has opened an accelerator, so that a fork of it could not use the accelerator.
pub fn is_open() -> bool {
    OPENED_BY.load(Ordering::Relaxed) == std::process::id()
}

/// Checks that this process may open or use an accelerator.
///
/// # Errors
/// If this process is a fork of one that had opened an accelerator.
pub fn check() -> Result<(), Forked> {
    check_as(OPENED_BY.load(Ordering::Relaxed), std::process::id())
}

fn check_as(opened_by: u32, own: u32) -> Result<(), Forked> {
    if opened_by != 0 && opened_by != own { Err(Forked { opened_by }) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_was_open_before_a_fork_is_not_opened_again() {
        assert_eq!(check_as(0, 7), Ok(()));
        assert_eq!(check_as(7, 7), Ok(()));
        assert_eq!(check_as(6, 7), Err(Forked { opened_by: 6 }));
    }
}
