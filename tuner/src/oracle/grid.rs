//! Grid search: every combination of all parameters once. The grid has all values of a parameter, or ten evenly spread
//! ones if it has too many. Learns nothing from losses.

use super::combinations::Levels;
use super::history::History;
use super::sampler::Sampler;
use crate::space::{Distribution, Scale, Value};

/// Number of grid values of a continuous or logarithmic range, with both ends.
const SPREAD: usize = 10;
/// A range with more values is treated as continuous.
const MOST: usize = 1000;

/// Grid search. Parameters that come up later, or only under a condition, widen the grid.
#[derive(Debug)]
pub(super) struct Grid;

impl Sampler for Grid {
    /// Proposes nothing: [`Suggestions`](super::sampler::Suggestions) gives the first combination that is left.
    fn propose(&mut self, _: &History, _trial: u64) -> Option<Vec<f64>> {
        None
    }

    fn draw(&self, _seed: u64, _trial: u64, _name: &str, distribution: &Distribution) -> Value {
        distribution.from_unit(0.0)
    }

    fn is_systematic(&self) -> bool {
        true
    }

    fn levels(&self) -> Levels {
        |distribution| Some(values(distribution))
    }
}

/// The coordinates of a parameter's values in the grid, equal to those of the recorded values.
fn values(distribution: &Distribution) -> Vec<f64> {
    let is_log = matches!(distribution, Distribution::Int { scale: Scale::Log | Scale::ReverseLog, .. });
    distribution.levels(if is_log { SPREAD } else { MOST }).unwrap_or_else(|| {
        let spread = (0..SPREAD).map(|part| part as f64 / (SPREAD - 1) as f64);
        let mut values: Vec<f64> =
            spread.filter_map(|unit| distribution.to_unit(&distribution.from_unit(unit))).collect();
        values.dedup();
        values
    })
}
