//! Keys for random numbers: counters, so that the same seed gives the same numbers on every device.

use crate::graph::{Node, Op};
use ferrotune_devices::pjrt::Element;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The random numbers of a device, by a seed and how often numbers were drawn since it was set.
#[derive(Debug)]
pub(crate) struct Generator {
    seed: AtomicU64,
    draws: AtomicU64,
}

impl Generator {
    /// candle's own seed for a device that was given none.
    const SEED: u64 = 299_792_458;

    pub(crate) fn new() -> Generator {
        Generator { seed: AtomicU64::new(Generator::SEED), draws: AtomicU64::new(0) }
    }

    pub(crate) fn set_seed(&self, seed: u64) {
        self.seed.store(seed, Ordering::Relaxed);
        self.draws.store(0, Ordering::Relaxed);
    }

    pub(crate) fn seed(&self) -> u64 {
        self.seed.load(Ordering::Relaxed)
    }

    /// Takes so many keys; returns how many were taken before.
    pub(crate) fn advance(&self, keys: u64) -> u64 {
        self.draws.fetch_add(keys, Ordering::Relaxed)
    }

    /// How many keys were taken.
    pub(crate) fn draws(&self) -> u64 {
        self.draws.load(Ordering::Relaxed)
    }

    /// Goes back to where so many keys were taken.
    pub(crate) fn rewind(&self, draws: u64) {
        self.draws.store(draws, Ordering::Relaxed);
    }

    /// A key that no other array has.
    pub(crate) fn key(&self) -> Arc<Node> {
        let (seed, draw) = (self.seed(), self.advance(1));
        let halves = [(seed & 0xffff_ffff) as f64, (seed >> 32) as f64, draw as f64];
        Node::with_numbers(Op::Key, Vec::new(), &[2], Element::U64, halves.to_vec())
    }
}

/// The state of the random bits for a key, as [`Generator::key`] has kept it.
pub(crate) fn key_of(numbers: &[f64]) -> [u64; 2] {
    let number = |index: usize| numbers.get(index).map_or(0, |number| *number as u64);
    state(number(0) | number(1) << 32, number(2))
}

/// The state of the random bits for a seed and the number of a draw: a seed and a counter of blocks of bits. Each draw has
/// 2³² blocks of its own, so that no two arrays have numbers in common.
pub(crate) fn state(seed: u64, draw: u64) -> [u64; 2] {
    [seed ^ (draw >> 32).rotate_left(32), draw << 32]
}
