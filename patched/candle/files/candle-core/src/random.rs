//! The random numbers of the CPU: a seed, and how many tensors were drawn since it was set. Each tensor has a generator of its
//! own, so that its numbers depend on nothing but the two.
use rand::{rngs::StdRng, SeedableRng};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::LazyLock;

/// The seed of the process, which is a random one until [`crate::Device::set_seed`] is called.
static SEED: LazyLock<AtomicU64> = LazyLock::new(|| AtomicU64::new(rand::random()));
static DRAWN: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static OF_THREAD: Cell<Option<Draws>> = const { Cell::new(None) };
}

/// Which random numbers come next: tensor `drawn` of `seed`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Draws {
    pub seed: u64,
    pub drawn: u64,
}

/// Calls a function whose random tensors on the CPU begin with these, in this thread; those of all other threads, and of this one
/// afterwards, are as if nothing had been drawn.
///
/// ```
/// use candle_core::random::{with_draws, Draws};
/// use candle_core::{Device, Tensor};
/// let draw = || Tensor::rand(0f32, 1., 3, &Device::Cpu)?.to_vec1::<f32>();
/// let draws = Draws { seed: 7, drawn: 0 };
/// assert_eq!(with_draws(draws, draw)?, with_draws(draws, draw)?);
/// # Ok::<(), candle_core::Error>(())
/// ```
pub fn with_draws<R>(draws: Draws, function: impl FnOnce() -> R) -> R {
    /// Also after a panic.
    struct Restore(Option<Draws>);

    impl Drop for Restore {
        fn drop(&mut self) {
            OF_THREAD.set(self.0);
        }
    }

    let _restore = Restore(OF_THREAD.replace(Some(draws)));
    function()
}

/// Lets the random tensors on the CPU begin with these, in this thread and until it ends.
pub fn set_draws_of_thread(draws: Draws) {
    OF_THREAD.set(Some(draws));
}

pub(crate) fn seed() -> u64 {
    OF_THREAD
        .get()
        .map_or_else(|| SEED.load(Ordering::Relaxed), |draws| draws.seed)
}

pub(crate) fn set_seed(seed: u64) {
    if OF_THREAD.get().is_some() {
        set_draws_of_thread(Draws { seed, drawn: 0 });
    } else {
        SEED.store(seed, Ordering::Relaxed);
        DRAWN.store(0, Ordering::Relaxed);
    }
}

/// The generator of the next tensor.
pub(crate) fn generator() -> StdRng {
    let Draws { seed, drawn } = match OF_THREAD.get() {
        Some(draws) => {
            set_draws_of_thread(Draws {
                drawn: draws.drawn.wrapping_add(1),
                ..draws
            });
            draws
        }
        None => Draws {
            seed: SEED.load(Ordering::Relaxed),
            drawn: DRAWN.fetch_add(1, Ordering::Relaxed),
        },
    };
    let mut key = [0; 32];
    key[..8].copy_from_slice(&seed.to_le_bytes());
    key[8..16].copy_from_slice(&drawn.to_le_bytes());
    StdRng::from_seed(key)
}
