//! Random draws of parameters and samplers. Each is a function of the seed, the trial and the draw's purpose.

use crate::sampling::sample;
use ferrotune_space::{Distribution, Value};
use rand::SeedableRng;
use rand_pcg::Pcg64;

/// Draws a parameter's value. The draw does not depend on the trial's other parameters or on their order.
pub(super) fn draw(seed: u64, trial: u64, name: &str, distribution: &Distribution) -> Value {
    sample(distribution, &mut generator(seed, trial, name))
}

/// A generator for a sampler's draws for one trial; `purpose` separates the draws of different parts.
pub(super) fn generator(seed: u64, trial: u64, purpose: &str) -> Pcg64 {
    Pcg64::seed_from_u64(hash(&[&seed.to_le_bytes(), &trial.to_le_bytes(), purpose.as_bytes()]))
}

/// The FNV-1a hash of the parts: unlike the standard library's hashers, the same in every release.
pub(super) fn hash(parts: &[&[u8]]) -> u64 {
    let bytes = parts.iter().flat_map(|part| part.iter());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3))
}
