//! A density over the unit cube: a mixture of a kernel for each point and a flat kernel. Numbers have truncated normal kernels,
//! and choices have kernels with most weight on one value. Pure mathematics.

use crate::inferred::{Dimension, Space};
use crate::normal;
use ferrotune_space::{Distribution, Scale};
use rand::RngExt as _;
use rand_pcg::Pcg64;

/// Factor for the bandwidth of Scott's rule (1992), which assumes one cluster of points; good trials form several.
const FACTOR: f64 = 0.6;
/// The bounds of the bandwidth, as shares of the axis.
const NARROWEST: f64 = 0.03;
const WIDEST: f64 = 0.2;
/// The number of points at which a kernel's integral over the unit interval is computed; between them it is interpolated.
const KNOTS: usize = 64;
/// The largest number of cells for which a kernel's mean over a cell is computed. With more cells, each cell is narrower than a
/// third of any kernel, so a kernel is almost constant in a cell.
const MOST_CELLS: f64 = 100.0;
/// The logarithm of a number that is less than a quarter of the distance from 1 to the next lower number.
const NEGLIGIBLE: f64 = -38.5;

/// An axis of the estimator.
#[derive(Debug)]
enum Axis {
    /// A numeric axis.
    Number {
        /// Standard deviation of every kernel.
        deviation: f64,
        /// Minus the logarithm of a kernel's normalisation, by its centre; empty if there are so few kernels that each
        /// one is computed exactly.
        log_scale: Vec<f64>,
        /// Number of values of the range; `None` for a continuous range.
        cells: Option<f64>,
        /// Logarithm of a kernel's mean over a cell, by the distance from the kernel's own cell, without its normalisation;
        /// empty unless there are at most [`MOST_CELLS`] cells.
        log_means: Vec<f64>,
    },
    /// An axis of a choice with this many values.
    Choice {
        cells: f64,
        /// Logarithm of the density, over the unit interval, at a kernel's own value and at any other.
        log_same: f64,
        log_other: f64,
    },
}

/// A mixture of kernels.
#[derive(Debug)]
pub(super) struct Parzen<'a> {
    axes: Vec<Axis>,
    points: &'a [&'a [f64]],
    /// The kernels by axis, so that the processor computes the densities of several kernels at once.
    columns: Vec<Column>,
}

/// All kernels along one axis.
#[derive(Debug)]
struct Column {
    /// The centre of each kernel; NaN for a point without that coordinate.
    centres: Vec<f64>,
    /// The logarithm of each kernel's normalisation; 0 if there is no coordinate.
    log_scales: Vec<f64>,
    /// The cumulative probabilities of each kernel at the ends of the unit interval; empty on a choice, and if there
    /// are so many kernels that their normalisation is interpolated.
    ends: Vec<(f64, f64)>,
}

