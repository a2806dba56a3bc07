//! Models of what makes a trial worthless: it fails, or breaks a constraint. Each gives the probability that a trial at a point does not.

use super::evidence::Evidence;
use super::excess::log_cumulative;
use super::kernel::Axis;
use super::model::{Data, Fit, Hyper, Process, fit};

/// The largest number of trials in a model, and of those to which its hyper-parameters are fitted.
const MOST: usize = 300;
const FITTED: usize = 100;
/// The number of evaluations of the likelihood for a fit.
const EVALUATIONS: usize = 12;
/// The prediction below which a point is safe from failure; -1 means that trials succeed, 1 that they fail. With 0, every
/// second trial near the boundary would fail.
const SAFE: f64 = -0.5;
/// The number of deviations by which a prediction may be beyond a constraint's bound.
const SLACK: f64 = 1.0;
/// The penalty for a point beyond a bound. It exceeds every expected improvement: where the loss is well known, the
/// logarithm falls without limit and would outweigh the probability of failure at the boundary, where the best point
/// often is.
const FINE: f64 = 1e9;

/// A process whose value a trial must not exceed.
#[derive(Debug)]
pub(super) struct Barrier {
    process: Process,
    bound: f64,
    /// The number of deviations by which a prediction may be beyond the bound.
    slack: f64,
}

impl Barrier {
    /// The barriers that trials have met.
    pub(super) fn all(evidence: &Evidence) -> Vec<Barrier> {
        let constraints = evidence.excesses.iter().map(Vec::len).max().unwrap_or(0);
        let limit = |constraint: usize| {
            let known = evidence.points.iter().zip(&evidence.excesses).filter_map(|(point, excesses)| {
                let excess = excesses.get(constraint).filter(|excess| excess.is_finite())?;
                Some((point, *excess))
            });
            Barrier::of_constraint(&evidence.axes, &evidence.prior, known.collect())
        };
        Barrier::of_failure(evidence).into_iter().chain((0..constraints).filter_map(limit)).collect()
    }

    /// 1 for trials that have failed, or have no value of a constraint, and -1 for all others; none if there are only others.
    fn of_failure(evidence: &Evidence) -> Option<Barrier> {
        let is_known = |excesses: &Vec<f64>| excesses.iter().all(|excess| excess.is_finite());
        if evidence.failed.is_empty() && evidence.excesses.iter().all(is_known) {
            return None;
        }
        let went = evidence.excesses.iter().map(|excesses| if is_known(excesses) { -1.0 } else { 1.0 });
        let failed = evidence.failed.iter().map(|point| (point, 1.0));
        let cases: Vec<(&Vec<f64>, f64)> = evidence.points.iter().zip(went).chain(failed).collect();
        Some(Barrier { process: process(&evidence.axes, &evidence.prior, &cases), bound: SAFE, slack: 0.0 })
    }

    /// The distance beyond a constraint's bound, its logarithm if it is far beyond those of most trials, as in SCBO (Eriksson and
    /// Poloczek 2021, arXiv 2002.08526); none if no trial has broken the constraint.
    fn of_constraint(axes: &[Axis], prior: &Hyper, mut cases: Vec<(&Vec<f64>, f64)>) -> Option<Barrier> {
        if cases.iter().all(|(_, excess)| *excess <= 0.0) {
            return None;
        }
        let mut sizes: Vec<f64> = cases.iter().map(|(_, excess)| excess.abs()).filter(|size| *size > 0.0).collect();
        sizes.sort_by(f64::total_cmp);
        // Most trials are soon close to the bound, and the median would make a step of it.
        let unit = sizes[sizes.len() * 9 / 10];
        // Some programs tell only by how much a trial breaks a constraint, and 0 of one that keeps it.
        if cases.iter().all(|(_, excess)| *excess >= 0.0) {
            cases.iter_mut().filter(|(_, excess)| *excess == 0.0).for_each(|(_, excess)| *excess = -unit);
        }
        cases.iter_mut().for_each(|(_, value)| *value = value.signum() * (value.abs() / unit).ln_1p());
        let mean = cases.iter().map(|(_, value)| value).sum::<f64>() / cases.len() as f64;
        let variance = cases.iter().map(|(_, value)| (value - mean).powi(2)).sum::<f64>() / cases.len() as f64;
        let deviation = if variance > 0.0 { variance.sqrt() } else { 1.0 };
        cases.iter_mut().for_each(|(_, value)| *value /= deviation);
        Some(Barrier { process: process(axes, prior, &cases), bound: 0.0, slack: SLACK })
    }

