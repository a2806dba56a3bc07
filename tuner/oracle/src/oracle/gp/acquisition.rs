//! The acquisition function: the logarithm of expected improvement, augmented if losses are noisy, plus the logarithm of the
//! probability that the trial neither fails nor breaks a constraint. Finds its maximum over continuous, integer, categorical and conditional
//! parameters.

use super::barrier::Barrier;
use super::evidence::is_same;
use super::excess::log_excess;
use super::expectation::Expectation;
use super::kernel::{Axis, embed};
use super::minimise::minimise;
use super::region::Region;
use crate::inferred::Space;
use crate::oracle::qmc;
use rand::RngExt as _;
use rand_pcg::Pcg64;

/// Number of points that are evaluated before the best are refined.
const SPREAD: usize = 256;
/// Number of further points, close to known good points.
const NEAR: usize = 96;
/// Number of points that are refined.
const REFINED: usize = 4;
/// Number of evaluations for refining one point.
const EVALUATIONS: usize = 30;
/// The probability that a choice keeps the value of the trust region's centre.
const KEPT: f64 = 0.75;

/// The models' predictions for a point.
pub(super) struct Promise<'a> {
    pub(super) expectation: Expectation,
    /// The loss on which a point has to improve.
    pub(super) best: f64,
    /// Standard deviation of the losses' noise; 0 if the noise is negligible.
    pub(super) noise: f64,
    /// What makes trials worthless.
    pub(super) barriers: &'a [Barrier],
}

impl Promise<'_> {
    /// Whether the noise of one value exceeds the model's uncertainty at the point.
    fn is_worth_repeating(&self, point: &[f64]) -> bool {
        self.noise > self.expectation.predict(point).deviation
    }

    /// The logarithm of the improvement that a point promises.
    pub(super) fn score(&self, point: &[f64]) -> f64 {
        let prediction = self.expectation.predict(point);
        let (excess, _) = log_excess((self.best - prediction.mean) / prediction.deviation);
        let worth: f64 = self.barriers.iter().map(|barrier| barrier.score(point)).sum();
        excess + prediction.deviation.ln() + log_gain(self.noise, prediction.deviation).0 + worth
    }

    /// The score and its gradient.
    fn score_with_slopes(&self, point: &[f64], gradient: &mut [f64]) -> f64 {
        let (prediction, by_mean, by_deviation) = self.expectation.predict_with_slopes(point);
        let z = (self.best - prediction.mean) / prediction.deviation;
        let (excess, slope) = log_excess(z);
        let (log_gain, gain_slope) = log_gain(self.noise, prediction.deviation);
        for index in 0..point.len() {
            let by_z = -(by_mean[index] + z * by_deviation[index]) / prediction.deviation;
            gradient[index] = slope * by_z + by_deviation[index] * (1.0 / prediction.deviation + gain_slope);
        }
        let worth: f64 = self.barriers.iter().map(|barrier| barrier.score_with_slopes(point, gradient)).sum();
        excess + prediction.deviation.ln() + log_gain + worth
    }
}

/// The logarithm of the factor of augmented expected improvement (Huang et al. 2006, Global optimization of stochastic
/// black-box systems, section 3.3), and its derivative by the deviation. The factor is small where one more noisy value gives little
/// information.
fn log_gain(noise: f64, deviation: f64) -> (f64, f64) {
    if noise == 0.0 {
        return (0.0, 0.0);
    }
    // 1 - n / √(s² + n²), without cancellation.
    let total = deviation.hypot(noise);
    let gain = deviation * (deviation / (total + noise)) / total;
    (gain.ln(), noise * deviation / total.powi(3) / gain)
}

/// The search for the most promising point.
pub(super) struct Quest<'a> {
    pub(super) promise: &'a Promise<'a>,
    pub(super) axes: &'a [Axis],
    pub(super) space: &'a Space,
    pub(super) region: &'a Region,
    /// Good points to search around.
    pub(super) good: &'a [Vec<f64>],
    /// Points that must not be tried again.
    pub(super) barred: &'a [Vec<f64>],
    /// Points that are tried again only if one noisy value is less certain than the model.
    pub(super) known: &'a [Vec<f64>],
    /// A typical distance over which the function changes, for each axis.
    pub(super) scales: Vec<f64>,
}

