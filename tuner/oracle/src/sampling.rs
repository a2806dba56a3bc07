//! Uniform draws from a distribution: over its lattice, its interval or its logarithm. Uses no trials.

use ferrotune_space::lattice::{last_index, point, whole_cells};
use ferrotune_space::{Distribution, Scale, Value};
use rand::{Rng, RngExt};

/// Draws one value. The distribution must be valid (see [`Distribution::validate`]).
///
/// A logarithmic integer has Optuna's distribution: the logarithm is uniform from `low - 0.5` to
/// `high + 0.5`, so that both ends get a whole cell.
pub fn sample<R: Rng + ?Sized>(distribution: &Distribution, rng: &mut R) -> Value {
    match distribution {
        Distribution::Int { low, high, step, scale: Scale::Linear } => Value::Int(sample_int(*low, *high, *step, rng)),
        Distribution::Int { low, high, scale, .. } => {
            let value = sample_scaled(*scale, whole_cells(*low, *high), rng).round() as i64;
            Value::Int(value.clamp(*low, *high))
        }
        Distribution::Float { low, high, step: None, scale } => {
            Value::Float(sample_scaled(*scale, (*low, *high), rng).clamp(*low, *high))
        }
        Distribution::Float { low, high, step: Some(step), .. } => {
            // The conversion saturates; f64 cannot represent a lattice of more than 2^53 points anyway.
            let index = rng.random_range(0..=last_index(*low, *high, *step) as u64);
            Value::Float(point(*low, *step, index as f64))
        }
        Distribution::Choice { values, .. } => values[rng.random_range(0..values.len())].clone(),
    }
}

fn sample_int<R: Rng + ?Sized>(low: i64, high: i64, step: i64, rng: &mut R) -> i64 {
    let (low, step) = (i128::from(low), i128::from(step));
    let last = (i128::from(high) - low) / step;
    let value = low + rng.random_range(0..=last) * step;
    i64::try_from(value).unwrap_or(high)
}

fn sample_scaled<R: Rng + ?Sized>(scale: Scale, range: (f64, f64), rng: &mut R) -> f64 {
    let (low, high) = scale.ends(range);
    scale.unwarp(range, uniform(low, high, rng))
}

/// A uniform number from `low` to `high`, both included; safe where `high - low` overflows.
fn uniform<R: Rng + ?Sized>(low: f64, high: f64, rng: &mut R) -> f64 {
    let share = rng.random_range(0.0..=1.0);
    (low * (1.0 - share) + high * share).clamp(low, high)
}