impl<'a> Parzen<'a> {
    /// The estimator of these points; the kernel of a NaN coordinate is flat.
    pub(super) fn new(space: &Space, points: &'a [&'a [f64]]) -> Parzen<'a> {
        let kernels = points.len() as f64 + 1.0;
        let narrowing = kernels.powf(-1.0 / (space.dimensions.len() as f64 + 4.0));
        let axis = |(index, dimension): (usize, &Dimension)| {
            let distribution = &dimension.distribution;
            let bandwidth = (FACTOR * spread(points, index) * narrowing).clamp(NARROWEST, WIDEST);
            match (distribution, distribution.cells()) {
                (Distribution::Choice { is_ordered: false, .. }, Some(cells)) => choice(cells, kernels),
                // The cells of a logarithmic range have different widths.
                (Distribution::Int { scale: Scale::Log | Scale::ReverseLog, .. }, _) => {
                    number(bandwidth, None, kernels)
                }
                (_, cells) => number(bandwidth, cells, kernels),
            }
        };
        let axes: Vec<Axis> = space.dimensions.iter().enumerate().map(axis).collect();
        let column = |(index, axis): (usize, &Axis)| {
            let centres: Vec<f64> = points.iter().map(|point| point[index]).collect();
            match axis {
                Axis::Number { deviation, log_scale, .. } if log_scale.is_empty() => {
                    let ends: Vec<(f64, f64)> = centres.iter().map(|centre| ends(*centre, *deviation)).collect();
                    let scale =
                        |ends: &(f64, f64)| if ends.0.is_nan() { 0.0 } else { exact_log_scale(*ends, *deviation) };
                    Column { log_scales: ends.iter().map(scale).collect(), centres, ends }
                }
                _ => {
                    let log_scales = centres.iter().map(|centre| axis.log_scale(*centre)).collect();
                    Column { centres, log_scales, ends: Vec::new() }
                }
            }
        };
        let columns = axes.iter().enumerate().map(column).collect();
        Parzen { axes, points, columns }
    }

    /// Draws a point: first a kernel, and then a point from that kernel.
    pub(super) fn sample(&self, rng: &mut Pcg64) -> Vec<f64> {
        let kernel = rng.random_range(0..=self.points.len());
        let draw = |(axis, column): (&Axis, &Column)| match column.centres.get(kernel) {
            Some(centre) if !centre.is_nan() => axis.sample(*centre, column.ends.get(kernel).copied(), rng),
            _ => axis.snap(rng.random()),
        };
        self.axes.iter().zip(&self.columns).map(draw).collect()
    }

    /// Logarithm of the density over the active axes at a point.
    pub(super) fn log_density(&self, point: &[f64], active: &[bool]) -> f64 {
        // The flat kernel comes first and has density 1.
        let mut logs = vec![0.0; self.points.len() + 1];
        for (index, axis) in self.axes.iter().enumerate().filter(|(index, _)| active[*index]) {
            axis.add_log_kernels(point[index], &self.columns[index], &mut logs[1..]);
        }
        let highest = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let mut sum = 0.0;
        for depth in logs.iter().map(|log| log - highest) {
            // A term below half of the sum's last bit does not change the sum.
            if sum < 1.0 || depth > NEGLIGIBLE {
                sum += depth.exp();
            }
        }
        highest + sum.ln() - (logs.len() as f64).ln()
    }
}

/// Standard deviation of the points along an axis, including the point of the flat kernel.
fn spread(points: &[&[f64]], axis: usize) -> f64 {
    let units = points.iter().map(|point| point[axis]).filter(|unit| !unit.is_nan());
    let (count, sum) = units.clone().fold((1.0, 0.5), |(count, sum), unit| (count + 1.0, sum + unit));
    let mean = sum / count;
    let squares: f64 = units.map(|unit| (unit - mean).powi(2)).sum();
    ((squares + (0.5 - mean).powi(2) + 1.0 / 12.0) / count).sqrt()
}

fn number(bandwidth: f64, cells: Option<f64>, kernels: f64) -> Axis {
    // A kernel narrower than a cell would separate neighbours on a lattice that are almost equal.
    let deviation = cells.map_or(bandwidth, |cells| bandwidth.max(0.5 / cells));
    let log_scale = match kernels > KNOTS as f64 {
        true => {
            // By symmetry, a kernel has the same probability below 0 as its mirror image has above 1.
            let below: Vec<f64> =
                (0..=KNOTS).map(|knot| normal::cumulative(-(knot as f64) / KNOTS as f64 / deviation)).collect();
            (0..=KNOTS).map(|knot| exact_log_scale((below[knot], 1.0 - below[KNOTS - knot]), deviation)).collect()
        }
        false => Vec::new(),
    };
    let log_means =
        cells.filter(|cells| *cells <= MOST_CELLS).map_or_else(Vec::new, |cells| log_means(deviation, cells));
    Axis::Number { deviation, log_scale, cells, log_means }
}

/// Logarithms of the mean of exp(-x²/2) over cells, with x in standard deviations, by a cell's distance from the centre's cell. A
/// lattice value has the probability of its whole cell, which differs from the density at the cell's middle.
fn log_means(deviation: f64, cells: f64) -> Vec<f64> {
    let above: Vec<f64> =
        (0..cells as usize).map(|cell| normal::cumulative(-(cell as f64 + 0.5) / cells / deviation)).collect();
    let height = deviation * (2.0 * std::f64::consts::PI).sqrt() * cells;
    let beyond = above.windows(2).map(|pair| pair[0] - pair[1]);
    std::iter::once(1.0 - 2.0 * above[0]).chain(beyond).map(|mass| (mass * height).ln()).collect()
}

