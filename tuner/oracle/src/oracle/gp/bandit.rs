//! The bandit of population-based training: a Gaussian process that predicts the parameters with which training gains most next, and
//! that gives old observations less weight. Knows no populations.
//!
//! Parker-Holder et al. (2020), Provably Efficient Online Hyperparameter Optimization with Population-Based Bandits, NeurIPS,
//! arXiv:2002.02518. In place of the paper's forgetting factor, time is a coordinate of the process, whose lengthscale is
//! learned.

use super::kernel::Axis;
use super::model::{Data, Hyper, Process, fit};
use super::regret::{standardised, width};
use crate::inferred::Space;
use crate::oracle::qmc;
use rand::RngExt as _;
use rand_pcg::Pcg64;

/// The smallest number of observations for the model, and the number of the latest observations that it uses.
const OBSERVATIONS: (usize, usize) = (4, 200);
/// The number of points that are compared.
const CANDIDATES: u64 = 512;
/// The number of evaluations of the likelihood.
const EVALUATIONS: usize = 20;
/// The centre of the prior of the noise's share of the variance: gains of a few epochs are noisy.
const LOG_NOISE: f64 = -4.0;

/// The change of a loss from one comparison of a population to the next.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::oracle) struct Observation {
    /// The parameters, in the unit cube.
    pub(in crate::oracle) point: Vec<f64>,
    /// The end of the interval, as a share of a complete training.
    pub(in crate::oracle) time: f64,
    /// The change of the loss; the most negative change is best.
    pub(in crate::oracle) change: f64,
}

/// The point with the lowest confidence bound of the change until `time`; `None` before there are enough observations. No
/// point is chosen twice: `peers` are the points of the other copies that begin now.
pub(in crate::oracle) fn choose(
    space: &Space,
    observations: &[Observation],
    peers: &[Vec<f64>],
    time: f64,
    rng: &mut Pcg64,
) -> Option<Vec<f64>> {
    let dimensions = space.dimensions.len();
    if observations.len() < OBSERVATIONS.0 || dimensions == 0 {
        return None;
    }
    let mut observations: Vec<&Observation> = observations.iter().collect();
    observations.sort_by(|a, b| a.time.total_cmp(&b.time));
    let observations = &observations[observations.len().saturating_sub(OBSERVATIONS.1)..];
    let mut axes = Axis::all(space);
    axes.push(Axis::Continuous);
    let at = |point: &[f64], time: f64| -> Vec<f64> { point.iter().copied().chain([time]).collect() };
    let mut points: Vec<Vec<f64>> = observations.iter().map(|observed| at(&observed.point, observed.time)).collect();
    let (mut values, _) = standardised(observations.iter().map(|observed| observed.change).collect());
    let prior = Hyper { log_noise: LOG_NOISE, ..Hyper::prior(axes.len(), axes.len() as f64) };
    let hyper =
        fit(&Data { axes: &axes, points: &points, values: &values, errors: &[] }, &prior, &prior, EVALUATIONS).hyper;
    let mut process = Process::new(&Data { axes: &axes, points: &points, values: &values, errors: &[] }, &hyper);
    for peer in peers {
        // The model assumes that a copy that begins now has the predicted gain.
        let point = at(peer, time);
        values.push(process.predict(&point).mean);
        points.push(point);
        process = Process::new(&Data { axes: &axes, points: &points, values: &values, errors: &[] }, &hyper);
    }
    let width = width(points.len(), dimensions);
    let bound = |point: &Vec<f64>| {
        let prediction = process.predict(&at(point, time));
        prediction.mean - width * prediction.deviation
    };
    let seed = rng.random();
    let candidates = (0..CANDIDATES).map(|index| {
        let point = qmc::point(seed, index, dimensions);
        point.iter().zip(&axes).map(|(unit, axis)| axis.snap(*unit)).collect::<Vec<f64>>()
    });
    let bounds = candidates.map(|point| (bound(&point), point));
    bounds.min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, point)| point)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inferred::Dimension;
    use ferrotune_space::{Distribution, Scale};
    use rand::SeedableRng;

    fn space() -> Space {
        let range = Distribution::Float { low: 0.0, high: 1.0, step: None, scale: Scale::Linear };
        Space { dimensions: vec![Dimension::new("lr".to_owned(), range, 0)] }
    }

    /// Observations whose best value moves from 0.2 to 0.8 in the course of the training.
    fn observations() -> Vec<Observation> {
        let observed = |index: u32| {
            let (time, unit) = (f64::from(index / 8 + 1) / 10.0, (f64::from(index) * 0.618).fract());
            Observation { point: vec![unit], time, change: (unit - 0.2 - 0.6 * time).powi(2) - 1.0 }
        };
        (0..64).map(observed).collect()
    }

    #[test]
    fn choice_follows_what_gains_most_now() {
        let chosen = |time| {
            let seen: Vec<Observation> = observations().into_iter().filter(|observed| observed.time < time).collect();
            choose(&space(), &seen, &[], time, &mut Pcg64::seed_from_u64(1)).expect("enough observations")[0]
        };
        assert!((chosen(0.3) - 0.38).abs() < 0.2, "{}", chosen(0.3));
        assert!((chosen(0.9) - 0.74).abs() < 0.15, "{}", chosen(0.9));
    }

    #[test]
    fn copies_that_begin_together_differ() {
        let choose = |peers: &[Vec<f64>]| {
            choose(&space(), &observations()[..12], peers, 0.3, &mut Pcg64::seed_from_u64(1)).expect("a choice")
        };
        let first = choose(&[]);
        assert_ne!(choose(std::slice::from_ref(&first)), first);
        assert_eq!(choose(&[]), first);
    }

    #[test]
    fn few_observations_give_no_model() {
        let choose = |count| choose(&space(), &observations()[..count], &[], 0.5, &mut Pcg64::seed_from_u64(1));
        assert!(choose(3).is_none() && choose(4).is_some());
    }
}
