//! The distribution of one parameter's values: a kernel density on a grid. Compares no distributions.
//!
//! Parzen's estimator with the bandwidth of Scott (1992), Multivariate Density Estimation, and a prior over the whole
//! range with the weight of one value.

use crate::normal;
use ferrotune_space::{Distribution, Scale};

/// Largest number of points of the grid.
const GRID: usize = 50;
/// Standard deviation, in cells, of a kernel with nine tenths of its weight in its own cell.
const NARROWEST: f64 = 0.5 / 1.64;
/// A small number that is added to every density, so that none is zero.
const FLOOR: f64 = 1e-12;

/// Density of `values`, as Optuna stores them, on the grid of their range; `None` for a range of one value.
pub(super) fn on_grid(distribution: &Distribution, values: &[f64]) -> Option<Vec<f64>> {
    let counts = match distribution {
        Distribution::Choice { values: choices, .. } => {
            // An index is never negative, and a cast of one that is too large saturates.
            histogram(choices.len(), values.iter().map(|value| *value as usize))
        }
        Distribution::Int { low, high, step, scale } => {
            let span = (i128::from(*high) - i128::from(*low)) as f64;
            let is_linear = *scale == Scale::Linear;
            let cells = if is_linear { (span / *step as f64).floor() } else { (span + 1.0).log2().ceil() } + 1.0;
            let top = if is_linear { *low as f64 + *step as f64 * (cells - 1.0) } else { *high as f64 };
            numbers((*low as f64, top), cells, *scale, values)?
        }
        Distribution::Float { low, high, step: Some(step), .. } => {
            let cells = ((high - low) / step + 1e-8).floor() + 1.0;
            numbers((*low, low + step * (cells - 1.0)), cells, Scale::Linear, values)?
        }
        Distribution::Float { low, high, step: None, scale } => numbers((*low, *high), GRID as f64, *scale, values)?,
    };
    if counts.len() < 2 {
        return None;
    }
    let mut density = if distribution.has_order() { of_numbers(&counts) } else { of_choices(&counts) };
    density.iter_mut().for_each(|share| *share += FLOOR);
    Some(density)
}

/// The number of values nearest to each point of the grid; a value halfway between two points belongs to the lower one.
fn numbers(range: (f64, f64), cells: f64, scale: Scale, values: &[f64]) -> Option<Vec<u32>> {
    let grid = cells.min(GRID as f64) as usize;
    let (low, high) = scale.ends(range);
    if high <= low {
        return None;
    }
    let width = (high - low) / (grid - 1) as f64;
    // The conversion saturates at 0.
    Some(histogram(grid, values.iter().map(|value| ((scale.warp(range, *value) - low) / width - 0.5).ceil() as usize)))
}

fn histogram(cells: usize, indices: impl Iterator<Item = usize>) -> Vec<u32> {
    let mut counts = vec![0; cells];
    for index in indices {
        counts[index.min(cells - 1)] += 1;
    }
    counts
}

/// The density of numbers: each occupied cell adds a normal kernel, discretised and limited to the grid.
fn of_numbers(counts: &[u32]) -> Vec<f64> {
    let occupied: Vec<(f64, f64)> = occupied(counts).map(|(cell, count)| (cell as f64, count)).collect();
    let total: f64 = occupied.iter().map(|(_, count)| count).sum();
    let deviation = deviation(&occupied, total).max(NARROWEST);
    let last = (counts.len() - 1) as f64;
    let mut density = vec![0.0; counts.len()];
    let prior = (last / 2.0, last + 1.0, 1.0);
    for (mean, deviation, weight) in occupied.iter().map(|(cell, count)| (*cell, deviation, *count)).chain([prior]) {
        let share = |low: f64, high: f64| normal::between((low - mean) / deviation, (high - mean) / deviation);
        let whole = share(-0.5, last + 0.5);
        for (cell, sum) in density.iter_mut().enumerate() {
            let cell = cell as f64;
            *sum += weight / (total + 1.0) * share(cell - 0.5, cell + 0.5) / whole;
        }
    }
    density
}

/// The kernel's bandwidth by Scott's rule, from the smaller of standard deviation and interquartile range.
fn deviation(occupied: &[(f64, f64)], total: f64) -> f64 {
    let mean = occupied.iter().map(|(cell, count)| cell * count).sum::<f64>() / total;
    let squares: f64 = occupied.iter().map(|(cell, count)| (cell - mean).powi(2) * count).sum();
    let standard = (squares / (total - 1.0).max(1.0)).sqrt();
    let cumulated: Vec<f64> = occupied
        .iter()
        .scan(0.0, |sum, (_, count)| {
            *sum += count;
            Some(*sum)
        })
        .collect();
    let first = cumulated.partition_point(|sum| *sum < (total / 4.0).floor());
    let third = cumulated.partition_point(|sum| *sum <= (total * 3.0 / 4.0).floor()).min(occupied.len() - 1);
    let range = occupied[third].0 - occupied[first].0;
    1.059 * (range / 1.34).min(standard) * total.powf(-0.2)
}

/// The density of choices: each chosen value adds a kernel that gives some weight to the other choices.
fn of_choices(counts: &[u32]) -> Vec<f64> {
    let total: f64 = counts.iter().map(|count| f64::from(*count)).sum();
    let kernels = (occupied(counts).count() + 1) as f64;
    let choices = counts.len() as f64;
    let (own, other) = (1.0 + 1.0 / kernels, 1.0 / kernels);
    let row = 1.0 + choices / kernels;
    let share = |count: &u32| {
        let count = f64::from(*count);
        (count * own / row + (total - count) * other / row + 1.0 / choices) / (total + 1.0)
    };
    counts.iter().map(share).collect()
}

fn occupied(counts: &[u32]) -> impl Iterator<Item = (usize, f64)> {
    counts.iter().enumerate().filter(|(_, count)| **count > 0).map(|(cell, count)| (cell, f64::from(*count)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn densities_sum_to_one_on_every_kind_of_range() {
        let text = |text: &str| ferrotune_space::Value::Text(text.to_owned());
        let ranges = [
            Distribution::Float { low: -1.0, high: 1.0, step: None, scale: Scale::Linear },
            Distribution::Float { low: 1e-3, high: 1.0, step: None, scale: Scale::Log },
            Distribution::Float { low: 0.0, high: 0.95, step: Some(0.1), scale: Scale::Linear },
            Distribution::Int { low: 0, high: 3, step: 1, scale: Scale::Linear },
            Distribution::Int { low: 1, high: 1000, step: 1, scale: Scale::Log },
            Distribution::Choice { values: ["a", "b"].map(text).into(), is_ordered: false },
        ];
        for range in ranges {
            let density = on_grid(&range, &[1.0, 0.5, 1.0, 0.1]).expect("more than one value");
            assert!((density.iter().sum::<f64>() - 1.0).abs() < 1e-9, "{range:?}");
        }
        assert_eq!(on_grid(&Distribution::Int { low: 3, high: 3, step: 1, scale: Scale::Linear }, &[3.0]), None);
    }
}