impl Quest<'_> {
    /// The most promising point that is not barred, and is new or worth a repeat, with its score; `None` if there is no such point.
    pub(super) fn run(&self, rng: &mut Pcg64) -> Option<(f64, Vec<f64>)> {
        let mut candidates: Vec<(f64, Vec<f64>)> = self
            .spread(rng)
            .into_iter()
            .chain(self.near(rng))
            .map(|point| embed(self.axes, self.space, &point))
            .map(|point| (self.promise.score(&point), point))
            .filter(|(score, _)| !score.is_nan())
            .collect();
        candidates.sort_by(|a, b| b.0.total_cmp(&a.0));
        let mut refined: Vec<(f64, Vec<f64>)> =
            candidates.iter().take(REFINED).map(|(score, point)| self.refine(*score, point)).collect();
        refined.sort_by(|a, b| b.0.total_cmp(&a.0));
        let mut ordered = refined.into_iter().chain(candidates);
        ordered.find(|(_, point)| {
            let is_among = |others: &[Vec<f64>]| others.iter().any(|other| is_same(other, point));
            !is_among(self.barred) && (!is_among(self.known) || self.promise.is_worth_repeating(point))
        })
    }

    /// Points spread evenly over the region.
    fn spread(&self, rng: &mut Pcg64) -> Vec<Vec<f64>> {
        let seed = rng.random();
        let point = |index: usize| qmc::point(seed, index as u64, self.axes.len());
        (0..SPREAD).map(|index| self.place(&point(index), rng)).collect()
    }

    /// Maps a point of the unit cube to the region.
    fn place(&self, unit: &[f64], rng: &mut Pcg64) -> Vec<f64> {
        let place = |index: usize| {
            let (low, high) = self.region.bounds[index];
            match (&self.region.centre, &self.axes[index]) {
                (Some(centre), Axis::Choice(_)) if centre[index] >= 0.0 && rng.random_bool(KEPT) => centre[index],
                (_, axis) => axis.snap(low + unit[index] * (high - low)),
            }
        };
        (0..unit.len()).map(place).collect()
    }

    /// Points close to good points, which differ from them in some coordinates.
    fn near(&self, rng: &mut Pcg64) -> Vec<Vec<f64>> {
        if self.good.is_empty() {
            return Vec::new();
        }
        let mut near = Vec::with_capacity(NEAR);
        for index in 0..NEAR {
            let reach = 0.5_f64.powi(1 + (index / self.good.len() % 5) as i32);
            let mut point = self.good[index % self.good.len()].clone();
            for (index, axis) in self.axes.iter().enumerate() {
                let (low, high) = self.region.bounds[index];
                let is_moved = rng.random_bool(0.5);
                match axis {
                    Axis::Choice(_) if !is_moved || rng.random_bool(0.5) => {}
                    Axis::Choice(_) => point[index] = axis.snap(rng.random()),
                    _ if is_moved => {
                        let step = reach * self.scales[index] * (rng.random::<f64>() + rng.random::<f64>() - 1.0);
                        point[index] = axis.snap((point[index] + step).clamp(low, high));
                    }
                    _ => point[index] = axis.snap(point[index].clamp(low, high)),
                }
                if point[index] < 0.0 {
                    // A choice that becomes active needs a value.
                    point[index] = axis.snap(rng.random());
                }
            }
            near.push(point);
        }
        near
    }

    /// Climbs from a point: continuous coordinates by the gradient, the others by their neighbours.
    fn refine(&self, score: f64, point: &[f64]) -> (f64, Vec<f64>) {
        let mut best = (score, point.to_vec());
        for _ in 0..3 {
            let before = best.0;
            best = self.climb(best);
            best = self.step(best);
            if best.0 <= before + 1e-6 {
                break;
            }
        }
        best
    }

    fn climb(&self, (score, point): (f64, Vec<f64>)) -> (f64, Vec<f64>) {
        let is_smooth = |index: usize| matches!(self.axes[index], Axis::Continuous | Axis::Fine(_));
        let is_free = |index: usize| is_smooth(index) && self.space.is_active(index, &point);
        let free: Vec<usize> = (0..point.len()).filter(|index| is_free(*index)).collect();
        if free.is_empty() {
            return (score, point);
        }
        let start: Vec<f64> = free.iter().map(|index| point[*index]).collect();
        let bounds: Vec<(f64, f64)> = free.iter().map(|index| self.region.bounds[*index]).collect();
        let (mut whole, mut slopes) = (point.clone(), vec![0.0; point.len()]);
        let minimum = minimise(&start, &bounds, EVALUATIONS, |place, gradient| {
            free.iter().zip(place).for_each(|(index, value)| whole[*index] = *value);
            let score = self.promise.score_with_slopes(&whole, &mut slopes);
            free.iter().zip(gradient).for_each(|(index, slope)| *slope = -slopes[*index]);
            -score
        });
        if minimum.value >= -score {
            return (score, point);
        }
        let mut better = point.clone();
        free.iter().zip(&minimum.point).for_each(|(index, value)| better[*index] = *value);
        if free.iter().all(|index| self.axes[*index] == Axis::Continuous) {
            return (-minimum.value, better);
        }
        free.iter().for_each(|index| better[*index] = self.axes[*index].snap(better[*index]));
        let snapped = self.promise.score(&better);
        if snapped > score { (snapped, better) } else { (score, point) }
    }

    /// Tries each discrete coordinate's other values, or the neighbouring values on a lattice.
    fn step(&self, mut best: (f64, Vec<f64>)) -> (f64, Vec<f64>) {
        for (index, axis) in self.axes.iter().enumerate() {
            let (low, high) = self.region.bounds[index];
            let current = best.1[index];
            let others: Vec<f64> = match axis {
                Axis::Continuous | Axis::Fine(_) => continue,
                Axis::Choice(values) => values.iter().copied().filter(|value| *value != current).collect(),
                Axis::Levels(levels) => {
                    let below = levels.iter().rev().find(|level| **level < current && **level >= low);
                    let above = levels.iter().find(|level| **level > current && **level <= high);
                    below.into_iter().chain(above).copied().collect()
                }
            };
            if !self.space.is_active(index, &best.1) {
                continue;
            }
            for value in others {
                let mut point = best.1.clone();
                point[index] = value;
                let point = embed(self.axes, self.space, &point);
                let score = self.promise.score(&point);
                if score > best.0 {
                    best = (score, point);
                }
            }
        }
        best
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slope_of_the_augmentation_is_that_of_its_value() {
        assert_eq!(log_gain(0.0, 0.3), (0.0, 0.0));
        for (noise, deviation) in [(0.1, 1e-3), (0.1, 0.1), (0.5, 2.0)] {
            let value = |deviation: f64| log_gain(noise, deviation).0;
            let (value_here, slope) = log_gain(noise, deviation);
            assert!((value_here.exp() - (1.0 - noise / deviation.hypot(noise))).abs() < 1e-12);
            let step = 1e-4 * deviation;
            let difference = (value(deviation + step) - value(deviation - step)) / (2.0 * step);
            assert!((slope - difference).abs() < 1e-6 * slope.abs(), "{noise} {deviation}: {slope} {difference}");
        }
    }
}
