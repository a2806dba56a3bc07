//! The memory allocator of this process.

/// Returns freed memory to the system. The allocator otherwise keeps the memory between blocks in use, which is a third of the
/// kernel's memory after rust-analyzer has read its sources.
#[expect(unsafe_code, reason = "the C library's allocator has no other interface")]
pub(crate) fn return_freed_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: the call has no preconditions, and takes the allocator's own locks.
    unsafe {
        libc::malloc_trim(0);
    }
}
