//! Settings of glibc's malloc for memory that this process frees. Other allocators stay unchanged.
//!
//! By default, glibc returns the tensors of a training step to the system when they are freed, and the next step waits for
//! fresh pages: more than half of the time of a small step. The kept memory is limited, because larger allocations may not
//! fit into it.
#![cfg_attr(target_env = "gnu", expect(unsafe_code, reason = "how malloc keeps its memory has no safe interface"))]

use ferrotune_machine::memory::available_bytes;
use ferrotune_space::wire::BUDGET_VARIABLE;
use std::ffi::OsStr;

/// The environment variables by which users make the same settings for glibc.
const USERS: [&str; 4] = ["MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TOP_PAD_", "MALLOC_MMAP_MAX_"];

/// glibc's newer environment variable, and its settings that mean the same as [`USERS`].
const TUNABLES: &str = "GLIBC_TUNABLES";
const USERS_TUNABLES: [&str; 4] =
    ["malloc.trim_threshold", "malloc.mmap_threshold", "malloc.top_pad", "malloc.mmap_max"];

/// The largest allocation whose memory is kept. A larger tensor has pages of its own, which are returned when it is freed.
/// A vector of that size grows without a copy.
const LARGEST_KEPT_BYTES: u64 = 256 << 20;
/// The largest such size that glibc before 2.35 accepts.
const OLD_LARGEST_BYTES: i32 = 32 << 20;

/// The limits on freed memory that malloc keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Kept {
    /// The largest allocation whose memory is kept.
    largest_bytes: i32,
    /// The largest amount of memory that is kept at the end of the heap.
    most_bytes: i32,
}

impl Kept {
    /// Keeps at most a quarter of the memory that the process may hold, and tensors of at most a sixteenth: free memory in
    /// one place cannot serve a larger allocation in another.
    fn within(budget_bytes: u64) -> Self {
        let bytes = |bytes: u64| i32::try_from(bytes).unwrap_or(i32::MAX);
        Self { largest_bytes: bytes((budget_bytes / 16).min(LARGEST_KEPT_BYTES)), most_bytes: bytes(budget_bytes / 4) }
    }
}

/// Makes glibc's malloc keep freed memory for the next step of a training, unless the user has set glibc's own variables
/// for that. Call this function before any thread runs.
pub fn keep_freed_memory() {
    if is_set_by_user(|name| std::env::var_os(name)) {
        return;
    }
    let budget = std::env::var(BUDGET_VARIABLE).ok().and_then(|bytes| bytes.parse().ok());
    // Without /proc, no memory is kept.
    let Some(budget_bytes) = budget.or_else(|| available_bytes().ok()) else { return };
    let kept = Kept::within(budget_bytes);
    if !set(kept) && !set(Kept { largest_bytes: kept.largest_bytes.min(OLD_LARGEST_BYTES), ..kept }) {
        tracing::debug!("malloc returns freed memory to the system");
    }
}

/// Makes malloc keep all freed memory, up to the largest size that every glibc accepts.
pub(super) fn keep_all() {
    if !set(Kept { largest_bytes: OLD_LARGEST_BYTES, most_bytes: i32::MAX }) {
        tracing::debug!("malloc returns the reserve to the system");
    }
}

/// Returns the freed memory that [`keep_freed_memory`] has kept to the system: the next trial may need it in other sizes.
#[cfg(target_env = "gnu")]
pub(super) fn return_freed_memory() {
    // SAFETY: takes malloc's own locks, and touches free memory only.
    unsafe { libc::malloc_trim(0) };
}

#[cfg(not(target_env = "gnu"))]
pub(super) fn return_freed_memory() {}

fn is_set_by_user<S: AsRef<OsStr>>(variable: impl Fn(&str) -> Option<S>) -> bool {
    let tunables = variable(TUNABLES).map(|value| value.as_ref().to_string_lossy().into_owned()).unwrap_or_default();
    USERS.iter().any(|name| variable(name).is_some()) || USERS_TUNABLES.iter().any(|name| tunables.contains(name))
}

/// Whether malloc accepts the settings.
#[cfg(target_env = "gnu")]
fn set(kept: Kept) -> bool {
    // SAFETY: both set a number under malloc's own lock; a thread that allocates meanwhile sees the old or the new one.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, kept.largest_bytes) == 1
            && libc::mallopt(libc::M_TRIM_THRESHOLD, kept.most_bytes) == 1
    }
}

#[cfg(not(target_env = "gnu"))]
fn set(_: Kept) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_the_budget_is_kept_and_all_fits_an_int() {
        assert_eq!(Kept::within(1 << 30), Kept { largest_bytes: 64 << 20, most_bytes: 256 << 20 });
        assert_eq!(Kept::within(1 << 40), Kept { largest_bytes: 256 << 20, most_bytes: i32::MAX });
    }

    #[test]
    fn settings_of_the_user_win() {
        let with = |name: &'static str, value: &'static str| {
            is_set_by_user(move |asked: &str| Some(value).filter(|_| asked == name))
        };
        assert!(with("MALLOC_TRIM_THRESHOLD_", "0") && with("MALLOC_MMAP_THRESHOLD_", ""));
        assert!(with("GLIBC_TUNABLES", "glibc.malloc.tcache_count=1:glibc.malloc.trim_threshold=4096"));
        assert!(!with("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1") && !with("MALLOC_ARENA_MAX", "1"));
    }
}
