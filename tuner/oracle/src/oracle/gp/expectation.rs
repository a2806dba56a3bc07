//! What a search expects of the losses: a Gaussian process, around what the models of earlier studies expect as far as they have been right
//! about the order of this search's losses.
//!
//! The weights are those of Feurer et al. (2018), Practical Transfer Learning for Bayesian Optimization, arXiv:1802.02219. Their sum of
//! models is the mean of this search's process here, so that the process has this search's losses at its points, and its own uncertainty.

use super::earlier::Earlier;
use super::model::{Prediction, Process};
use crate::normal;
use rand_pcg::Pcg64;
use std::sync::Arc;

/// The number of draws of the losses that the models are compared by.
const DRAWS: usize = 200;
/// The share of the draws in which the search's own model must not be better than the median of an earlier one, which has no weight
/// otherwise.
const DOUBT: f64 = 0.95;
/// The number of losses by which the weights are counted, the newest ones.
const RANKED: usize = 50;
/// The weight, in losses, of the assumption that a unit of an earlier model is one of this search's.
const UNIT_PRIOR: f64 = 1.0;

/// A process over the differences from the prior mean.
#[derive(Clone, Debug)]
pub(super) struct Expectation {
    pub(super) process: Process,
    pub(super) prior: PriorMean,
}

/// What the models of earlier studies expect together; 0 without such a model.
#[derive(Clone, Debug, Default)]
pub(super) struct PriorMean {
    /// The earlier models, each with the number of this search's units that one of its units is worth.
    members: Vec<(f64, Arc<Earlier>)>,
}

impl Expectation {
    pub(super) fn around(prior: PriorMean, process: Process) -> Expectation {
        Expectation { process, prior }
    }

    pub(super) fn predict(&self, point: &[f64]) -> Prediction {
        let prediction = self.process.predict(point);
        Prediction { mean: prediction.mean + self.prior.at(point), ..prediction }
    }

    /// The prediction, and the gradients of its mean and its deviation.
    pub(super) fn predict_with_slopes(&self, point: &[f64]) -> (Prediction, Vec<f64>, Vec<f64>) {
        let (mut prediction, mut by_mean, by_deviation) = self.process.predict_with_slopes(point);
        for (worth, earlier) in &self.prior.members {
            let (mean, slopes) = earlier.process.mean_with_slopes(point);
            prediction.mean += worth * mean;
            by_mean.iter_mut().zip(slopes).for_each(|(sum, slope)| *sum += worth * slope);
        }
        (prediction, by_mean, by_deviation)
    }
}

