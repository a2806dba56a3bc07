//! Keys for random numbers: counters, so that the same seed gives the same numbers on every device.

use crate::graph::{Node, Op};
use ferrotune_devices::pjrt::Element;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The random numbers of a device, by a seed and how often numbers were drawn since it was set.
#[derive(Debug)]
pub(crate) struct Generator {
    /// The first key of the device: the cores of a plugin draw different numbers from the same seed.
    first: u64,
    seed: AtomicU64,
    draws: AtomicU64,
    /// Keys that were made while steps were traced.
    traced: AtomicU64,
}

/// candle's own seed for a device that was given none.
const DEFAULT_SEED: u64 = 299_792_458;

impl Generator {
    /// As many keys as a device has for itself. Together with [`Generator::FIRST_TRACED`], an `f64` has those of 2,048 devices
    /// exactly.
    const OF_DEVICE: u64 = 1 << 40;

    /// The first key of those that are made while a step is traced. No run ever comes so far, and an `f64` still has it exactly.
    const FIRST_TRACED: u64 = 1 << 52;

    /// The random numbers of the devices with these numbers of their plugin, which draw the same.
    pub(crate) fn new(devices: &[i32]) -> Generator {
        let device = devices.first().map_or(0, |number| u64::from(number.unsigned_abs()));
        let first = device % 2048 * Generator::OF_DEVICE;
        let [draws, traced] = [first, Generator::FIRST_TRACED + first].map(AtomicU64::new);
        Generator { first, seed: AtomicU64::new(DEFAULT_SEED), draws, traced }
    }

    pub(crate) fn set_seed(&self, seed: u64) {
        self.seed.store(seed, Ordering::Relaxed);
        self.draws.store(self.first, Ordering::Relaxed);
        self.traced.store(Generator::FIRST_TRACED + self.first, Ordering::Relaxed);
    }

    pub(crate) fn seed(&self) -> u64 {
        self.seed.load(Ordering::Relaxed)
    }

    /// Takes so many keys; returns how many were taken before.
    pub(crate) fn advance(&self, keys: u64) -> u64 {
        self.draws.fetch_add(keys, Ordering::Relaxed)
    }

    /// Continues at another draw; returns at which one it was.
    pub(crate) fn go_to(&self, draw: u64) -> u64 {
        self.draws.swap(draw, Ordering::Relaxed)
    }

    /// A key that no other array has.
    pub(crate) fn key(&self) -> Arc<Node> {
        self.node(self.advance(1), 0)
    }

    /// A key in a step that is traced, which has asked for so many keys before. Each run of the step gets another one in its
    /// place; only an array that the function keeps for itself ever has this one.
    pub(crate) fn traced_key(&self, before: u64) -> Arc<Node> {
        self.node(self.traced.fetch_add(1, Ordering::Relaxed), before)
    }

    fn node(&self, draw: u64, before: u64) -> Arc<Node> {
        let seed = self.seed();
        let numbers = [(seed & 0xffff_ffff) as f64, (seed >> 32) as f64, draw as f64, before as f64];
        Node::with_numbers(Op::Key, Vec::new(), &[2], Element::U64, numbers.to_vec())
    }
}

/// Where the keys of a kernel come from.
pub(crate) type Keys<'a> = &'a dyn Fn() -> Arc<Node>;

/// Which key of its step a traced key is, counted from 0.
pub(crate) fn place_of(numbers: &[f64]) -> u64 {
    numbers.get(3).map_or(0, |number| *number as u64)
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