    /// The logarithm of the probability that a trial at a point keeps below the bound, less a penalty where that is improbable.
    pub(super) fn score(&self, point: &[f64]) -> f64 {
        let prediction = self.process.predict(point);
        let z = (self.bound - prediction.mean) / prediction.deviation;
        log_cumulative(z).0 - FINE * (z + self.slack).min(0.0).powi(2)
    }

    /// The score; its gradient is added to `gradient`.
    pub(super) fn score_with_slopes(&self, point: &[f64], gradient: &mut [f64]) -> f64 {
        let (prediction, by_mean, by_deviation) = self.process.predict_with_slopes(point);
        let z = (self.bound - prediction.mean) / prediction.deviation;
        let (log_kept, slope) = log_cumulative(z);
        let beyond = (z + self.slack).min(0.0);
        let slope = slope - 2.0 * FINE * beyond;
        for index in 0..point.len() {
            gradient[index] -= slope * (by_mean[index] + z * by_deviation[index]) / prediction.deviation;
        }
        log_kept - FINE * beyond.powi(2)
    }
}

/// A process over points with values; evenly chosen ones if there are many.
fn process(axes: &[Axis], prior: &Hyper, cases: &[(&Vec<f64>, f64)]) -> Process {
    let chosen = |most: usize| -> (Vec<Vec<f64>>, Vec<f64>) {
        cases.iter().step_by(cases.len().div_ceil(most)).map(|(point, value)| ((*point).clone(), *value)).unzip()
    };
    let (points, values) = chosen(FITTED);
    let data = Data { axes, points: &points, values: &values, errors: &[] };
    let Fit { hyper, .. } = fit(&data, prior, prior, EVALUATIONS);
    let (points, values) = chosen(MOST);
    Process::new(&Data { points: &points, values: &values, ..data }, &hyper)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A barrier of a constraint over one axis, of which `excess` tells the distances at eleven places.
    fn constraint(excess: fn(f64) -> f64) -> Option<Barrier> {
        let points: Vec<Vec<f64>> = (0..=10).map(|tenth| vec![f64::from(tenth) / 10.0]).collect();
        let cases = points.iter().map(|point| (point, excess(point[0]))).collect();
        Barrier::of_constraint(&[Axis::Continuous], &Hyper::prior(1, 1.0), cases)
    }

    #[test]
    fn a_broken_constraint_is_a_barrier_at_its_bound() {
        assert!(constraint(|x| x - 1.0).is_none());
        // The unit does not matter, and distances far away hide none that are small.
        for excess in [(|x| x - 0.55) as fn(f64) -> f64, |x| 1e9 * (x - 0.55), |x| (8.0 * (x - 0.55)).sinh()] {
            let barrier = constraint(excess).unwrap();
            assert!(barrier.score(&[0.52]) > -0.05, "{}", barrier.score(&[0.52]));
            assert!(barrier.score(&[0.58]) < -1e3, "{}", barrier.score(&[0.58]));
        }
    }

    #[test]
    fn a_constraint_whose_distance_is_unknown_within_the_bound_is_a_barrier_too() {
        let barrier = constraint(|x| (x - 0.45).max(0.0)).unwrap();
        for (x, is_open) in [(0.0, true), (0.13, true), (0.38, true), (0.62, false), (0.97, false)] {
            assert_eq!(barrier.score(&[x]) > -0.1, is_open, "{x}: {}", barrier.score(&[x]));
        }
    }

    #[test]
    fn the_slope_of_a_barrier_is_that_of_its_score() {
        let barrier = constraint(|x| (9.0 * x).sin()).unwrap();
        for x in [0.03, 0.351, 0.72, 0.97] {
            let mut slope = [0.5];
            let (score, known) = (barrier.score_with_slopes(&[x], &mut slope), barrier.score(&[x]));
            assert!((score - known).abs() < 1e-9 * (1.0 + known.abs()), "{x}: {score} {known}");
            let difference = (barrier.score(&[x + 1e-6]) - barrier.score(&[x - 1e-6])) / 2e-6;
            let error = (slope[0] - 0.5 - difference).abs();
            assert!(error < 1e-3 * (1.0 + difference.abs()), "{x}: {} {difference}", slope[0] - 0.5);
        }
    }
}
