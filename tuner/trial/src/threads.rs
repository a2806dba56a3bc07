//! The threads that share the work of one operation of candle on the CPU: those of rayon.

use rayon::ThreadPoolBuilder;
use std::thread::available_parallelism;

/// A pool where the thread that calls operations is to be one of the threads: an operation then begins at once, and does not wake another
/// thread to wait for it. There is one thread more than cores, since threads of the user's own may compute while that one waits for them.
/// With one core, there is one thread.
///
/// The number of cores is `RAYON_NUM_THREADS`, or that of the machine.
pub fn pool() -> ThreadPoolBuilder {
    let cores = cores();
    ThreadPoolBuilder::new().num_threads(if cores == 1 { 1 } else { cores + 1 })
}

/// The [`pool`] with the calling thread as one of its threads. With one core, that thread is another one: if the only thread were to wait
/// for one of the user's own, nobody would compute for that one. `rayon::broadcast` from another thread waits for this one, too.
///
/// Cells and trials have it; a program of your own starts it at the beginning of `main`.
///
/// # Examples
/// ```
/// ferrotune_trial::threads::pool_of_this_thread().build_global()?;
/// # Ok::<(), rayon::ThreadPoolBuildError>(())
/// ```
pub fn pool_of_this_thread() -> ThreadPoolBuilder {
    if cores() == 1 { pool() } else { pool().use_current_thread() }
}

fn cores() -> usize {
    let asked_for = std::env::var("RAYON_NUM_THREADS").ok().and_then(|number| number.parse().ok());
    asked_for.filter(|number| *number > 0).unwrap_or_else(|| available_parallelism().map_or(1, usize::from))
}
