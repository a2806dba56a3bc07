//! fANOVA: the share of a model's variance over the whole space that is due to each parameter alone, and to each pair of
//! parameters in addition.
//!
//! Hutter et al. (2014), An Efficient Approach for Assessing Hyperparameter Importance, ICML: the model is a random forest,
//! whose marginals over boxes are exact. As in Optuna, parameters that some trials do not ask for are left out.

mod forest;

use super::{Importance, losses};
use crate::inferred::Space;
use ferrotune_space::Distribution;
use ferrotune_space::record::TrialRecord;
use forest::{Leaf, Sample, Side, forest};

/// The number of the most important parameters whose pairs are examined.
const MOST_PAIRED: usize = 6;

/// The shares of the variance that parameters and pairs of parameters explain.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Fanova {
    /// The share that each parameter explains alone, from 0 to 1, the largest first.
    pub shares: Vec<Importance>,
    /// The share that two parameters explain only together, by their names, the largest first. Only pairs of the most
    /// important parameters are examined.
    pub pairs: Vec<([String; 2], f64)>,
    /// Parameters for which only some trials have asked; they have no share.
    pub left_out: Vec<String>,
}

/// The shares of the variance of `loss` over the finished trials' space. `loss` returns a trial's value; trials with
/// `None` or a value that is not finite are ignored.
///
/// With a single trial or with equal values, all shares are 0.
pub fn fanova(trials: &[TrialRecord], loss: impl Fn(&TrialRecord) -> Option<f64>) -> Fanova {
    let (records, values): (Vec<TrialRecord>, Vec<f64>) =
        losses(trials, loss).map(|(trial, loss)| (trial.without_reports(), loss)).unzip();
    let space = Space::infer(&records);
    let points: Vec<Vec<f64>> = records.iter().map(|trial| space.encode(&trial.parameters)).collect();
    let is_everywhere = |index: &usize| points.iter().all(|point| !point[*index].is_nan());
    let (kept, rest): (Vec<usize>, Vec<usize>) = (0..space.dimensions.len()).partition(is_everywhere);
    let name = |index: usize| space.dimensions[index].name.clone();
    let left_out = rest.into_iter().map(name).collect();
    let ranges: Vec<Distribution> = kept.iter().map(|index| space.dimensions[*index].distribution.clone()).collect();
    let points: Vec<Vec<f64>> = points.iter().map(|point| kept.iter().map(|index| point[*index]).collect()).collect();
    if ranges.is_empty() || points.is_empty() {
        return Fanova { left_out, ..Fanova::default() };
    }
    let trees: Vec<Tree> = forest(Sample { ranges: &ranges, points: &points, values: &values })
        .into_iter()
        .filter_map(Tree::new)
        .collect();
    let share = |of: &[usize]| trees.iter().map(|tree| tree.share(of)).sum::<f64>() / trees.len().max(1) as f64;
    let mut alone: Vec<(usize, f64)> = (0..ranges.len()).map(|index| (index, share(&[index]))).collect();
    alone.sort_by(|a, b| b.1.total_cmp(&a.1));
    let mut pairs = Vec::new();
    for (place, (one, first)) in alone.iter().take(MOST_PAIRED).enumerate() {
        for (other, second) in alone.iter().take(MOST_PAIRED).skip(place + 1) {
            let beyond = share(&[*one, *other]) - first - second;
            pairs.push(([name(kept[*one]), name(kept[*other])], beyond.max(0.0)));
        }
    }
    pairs.sort_by(|a, b| b.1.total_cmp(&a.1));
    let importance = |(index, share): (usize, f64)| Importance { name: name(kept[index]), share };
    Fanova { shares: alone.into_iter().map(importance).collect(), pairs, left_out }
}

/// A tree's leaves; their values are relative to the mean over the space.
struct Tree {
    leaves: Vec<Leaf>,
    variance: f64,
}

impl Tree {
    /// The tree with these leaves; `None` if it has one value everywhere, or values that are too large to compute with.
    fn new(mut leaves: Vec<Leaf>) -> Option<Tree> {
        let volume = |leaf: &Leaf| leaf.sides.iter().map(Side::length).product::<f64>();
        let mean: f64 = leaves.iter().map(|leaf| volume(leaf) * leaf.value).sum();
        leaves.iter_mut().for_each(|leaf| leaf.value -= mean);
        let variance: f64 = leaves.iter().map(|leaf| volume(leaf) * leaf.value.powi(2)).sum();
        (variance > 0.0 && variance.is_finite()).then_some(Tree { leaves, variance })
    }

