//! Tells a process from its forks without a system call.

use memmap2::MmapMut;
use rustix::mm::{Advice, madvise};
use std::hint::black_box;

/// A page with a 1 in the process that has made it, and a 0 in each fork of that process.
#[derive(Debug)]
pub(crate) struct Original(MmapMut);

impl Original {
    /// None where the system does not clear pages in forks, as before Linux 4.14.
    pub(crate) fn new() -> Option<Original> {
        let mut page = MmapMut::map_anon(1).ok()?;
        // SAFETY: the page is this mapping's own, and nothing refers to its bytes yet.
        unsafe { madvise(page.as_mut_ptr().cast(), page.len(), Advice::LinuxWipeOnFork) }.ok()?;
        page[0] = 1;
        Some(Original(page))
    }

    /// Whether this process has made the page.
    pub(crate) fn is_here(&self) -> bool {
        black_box(&self.0)[0] == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fork_is_not_the_original() {
        let original = Original::new().expect("the system clears pages in forks");
        assert!(original.is_here());
        // SAFETY: the fork only reads the page, and leaves at once.
        let fork = unsafe { libc::fork() };
        if fork == 0 {
            // SAFETY: as above.
            unsafe { libc::_exit(i32::from(original.is_here())) }
        }
        let mut status = -1;
        // SAFETY: the fork is a child of this process, and `status` is a valid place.
        assert_eq!(unsafe { libc::waitpid(fork, &raw mut status, 0) }, fork);
        assert_eq!(status, 0);
    }
}
