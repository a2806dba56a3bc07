//! Keys for random numbers: counters, so that the same seed gives the same numbers on every device.

use crate::graph::{Node, Op};
use ferrotune_devices::pjrt::Element;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The generator of a device's random numbers: a seed, and the number of draws since it was set.
#[derive(Debug)]
pub(crate) struct Generator {
    /// The first key of the device: the cores of a plugin draw different numbers from the same seed.
    first: u64,
    seed: AtomicU64,
    draws: AtomicU64,
    /// The number of keys that were made while steps were traced.
    traced: AtomicU64,
}

/// candle's own seed for a device that was given none.
const DEFAULT_SEED: u64 = 299_792_458;

impl Generator {
    /// The number of keys that each device has for itself. Even added to [`Generator::FIRST_TRACED`], an `f64` represents the keys of
    /// 2,048 devices exactly.
    const OF_DEVICE: u64 = 1 << 40;

    /// The first key for traced steps. The draws of runs never reach it, and an `f64` still represents it exactly.
    const FIRST_TRACED: u64 = 1 << 52;

    /// The generator for a group of devices, by their numbers in the plugin; all devices of the group draw the same numbers.
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

    /// Reserves so many keys; returns the number of keys that were reserved before.
    pub(crate) fn advance(&self, keys: u64) -> u64 {
        self.draws.fetch_add(keys, Ordering::Relaxed)
    }

    /// Continues at another draw; returns the draw that would have been the next one.
    pub(crate) fn go_to(&self, draw: u64) -> u64 {
        self.draws.swap(draw, Ordering::Relaxed)
    }

    /// A key that no other array has.
    pub(crate) fn key(&self) -> Arc<Node> {
        self.node(self.advance(1), 0)
    }

    /// A key in a traced step that has requested so many keys before. Each run of the step replaces it by another key; only an array that
    /// the function keeps for itself ever uses this one.
    pub(crate) fn traced_key(&self, before: u64) -> Arc<Node> {
        self.node(self.traced.fetch_add(1, Ordering::Relaxed), before)
    }

    fn node(&self, draw: u64, before: u64) -> Arc<Node> {
        let seed = self.seed();
        let numbers = [(seed & 0xffff_ffff) as f64, (seed >> 32) as f64, draw as f64, before as f64];
        Node::with_numbers(Op::Key, Vec::new(), &[2], Element::U64, numbers.to_vec())
    }
}

/// A function that returns a new key for each call of a kernel.
pub(crate) type Keys<'a> = &'a dyn Fn() -> Arc<Node>;

/// The index of a traced key among the keys of its step, from 0.
pub(crate) fn place_of(numbers: &[f64]) -> u64 {
    numbers.get(3).map_or(0, |number| *number as u64)
}

/// The state of the random bits for a key, from the numbers that [`Generator::key`] has stored.
pub(crate) fn key_of(numbers: &[f64]) -> [u64; 2] {
    let number = |index: usize| numbers.get(index).map_or(0, |number| *number as u64);
    state(number(0) | number(1) << 32, number(2))
}

/// The state of the random bits for a seed and the number of a draw: the seed and a counter of blocks of bits. Each draw has
/// 2³² blocks of its own, so that no two arrays have numbers in common.
pub(crate) fn state(seed: u64, draw: u64) -> [u64; 2] {
    [seed ^ (draw >> 32).rotate_left(32), draw << 32]
}
