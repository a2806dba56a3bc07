//! The seed of a process: of first weights, dropout, and all else that is drawn on a device, and of shuffles.

use crate::any_error::BoxError;
use crate::device;
use crate::plugins;
use ferrotune_devices::count_scopes_anew;
use std::cell::Cell;
use std::sync::{Mutex, PoisonError};

/// The seed that was given to [`seed`].
static GIVEN: Mutex<Option<u64>> = Mutex::new(None);

thread_local! {
    /// The seed of the trial that this thread runs beside others.
    static OF_THREAD: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Decides all random numbers from here on: those of tensors, such as first weights and dropout, on the CPU and on every device
/// that this process has opened or opens later, and shuffles of datasets that have no seed of their own.
///
/// The same seed gives the same numbers on any number of threads, as long as one thread draws after another; elements of a
/// dataset and replicas of a strategy have numbers of their own. Different kinds of devices draw different numbers. In a trial,
/// [`Trial::seed`](crate::Trial::seed) is in force from the start, and a trial that goes on from a checkpoint draws what it
/// would have drawn without the interruption.
///
/// Fails if a device refuses, as one of a plugin does within a step that is compiled.
///
/// ```
/// # use candle_core::{Device, Tensor};
/// ferrotune_trial::seed(7)?;
/// let first = Tensor::rand(0f32, 1., 3, &Device::Cpu)?.to_vec1::<f32>()?;
/// ferrotune_trial::seed(7)?;
/// assert_eq!(Tensor::rand(0f32, 1., 3, &Device::Cpu)?.to_vec1::<f32>()?, first);
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// ```
#[cfg(feature = "plugins")]
pub fn seed(seed: u64) -> Result<(), BoxError> {
    begin(seed)
}

/// [`seed`], as far as candle can be seeded.
pub(crate) fn begin(seed: u64) -> Result<(), BoxError> {
    if OF_THREAD.get().is_some() {
        OF_THREAD.set(Some(seed));
    } else {
        *GIVEN.lock().unwrap_or_else(PoisonError::into_inner) = Some(seed);
    }
    draw_from(seed)
}

/// The seed that was given to [`seed`], or to the trial.
pub fn given_seed() -> Option<u64> {
    OF_THREAD.get().or_else(|| *GIVEN.lock().unwrap_or_else(PoisonError::into_inner))
}

/// The seed in force; where none was given, that of the CPU, which is a random one at first.
pub fn current_seed() -> u64 {
    given_seed().unwrap_or_else(plugins::seed_of_cpu)
}

/// Lets what is drawn begin with a seed, while [`current_seed`] stays.
pub(crate) fn draw_from(seed: u64) -> Result<(), BoxError> {
    plugins::seed_cpu(seed)?;
    if OF_THREAD.get().is_none() {
        count_scopes_anew();
        device::seed_open(seed)?;
    }
    Ok(())
}

/// Runs a trial in a thread of a program, which may run others at the same time, with numbers of its own on the CPU.
pub(crate) fn in_thread<R>(seed: u64, run: impl FnOnce() -> R) -> R {
    let before = OF_THREAD.replace(Some(seed));
    let result = plugins::with_seed(seed, run);
    OF_THREAD.set(before);
    result
}