impl PriorMean {
    /// The prior mean by these earlier models, for a search whose own process has these points and values.
    pub(super) fn of(
        earlier: &[&Arc<Earlier>],
        own: &Process,
        points: &[Vec<f64>],
        values: &[f64],
        rng: &mut Pcg64,
    ) -> PriorMean {
        if earlier.is_empty() {
            return PriorMean::default();
        }
        let first = values.len().saturating_sub(RANKED);
        let left_out = own.predict_left_out(values).split_off(first);
        let predicted: Vec<Vec<Prediction>> =
            earlier.iter().map(|known| points.iter().map(|point| known.process.predict(point)).collect()).collect();
        let ranked: Vec<&[Prediction]> = predicted.iter().map(|predictions| &predictions[first..]).collect();
        let weights = weights(&left_out, &ranked, &values[first..], rng);
        let total: f64 = weights.iter().sum();
        if total == 0.0 {
            return PriorMean::default();
        }
        // Before this search's losses are scaled to the earlier ones, those of a few good points spread as far as those of a whole space.
        let together: Vec<f64> = (0..points.len())
            .map(|index| {
                weights.iter().zip(&predicted).map(|(weight, theirs)| weight / total * theirs[index].mean).sum()
            })
            .collect();
        let unit = slope(&together, values).max(0.0);
        let members = weights.iter().zip(earlier).filter(|(weight, _)| **weight > 0.0);
        PriorMean { members: members.map(|(weight, known)| (weight * unit, Arc::clone(known))).collect() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// The best point of each earlier study that counts.
    pub(super) fn best(&self) -> impl Iterator<Item = &Vec<f64>> {
        self.members.iter().map(|(_, earlier)| &earlier.best)
    }

    pub(super) fn at(&self, point: &[f64]) -> f64 {
        self.members.iter().map(|(worth, earlier)| worth * earlier.process.mean_at(point)).sum()
    }
}

/// The slope of the line through pairs of numbers, with the prior that it is 1.
fn slope(x: &[f64], y: &[f64]) -> f64 {
    let mean = |numbers: &[f64]| numbers.iter().sum::<f64>() / numbers.len() as f64;
    let (x_mean, y_mean) = (mean(x), mean(y));
    let products = x.iter().zip(y).map(|(x, y)| (x - x_mean) * (y - y_mean)).sum::<f64>();
    let squares = x.iter().map(|x| (x - x_mean).powi(2)).sum::<f64>();
    (products + UNIT_PRIOR) / (squares + UNIT_PRIOR)
}

/// The weight of each earlier model: the share of draws in which it orders this search's values best. `own` are the predictions of this
/// search's model, each without the value itself. Models that order a value equally well share the draw.
fn weights(own: &[Prediction], earlier: &[&[Prediction]], values: &[f64], rng: &mut Pcg64) -> Vec<f64> {
    let mut draw = |predictions: &[Prediction]| -> Vec<f64> {
        predictions.iter().map(|prediction| prediction.mean + prediction.deviation * normal::draw(rng)).collect()
    };
    let mut wrong_pairs: Vec<Vec<usize>> = Vec::with_capacity(DRAWS);
    for _ in 0..DRAWS {
        // Each drawn value of the own model stands against the others as they are, of which it was predicted.
        let own = draw(own);
        let mut wrong = vec![wrong_order(|a, b| own[a] < values[b], values)];
        for theirs in earlier {
            let drawn = draw(theirs);
            wrong.push(wrong_order(|a, b| drawn[a] < drawn[b], values));
        }
        wrong_pairs.push(wrong);
    }
    let quantile = |model: usize, share: f64| {
        let mut wrong: Vec<usize> = wrong_pairs.iter().map(|wrong| wrong[model]).collect();
        wrong.sort_unstable();
        wrong[((DRAWS - 1) as f64 * share) as usize]
    };
    let most = quantile(0, DOUBT);
    let counts: Vec<usize> = (0..=earlier.len()).filter(|model| *model == 0 || quantile(*model, 0.5) <= most).collect();
    let mut weights = vec![0.0; earlier.len()];
    for wrong in &wrong_pairs {
        let least = counts.iter().map(|model| wrong[*model]).min().unwrap_or_default();
        let best: Vec<usize> = counts.iter().copied().filter(|model| wrong[*model] == least).collect();
        for model in best.iter().filter_map(|model| model.checked_sub(1)) {
            weights[model] += 1.0 / (best.len() * DRAWS) as f64;
        }
    }
    weights
}

/// The number of ordered pairs that a model orders otherwise than the values.
fn wrong_order(is_less: impl Fn(usize, usize) -> bool, values: &[f64]) -> usize {
    let size = values.len();
    let pairs = (0..size).flat_map(|a| (0..size).filter(move |b| *b != a).map(move |b| (a, b)));
    pairs.filter(|(a, b)| is_less(*a, *b) != (values[*a] < values[*b])).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng as _;

    fn predictions(means: &[f64], deviation: f64) -> Vec<Prediction> {
        means.iter().map(|mean| Prediction { mean: *mean, deviation }).collect()
    }

    #[test]
    fn a_model_counts_as_far_as_it_orders_the_values() {
        let mut rng = Pcg64::seed_from_u64(7);
        let values = [0.3, -1.0, 2.0, 0.9, -0.2, 1.4];
        // What knows nothing of the values, what knows their order in another unit, and what has them the other way round.
        let own = predictions(&[0.0; 6], 1.0);
        let right: Vec<f64> = values.iter().map(|value: &f64| 40.0 + 10.0 * value).collect();
        let reversed: Vec<f64> = values.iter().map(|value| -value).collect();
        let earlier = [predictions(&right, 0.1), predictions(&reversed, 0.1)];
        let slices: Vec<&[Prediction]> = earlier.iter().map(Vec::as_slice).collect();
        let found = weights(&own, &slices, &values, &mut rng);
        assert!(found[0] > 0.9 && found[1] == 0.0, "{found:?}");
        // Once the own model knows the order, no other is needed.
        let found = weights(&predictions(&values, 0.01), &slices[1..], &values, &mut rng);
        assert_eq!(found, [0.0]);
    }

    #[test]
    fn the_slope_is_that_of_the_pairs_and_one_without_any_spread() {
        let x: Vec<f64> = (0..100).map(f64::from).collect();
        let y: Vec<f64> = x.iter().map(|x| 3.0 * x - 7.0).collect();
        assert!((slope(&x, &y) - 3.0).abs() < 1e-4);
        assert_eq!(slope(&[2.0, 2.0], &[5.0, 5.0]), 1.0);
    }
}
