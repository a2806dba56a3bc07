//! The supervisor's own memory, taken before the first trial: one that fills the machine must find a supervisor that
//! needs no more, and that nobody swaps out. So its size says nothing about the trials, and stays what it was.
#![cfg_attr(target_env = "gnu", expect(unsafe_code, reason = "how malloc keeps its memory has no safe interface"))]

use rustix::mm::MlockAllFlags;
use rustix::process::{Resource, getrlimit};
use rustix::thread::{CapabilitySet, capabilities};

/// Room for the records of some thousand trials, and for the model of a few hundred.
const RESERVE_BYTES: usize = 16 << 20;
/// Allocations up to here come from the reserve: the most that malloc lets one say.
#[cfg(target_env = "gnu")]
const LARGEST_BYTES: libc::c_int = 32 << 20;

/// Takes the reserve, and keeps what this process has in the machine's memory where the system lets it.
pub fn take_reserve() {
    keep_freed_memory();
    let mut reserve = vec![0_u8; RESERVE_BYTES];
    // A page is there once something has been written to it.
    reserve.iter_mut().step_by(rustix::param::page_size()).for_each(|byte| *byte = 1);
    std::hint::black_box(&reserve);
    drop(reserve);
    // With a limit, an allocation that comes to it later would fail, rather than be swapped out.
    let may_lock = getrlimit(Resource::Memlock).current.is_none()
        || capabilities(None).is_ok_and(|own| own.effective.contains(CapabilitySet::IPC_LOCK));
    let flags = MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT;
    if may_lock && let Err(errno) = rustix::mm::mlockall(flags) {
        tracing::debug!(%errno, "the search's own memory may be swapped out");
    }
}

/// Has malloc keep what is freed, for this process to use again.
#[cfg(target_env = "gnu")]
fn keep_freed_memory() {
    // SAFETY: both set a number that malloc reads; no other thread runs yet that could allocate meanwhile.
    let kept = unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, LARGEST_BYTES) == 1
            && libc::mallopt(libc::M_TRIM_THRESHOLD, libc::c_int::MAX) == 1
    };
    if !kept {
        tracing::debug!("malloc gives the reserve back");
    }
}

#[cfg(not(target_env = "gnu"))]
fn keep_freed_memory() {}
