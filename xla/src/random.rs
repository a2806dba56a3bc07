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

    /// The numbers of `draws` keys that follow one another, of which this is the first.
    pub(crate) fn advance(&self, draws: u64) -> u64 {
        self.draws.fetch_add(draws, Ordering::Relaxed)
    }

    /// A key that no other array has.
    pub(crate) fn key(&self) -> Arc<Node> {
        let (seed, draw) = (self.seed(), self.advance(1));
        let halves = [(seed & 0xffff_ffff) as f64, (seed >> 32) as f64, draw as f64];
        Node::with_numbers(Op::Key, Vec::new(), &[2], Element::U64, halves.to_vec())
    }
}

/// The two numbers of a key, as [`Generator::key`] has kept them.
pub(crate) fn key_of(numbers: &[f64]) -> [u64; 2] {
    let number = |index: usize| numbers.get(index).map_or(0, |number| *number as u64);
    [number(0) | number(1) << 32, number(2)]
}
