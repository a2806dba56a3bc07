//! A bound on the improvement over the best trial that is still possible, from a Gaussian process.

use super::evidence::active;
use super::kernel::{Axis, embed};
use super::model::{Data, Hyper, Process, fit};
use crate::oracle::history::{History, Row};
use crate::oracle::qmc;

/// The smallest and the largest number of trials in the fit; between these limits the fit has the better half of the trials.
const TRIALS: (usize, usize) = (20, 150);
/// The number of points of the space, and of points near the best trial, at which the process predicts.
const PROBES: u64 = 512;
/// The side of the cube of points near the best trial.
const NEAR: f64 = 0.1;
/// The probability that the bound does not hold.
const DELTA: f64 = 0.1;

/// A bound, with 90 % confidence, on the best trial's simple regret, in the unit of the losses; `None` without
/// parameters, or without a finished trial that keeps all constraints.
///
/// Makarova et al. (2022), Automatic Termination for Hyperparameter Optimization, AutoML, section 3: the smallest upper
/// confidence bound of the trials minus the smallest lower confidence bound of the space.
pub(in crate::oracle) fn bound(history: &History) -> Option<f64> {
    let dimensions = history.space.dimensions.len();
    let axes = Axis::all(&history.space);
    let mut order: Vec<(&Row, f64)> =
        history.rows.iter().filter_map(|row| Some((row, row.outcome.kept_loss()?))).collect();
    order.sort_by(|a, b| a.1.total_cmp(&b.1));
    order.truncate((order.len() / 2).clamp(TRIALS.0, TRIALS.1));
    let centre = order.first().filter(|_| dimensions > 0)?.0.point.clone();
    let embedded = |point: &Vec<f64>| embed(&axes, &history.space, point);
    let points: Vec<Vec<f64>> = order.iter().map(|(row, _)| embedded(&row.point)).collect();
    let (values, deviation) = standardised(order.iter().map(|(_, loss)| *loss).collect());
    let data = Data { axes: &axes, points: &points, values: &values, errors: &[] };
    let prior = Hyper::prior(dimensions, active(&history.rows));
    let process = Process::new(&data, &fit(&data, &prior, &prior, 30).hyper);
    let width = width(points.len(), dimensions);
    let upper = |point: &Vec<f64>| {
        let prediction = process.predict(point);
        prediction.mean + width * prediction.deviation
    };
    let lower = |point: &Vec<f64>| 2.0 * process.predict(point).mean - upper(point);
    let probes = (0..PROBES).flat_map(|index| {
        let wide = qmc::point(history.settings.seed, index, dimensions);
        let nearby = |(unit, probe): (&f64, &f64)| (unit + NEAR * (probe - 0.5)).clamp(0.0, 1.0);
        let near: Vec<f64> = centre.iter().zip(&wide).map(nearby).collect();
        [embedded(&wide), embedded(&near)]
    });
    let reached = points.iter().map(upper).fold(f64::INFINITY, f64::min);
    let reachable = points.iter().cloned().chain(probes).map(|point| lower(&point)).fold(f64::INFINITY, f64::min);
    Some((reached - reachable) * deviation)
}

/// The values scaled to mean 0 and variance 1, and their standard deviation before.
pub(super) fn standardised(values: Vec<f64>) -> (Vec<f64>, f64) {
    let size = values.len() as f64;
    let mean = values.iter().sum::<f64>() / size;
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / size;
    let deviation = variance.sqrt().max(1e-10);
    (values.into_iter().map(|value| (value - mean) / deviation).collect(), deviation)
}

/// The distance of a confidence bound from the mean, in standard deviations, for a process at `points` points.
///
/// Srinivas et al. (2010), theorem 1, divided by 5 as in their experiments.
pub(super) fn width(points: usize, dimensions: usize) -> f64 {
    let size = points as f64;
    (2.0 * (dimensions as f64 * size * size * std::f64::consts::PI.powi(2) / (6.0 * DELTA)).ln() / 5.0).max(0.0).sqrt()
}