    /// The share of the variance of the marginal over all coordinates that are not in `of`.
    ///
    /// The marginal is a sum over leaves, so the mean of its square is a sum over pairs of leaves: the product of both
    /// leaves' values, weighted by their lengths in the other coordinates, times their overlap in the coordinates `of`.
    fn share(&self, of: &[usize]) -> f64 {
        let weight = |leaf: &Leaf| {
            let others = leaf.sides.iter().enumerate().filter(|(index, _)| !of.contains(index));
            leaf.value * others.map(|(_, side)| side.length()).product::<f64>()
        };
        let weights: Vec<f64> = self.leaves.iter().map(weight).collect();
        let common =
            |a: &Leaf, b: &Leaf| of.iter().map(|index| a.sides[*index].overlap(&b.sides[*index])).product::<f64>();
        let mut sum = 0.0;
        for (index, leaf) in self.leaves.iter().enumerate() {
            let later = self.leaves.iter().zip(&weights).skip(index + 1);
            let twice: f64 = later.map(|(other, weight)| weight * common(leaf, other)).sum();
            sum += weights[index] * (weights[index] * common(leaf, leaf) + 2.0 * twice);
        }
        sum / self.variance
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferrotune_space::record::Ending;
    use ferrotune_space::{Parameter, Scale, Value};

    const NAMES: [&str; 3] = ["a", "b", "c"];

    /// Trials over a choice and three numbers from 0 to 10, of which the last has a logarithmic scale that starts at 1.
    fn trials(count: u64, objective: impl Fn([f64; 3], &str) -> f64) -> Vec<TrialRecord> {
        let unit = |k: u64, root: f64| ((k + 1) as f64 * root.sqrt()).fract();
        let trial = |k: u64| {
            let units = [unit(k, 2.0), unit(k, 3.0), unit(k, 5.0)];
            let kind = ["x", "y", "z"][(unit(k, 7.0) * 3.0) as usize];
            let linear = Distribution::Float { low: 0.0, high: 10.0, step: None, scale: Scale::Linear };
            let log = Distribution::Float { low: 1.0, high: 10.0, step: None, scale: Scale::Log };
            let ranges = [linear.clone(), linear, log];
            let numbers = NAMES.iter().zip(ranges).zip(units).map(|((name, distribution), unit)| {
                let value = distribution.from_unit(unit);
                ((*name).to_owned(), Parameter { distribution, value })
            });
            let text = |text: &str| Value::Text(text.to_owned());
            let kinds = Distribution::Choice { values: ["x", "y", "z"].map(text).into(), is_ordered: false };
            let choice = ("kind".to_owned(), Parameter { distribution: kinds, value: text(kind) });
            TrialRecord {
                parameters: numbers.chain([choice]).collect(),
                values: vec![objective(units, kind)],
                ending: Some(Ending::Finished),
                ..TrialRecord::new(k)
            }
        };
        (0..count).map(trial).collect()
    }

    fn share(fanova: &Fanova, name: &str) -> f64 {
        fanova.shares.iter().find(|importance| importance.name == name).map_or(f64::NAN, |found| found.share)
    }

    fn pair(fanova: &Fanova, name: &str, other: &str) -> f64 {
        let is_it = |names: &[String; 2]| names.contains(&name.to_owned()) && names.contains(&other.to_owned());
        fanova.pairs.iter().find(|(names, _)| is_it(names)).map_or(f64::NAN, |(_, share)| *share)
    }

    fn assert_near(fanova: &Fanova, expected: [(&str, f64); 4]) {
        for (name, wanted) in expected {
            let found = share(fanova, name);
            assert!((found - wanted).abs() < 0.04, "{name}: {found}, not {wanted}");
        }
    }

    #[test]
    fn shares_are_those_of_an_additive_function() {
        // The objective 3a + b: the variances have the ratio 9 to 1.
        let fanova = fanova(&trials(500, |[a, b, _], _| 3.0 * a + b), TrialRecord::value);
        assert_near(&fanova, [("a", 0.9), ("b", 0.1), ("c", 0.0), ("kind", 0.0)]);
        assert_eq!(fanova.shares[0].name, "a");
        assert!(fanova.pairs.iter().all(|(_, share)| *share < 0.03), "{:?}", fanova.pairs);
    }

    #[test]
    fn choices_and_scales_count_as_they_are_searched() {
        // A uniform number on the logarithmic scale has the variance 1/12; a choice of 0, 0 and 1 has 2/9.
        let offset = |kind: &str| if kind == "z" { 1.0 } else { 0.0 };
        let fanova = fanova(&trials(500, |[_, _, c], kind| c + offset(kind)), TrialRecord::value);
        let all = 1.0 / 12.0 + 2.0 / 9.0;
        assert_near(&fanova, [("kind", 2.0 / 9.0 / all), ("c", 1.0 / 12.0 / all), ("a", 0.0), ("b", 0.0)]);
    }

    #[test]
    fn what_two_parameters_decide_together_is_theirs_alone() {
        // The mean over one factor is 0 for every value of the other.
        let sign = |unit: f64| if unit < 0.5 { -1.0 } else { 1.0 };
        let fanova = fanova(&trials(600, |[a, b, _], _| sign(a) * sign(b)), TrialRecord::value);
        assert!(pair(&fanova, "a", "b") > 0.85, "{fanova:?}");
        assert!(fanova.shares.iter().all(|importance| importance.share < 0.05), "{fanova:?}");
        assert_eq!(fanova.pairs[0].0.clone().map(|name| name.len()), [1, 1]);
    }

    #[test]
    fn parameters_that_some_trials_lack_are_left_out() {
        let mut trials = trials(60, |[a, _, _], _| a);
        trials[7].parameters.remove("b");
        let fanova = fanova(&trials, TrialRecord::value);
        assert_eq!((fanova.left_out.as_slice(), fanova.shares.len()), (["b".to_owned()].as_slice(), 3));
    }

    #[test]
    fn nothing_is_explained_where_nothing_differs() {
        for trials in [trials(1, |_, _| 2.0), trials(40, |_, _| 2.0)] {
            let fanova = fanova(&trials, TrialRecord::value);
            assert!(fanova.shares.len() == 4 && fanova.shares.iter().all(|importance| importance.share == 0.0));
        }
        assert_eq!(fanova(&[], TrialRecord::value), Fanova::default());
    }
}
