//! The seed of a process, or of the trial that a thread runs. Records it, and seeds no generator.

use candle_core::Device;
use std::cell::Cell;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Mutex, OnceLock, PoisonError};

pub use ferrotune_space::seed::derived as derived_seed;

/// The seed that was given to the process.
static GIVEN: Mutex<Option<u64>> = Mutex::new(None);

thread_local! {
    /// The seed of the trial that this thread runs, where other threads run other trials.
    static OF_THREAD: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Records the seed of the process or, in a thread that runs a trial of its own, of this trial.
pub fn give(seed: u64) {
    if is_of_thread() {
        OF_THREAD.set(Some(seed));
    } else {
        *GIVEN.lock().unwrap_or_else(PoisonError::into_inner) = Some(seed);
    }
}

/// The seed that was given to the process, or to the trial.
pub fn given_seed() -> Option<u64> {
    OF_THREAD.get().or_else(|| *GIVEN.lock().unwrap_or_else(PoisonError::into_inner))
}

/// The present seed: the given seed or, if none was given, the seed of the CPU, which is random at first. The candle of crates.io has
/// no such seed; a random seed of the process takes its place.
pub fn current_seed() -> u64 {
    given_seed().unwrap_or_else(|| Device::Cpu.get_current_seed().unwrap_or_else(|_| random()))
}

/// A random seed, which is the same for the whole process.
fn random() -> u64 {
    static SEED: OnceLock<u64> = OnceLock::new();
    *SEED.get_or_init(|| RandomState::new().hash_one(()))
}

/// Runs a function with a seed of this thread. Other threads have other seeds at the same time.
pub fn in_thread<R>(seed: u64, run: impl FnOnce() -> R) -> R {
    let before = OF_THREAD.replace(Some(seed));
    let result = run();
    OF_THREAD.set(before);
    result
}

/// Whether this thread has a seed of its own.
pub fn is_of_thread() -> bool {
    OF_THREAD.get().is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_with_its_own_seed_changes_no_other() {
        in_thread(3, || {
            assert_eq!((given_seed(), current_seed()), (Some(3), 3));
            give(4);
            assert_eq!(current_seed(), 4);
            let other = std::thread::spawn(|| (is_of_thread(), given_seed()));
            assert_eq!(other.join().expect("it only reads"), (false, None));
        });
        assert_eq!((is_of_thread(), given_seed()), (false, None));
    }
}