/// The probabilities of a normal kernel up to the ends of the unit interval.
fn ends(centre: f64, deviation: f64) -> (f64, f64) {
    (normal::cumulative(-centre / deviation), normal::cumulative((1.0 - centre) / deviation))
}

/// Minus the logarithm of a normal kernel's integral over the unit interval, without its height at the centre.
fn exact_log_scale((low, high): (f64, f64), deviation: f64) -> f64 {
    -(deviation * (2.0 * std::f64::consts::PI).sqrt() * (high - low)).ln()
}

/// The axis of a choice: a kernel gives its own value the weight of one observation, and every value a share of another one.
fn choice(cells: f64, kernels: f64) -> Axis {
    let weight = 1.0 / kernels;
    let log = |own: f64| ((own + weight) / (1.0 + cells * weight) * cells).ln();
    Axis::Choice { cells, log_same: log(1.0), log_other: log(0.0) }
}

impl Axis {
    /// The interpolated logarithm of the normalisation of a kernel at `centre`.
    fn log_scale(&self, centre: f64) -> f64 {
        match self {
            Axis::Number { log_scale, .. } if !centre.is_nan() => {
                let place = centre.clamp(0.0, 1.0) * KNOTS as f64;
                let knot = (place as usize).min(KNOTS - 1);
                log_scale[knot] + (place - knot as f64) * (log_scale[knot + 1] - log_scale[knot])
            }
            _ => 0.0,
        }
    }

    /// Adds to each sum the logarithm of a kernel's density at `unit`.
    fn add_log_kernels(&self, unit: f64, column: &Column, sums: &mut [f64]) {
        let kernels = column.centres.iter().zip(&column.log_scales).zip(sums);
        match self {
            Axis::Number { cells: Some(cells), log_means, .. } if !log_means.is_empty() => {
                for ((centre, log_scale), sum) in kernels {
                    // Without a coordinate, the distance is 0.
                    let distance = ((unit - centre).abs() * cells).round() as usize;
                    let log = log_scale + log_means[distance.min(log_means.len() - 1)];
                    *sum += if centre.is_nan() { 0.0 } else { log };
                }
            }
            Axis::Number { deviation, .. } => {
                for ((centre, log_scale), sum) in kernels {
                    let distance = (unit - centre) / deviation;
                    let log = log_scale - 0.5 * distance * distance;
                    *sum += if centre.is_nan() { 0.0 } else { log };
                }
            }
            Axis::Choice { log_same, log_other, .. } => {
                for ((centre, _), sum) in kernels {
                    let log = if (unit - centre).abs() < 1e-9 { log_same } else { log_other };
                    *sum += if centre.is_nan() { 0.0 } else { *log };
                }
            }
        }
    }

    /// Draws a value from the kernel at `centre`; `ends` are its probabilities at the ends of the interval, if known.
    fn sample(&self, centre: f64, known: Option<(f64, f64)>, rng: &mut Pcg64) -> f64 {
        match self {
            Axis::Number { deviation, .. } => {
                let (low, high) = known.unwrap_or_else(|| ends(centre, *deviation));
                let place = low + rng.random::<f64>() * (high - low);
                self.snap((centre + deviation * normal::quantile(place)).clamp(0.0, 1.0))
            }
            Axis::Choice { cells, log_same, .. } => {
                let own = log_same.exp() / cells;
                if rng.random::<f64>() < own || *cells < 2.0 {
                    return centre;
                }
                // The step to one of the other values.
                let step = rng.random_range(1..*cells as u64) as f64;
                (centre + step / cells) % 1.0
            }
        }
    }

