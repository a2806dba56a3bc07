//! Random search: every trial draws each parameter independently and trains to the end. Learns nothing from trials.

use super::{Next, Oracle, first_unfinished};
use crate::record::TrialRecord;
use crate::space::{Distribution, Value};
use rand::SeedableRng;
use rand_pcg::Pcg64;

/// Random search.
#[derive(Debug)]
pub struct Random {
    seed: u64,
    max_trials: u64,
}

impl Random {
    /// A search of `max_trials` trials.
    pub fn new(seed: u64, max_trials: u64) -> Random {
        Random { seed, max_trials }
    }
}

impl Oracle for Random {
    fn next(&mut self, trials: &[TrialRecord]) -> Next {
        if (trials.len() as u64) < self.max_trials {
            return Next::New;
        }
        first_unfinished(trials).map_or(Next::Exhausted, |trial| Next::Continue { trial })
    }

    fn suggest(&mut self, trial: u64, name: &str, distribution: &Distribution, _trials: &[TrialRecord]) -> Value {
        draw(self.seed, trial, name, distribution)
    }

    fn epochs(&mut self, _trial: u64, total: u64, _trials: &[TrialRecord]) -> u64 {
        total
    }
}

/// Draws a parameter's value. The draw does not depend on what else the trial asked for, or in which order.
pub(super) fn draw(seed: u64, trial: u64, name: &str, distribution: &Distribution) -> Value {
    let mut rng = Pcg64::seed_from_u64(fnv1a(&[&seed.to_le_bytes(), &trial.to_le_bytes(), name.as_bytes()]));
    distribution.sample(&mut rng)
}

/// FNV-1a over the parts: unlike the standard library's hashers, the same in every release.
fn fnv1a(parts: &[&[u8]]) -> u64 {
    let bytes = parts.iter().flat_map(|part| part.iter());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3))
}
