//! Grid search: every combination once, of all that was asked for, and then no more. A parameter has all its values
//! in the grid, or ten of them, evenly spread, where they are not counted. Learns nothing from losses.

use super::combinations::Levels;
use super::history::History;
use super::sampler::Sampler;
use crate::space::{Distribution, Scale, Space, Value};
use std::collections::HashSet;

/// Values of a continuous or logarithmic range, its ends among them.
const SPREAD: usize = 10;
/// A lattice with more values is treated as a continuous range.
const MOST: usize = 1000;

/// Grid search. Parameters that come up later, or only under a condition, widen the grid.
#[derive(Debug)]
pub(super) struct Grid;

impl Sampler for Grid {
    fn propose(&mut self, history: &History, _trial: u64) -> Option<Vec<f64>> {
        let point = first_left(history)?;
        // A parameter that is not expected to be asked for is at its first value if it is.
        Some(point.into_iter().map(|unit| if unit.is_nan() { 0.0 } else { unit }).collect())
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

/// The first combination, the last parameter changing fastest, that no trial has had.
fn first_left(history: &History) -> Option<Vec<f64>> {
    let space = &history.space;
    let tried: HashSet<Vec<u64>> = history.rows.iter().map(|row| key(&row.point)).collect();
    let mut order: Vec<usize> = (0..space.dimensions.len()).collect();
    // Parents first: their values decide which of the others there are.
    order.sort_by_key(|index| depth(space, *index));
    let values = space.dimensions.iter().map(|dimension| values(&dimension.distribution)).collect();
    let mut walk = Walk { space, order, values, tried, point: vec![f64::NAN; space.dimensions.len()] };
    walk.finds_untried(0).then_some(walk.point)
}

struct Walk<'a> {
    space: &'a Space,
    order: Vec<usize>,
    values: Vec<Vec<f64>>,
    tried: HashSet<Vec<u64>>,
    point: Vec<f64>,
}

impl Walk<'_> {
    /// Completes the point, whose first `position` parameters in order are set, to one that was not tried.
    fn finds_untried(&mut self, position: usize) -> bool {
        let Some(index) = self.order.get(position).copied() else { return !self.tried.contains(&key(&self.point)) };
        if !self.space.is_active(index, &self.point) {
            return self.finds_untried(position + 1);
        }
        for value in 0..self.values[index].len() {
            self.point[index] = self.values[index][value];
            if self.finds_untried(position + 1) {
                return true;
            }
        }
        self.point[index] = f64::NAN;
        false
    }
}

/// How many conditions stand before a parameter.
fn depth(space: &Space, index: usize) -> usize {
    space.dimensions[index].condition.as_ref().map_or(0, |condition| 1 + depth(space, condition.parent))
}

/// The coordinates of a parameter's values in the grid, as the records will give them back.
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

/// A combination, to be found again; a value that is not in the grid makes one that the grid has not.
fn key(point: &[f64]) -> Vec<u64> {
    // A logarithm and back again may miss the last bit; neighbours in the grid are further apart than this.
    point.iter().map(|unit| if unit.is_nan() { u64::MAX } else { (unit * 1e9).round() as u64 }).collect()
}
