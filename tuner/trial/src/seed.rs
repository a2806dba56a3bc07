//! The seed of a process. It decides first weights, dropout and all other random numbers of devices, and shuffles.

use crate::plugins;
use ferrotune_devices::count_scopes_anew;
use ferrotune_state::{BoxError, seed};

/// Sets the seed of all random numbers from here on: those of tensors, such as first weights and dropout, on the CPU and on every
/// device that this process has opened or opens later, and those of shuffles of datasets that have no seed of their own.
///
/// The same seed gives the same numbers on any number of threads, as long as only one thread draws at a time. Elements of a
/// dataset and replicas of a strategy have their own numbers. Different kinds of devices draw different numbers, but for the first
/// weights of layers, which the CPU draws for a device with one core. In a trial,
/// [`Trial::seed`](crate::Trial::seed) applies from the start, and a trial that continues from a checkpoint draws the same
/// numbers as without the interruption.
///
/// Fails if a device refuses the seed, as a plugin's device does within a compiled step.
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

/// Does the work of [`seed`], which is public only where candle can be seeded in full.
pub(crate) fn begin(seed: u64) -> Result<(), BoxError> {
    seed::give(seed);
    draw_from(seed)
}

/// Restarts the random numbers from this seed. The result of [`given_seed`](crate::given_seed) does not change.
pub(crate) fn draw_from(seed: u64) -> Result<(), BoxError> {
    plugins::seed_cpu(seed)?;
    if !seed::is_of_thread() {
        count_scopes_anew();
        plugins::seed_open(seed)?;
    }
    Ok(())
}

/// Runs a trial in the current thread, with random numbers of its own on the CPU. Other threads may run trials at the same time.
pub(crate) fn in_thread<R>(seed: u64, run: impl FnOnce() -> R) -> R {
    seed::in_thread(seed, || plugins::with_seed(seed, run))
}