    /// The coordinate of the value whose cell contains this coordinate.
    fn snap(&self, unit: f64) -> f64 {
        let cells = match self {
            Axis::Number { cells, .. } => *cells,
            Axis::Choice { cells, .. } => Some(*cells),
        };
        cells.map_or(unit, |cells| ((unit * cells).floor().min(cells - 1.0) + 0.5) / cells)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferrotune_space::Value;
    use rand::SeedableRng as _;

    fn space() -> Space {
        let float = Distribution::Float { low: 0.0, high: 1.0, step: None, scale: Scale::Linear };
        let choice = Distribution::Choice { values: (0..3).map(Value::Int).collect(), is_ordered: false };
        let dimensions = [("x", float), ("c", choice)];
        let dimension = |(name, distribution): (&str, Distribution)| Dimension::new(name.to_owned(), distribution, 0);
        Space { dimensions: dimensions.into_iter().map(dimension).collect() }
    }

    #[test]
    fn density_integrates_to_one() {
        let space = space();
        let points: [&[f64]; 3] = [&[0.02, 0.5], &[0.7, 1.0 / 6.0], &[f64::NAN, 0.5]];
        let estimator = Parzen::new(&space, &points);
        let mut sum = 0.0;
        for step in 0..1000 {
            for cell in 0..3 {
                let point = [(f64::from(step) + 0.5) / 1000.0, (f64::from(cell) + 0.5) / 3.0];
                sum += estimator.log_density(&point, &[true, true]).exp() / 3000.0;
            }
        }
        assert!((sum - 1.0).abs() < 1e-3, "{sum}");
        assert!((estimator.log_density(&[0.3, 0.5], &[false, false])).abs() < 1e-12);
    }

    #[test]
    fn whole_number_has_the_probability_of_its_cell() {
        let range = Distribution::Int { low: 0, high: 5, step: 1, scale: Scale::Linear };
        let space = Space { dimensions: vec![Dimension::new("n".to_owned(), range, 0)] };
        let points: Vec<[f64; 1]> = [0, 0, 0, 2, 5].map(|cell| [(f64::from(cell) + 0.5) / 6.0]).to_vec();
        let points: Vec<&[f64]> = points.iter().map(|point| point.as_slice()).collect();
        let estimator = Parzen::new(&space, &points);
        let cells: Vec<f64> = (0..6).map(|cell| (f64::from(cell) + 0.5) / 6.0).collect();
        let expected = cells.iter().map(|cell| estimator.log_density(&[*cell], &[true]).exp() / 6.0);
        let expected: Vec<f64> = expected.collect();
        assert!((expected.iter().sum::<f64>() - 1.0).abs() < 1e-12, "{expected:?}");
        let mut rng = Pcg64::seed_from_u64(7);
        let samples: Vec<f64> = (0..100_000).map(|_| estimator.sample(&mut rng)[0]).collect();
        for (cell, expected) in cells.iter().zip(expected) {
            let found = samples.iter().filter(|sample| (*sample - cell).abs() < 1e-9).count() as f64 / 100_000.0;
            assert!((found - expected).abs() < 0.005, "{cell}: {found} for {expected}");
        }
    }

    #[test]
    fn samples_follow_the_density() {
        let space = space();
        let points: [&[f64]; 2] = [&[0.0, 0.5], &[0.05, 0.5]];
        let estimator = Parzen::new(&space, &points);
        let mut rng = Pcg64::seed_from_u64(7);
        let samples: Vec<Vec<f64>> = (0..10_000).map(|_| estimator.sample(&mut rng)).collect();
        for (low, high) in [(0.0, 0.1), (0.1, 0.3), (0.6, 1.0)] {
            let expected: f64 = (0..200)
                .map(|step| {
                    let x = low + (high - low) * (f64::from(step) + 0.5) / 200.0;
                    estimator.log_density(&[x, 0.5], &[true, false]).exp() * (high - low) / 200.0
                })
                .sum();
            let found = samples.iter().filter(|sample| (low..high).contains(&sample[0])).count() as f64 / 10_000.0;
            assert!((found - expected).abs() < 0.02, "{low}..{high}: {found} for {expected}");
        }
        let middle = samples.iter().filter(|sample| (sample[1] - 0.5).abs() < 1e-9).count();
        let expected = estimator.log_density(&[0.5, 0.5], &[false, true]).exp() / 3.0;
        assert!((middle as f64 / 10_000.0 - expected).abs() < 0.02);
    }
}
