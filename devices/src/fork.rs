//! Which process has opened an accelerator. Its threads and contexts exist in that process alone, and not in the copies
//! that a fork makes. Looks at no device itself: whoever opens one calls [`opened`].

use std::sync::atomic::{AtomicU32, Ordering};

/// The process that first opened an accelerator; 0 if none has. A fork copies it.
static OPENED_BY: AtomicU32 = AtomicU32::new(0);

/// This process is a fork of one that had opened an accelerator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "this process forked from process {opened_by}, which had opened an accelerator, and no copy of that process can use \
     one; open it in a new process: in a notebook, %undo to before it was opened, or restart the kernel"
)]
pub struct Forked {
    /// The process that opened it.
    pub opened_by: u32,
}

/// Notes that this process has opened an accelerator.
pub fn opened() {
    OPENED_BY.store(std::process::id(), Ordering::Relaxed);
}

/// Whether this process itself has opened an accelerator, so that a copy of it would lose what is there.
pub fn is_open() -> bool {
    OPENED_BY.load(Ordering::Relaxed) == std::process::id()
}

/// Checks that this process may open or use an accelerator.
///
/// # Errors
/// If it is a fork of a process that had opened one.
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
