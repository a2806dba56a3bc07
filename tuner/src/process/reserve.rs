//! The supervisor's own memory, allocated before the first trial: when a trial fills the machine, the supervisor must need
//! no more and must not be swapped out. So its size stays the same however many trials there are.
#![cfg_attr(target_env = "gnu", expect(unsafe_code, reason = "how malloc keeps its memory has no safe interface"))]

use rustix::mm::MlockAllFlags;
use rustix::process::{Resource, getrlimit};
use rustix::thread::{CapabilitySet, capabilities};

/// Room for the records of some thousand trials, and for the model of a few hundred.
const RESERVE_BYTES: usize = 16 << 20;
/// Allocations up to this size come from the reserve; it is the largest threshold that malloc accepts.
#[cfg(target_env = "gnu")]
const LARGEST_BYTES: libc::c_int = 32 << 20;

/// Allocates the reserve, and locks the memory of this process where the system allows it.
pub fn take_reserve() {
    keep_freed_memory();
    let mut reserve = vec![0_u8; RESERVE_BYTES];
    // The system provides a page when it is first written.
    reserve.iter_mut().step_by(rustix::param::page_size()).for_each(|byte| *byte = 1);
    std::hint::black_box(&reserve);
    drop(reserve);
    // Under a limit on locked memory, later allocations would fail.
    let may_lock = getrlimit(Resource::Memlock).current.is_none()
        || capabilities(None).is_ok_and(|own| own.effective.contains(CapabilitySet::IPC_LOCK));
    let flags = MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT;
    if may_lock && let Err(errno) = rustix::mm::mlockall(flags) {
        tracing::debug!(%errno, "the search's own memory may be swapped out");
    }
}

/// Makes malloc keep freed memory for this process.
#[cfg(target_env = "gnu")]
fn keep_freed_memory() {
    // SAFETY: both set a number that malloc reads; no other thread runs yet that could allocate at the same time.
    let kept = unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, LARGEST_BYTES) == 1
            && libc::mallopt(libc::M_TRIM_THRESHOLD, libc::c_int::MAX) == 1
    };
    if !kept {
        tracing::debug!("malloc returns the reserve to the system");
    }
}

#[cfg(not(target_env = "gnu"))]
fn keep_freed_memory() {}
