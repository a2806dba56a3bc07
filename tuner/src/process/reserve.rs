//! The supervisor's own memory, allocated before the first trial: when a trial fills the machine, the supervisor must need
//! no more memory and must not be swapped out. So its size does not depend on the number of trials.

use super::malloc;
use rustix::mm::MlockAllFlags;
use rustix::process::{Resource, getrlimit};
use rustix::thread::{CapabilitySet, capabilities};

/// The size of the reserve: room for the records of some thousand trials, and for the oracle's model of a few hundred.
const RESERVE_BYTES: usize = 16 << 20;

/// Allocates the reserve, and locks the memory of this process where the system allows it.
pub fn take_reserve() {
    malloc::keep_all();
    let mut reserve = vec![0_u8; RESERVE_BYTES];
    // The system provides a page when it is first written.
    reserve.iter_mut().step_by(rustix::param::page_size()).for_each(|byte| *byte = 1);
    std::hint::black_box(&reserve);
    drop(reserve);
    // Under a limit on locked memory, later allocations would fail, so memory is locked only without such a limit.
    let may_lock = getrlimit(Resource::Memlock).current.is_none()
        || capabilities(None).is_ok_and(|own| own.effective.contains(CapabilitySet::IPC_LOCK));
    let flags = MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT;
    if may_lock && let Err(errno) = rustix::mm::mlockall(flags) {
        tracing::debug!(%errno, "the search's own memory may be swapped out");
    }
}
