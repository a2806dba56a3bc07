//! The tree-structured Parzen estimator: proposes values that are dense among good trials and rare among the others.
//!
//! Bergstra et al. 2011; all parameters together, as in Falkner et al. 2018 (BOHB) and Optuna's `multivariate`.
//! Optuna's `group` is not needed: a parameter that a trial did not ask for has a flat kernel, and a parameter
//! that a proposal does not need is not scored. For searches of any length.

mod parzen;

use super::history::{History, Row};
use super::qmc;
use super::random::generator;
use super::sampler::Sampler;
use super::settings::Outcome;
use super::survival::{Fitness, survivors};
use super::text::{SettingError, SettingsText};
use crate::inferred::Dimension;
use parzen::Parzen;
use std::ops::Bound;

/// The number of first trials, which are spread over the space; the estimator begins after them.
const INITIAL: usize = 6;
/// The number of candidates, of which the best is proposed.
const CANDIDATES: usize = 24;
/// The largest number of points drawn for each candidate; points that were already tried are no candidates.
const DRAWS: usize = 10;

/// The TPE sampler.
#[derive(Debug)]
pub(super) struct Tpe {
    startup: usize,
    candidates: usize,
    /// The share of the trials that are good; if it is not given, see [`below`].
    gamma: Option<f64>,
}

impl Default for Tpe {
    fn default() -> Tpe {
        Tpe { startup: INITIAL, candidates: CANDIDATES, gamma: None }
    }
}

impl Tpe {
    /// The sampler with the settings in `text`: `startup`, `candidates` and `gamma`.
    pub(super) fn with(text: &SettingsText<'_>) -> Result<Tpe, SettingError> {
        let usual = Tpe::default();
        Ok(Tpe {
            startup: text.count("startup", 1..=1_000_000)?.map_or(usual.startup, |count| count as usize),
            candidates: text.count("candidates", 1..=100_000)?.map_or(usual.candidates, |count| count as usize),
            gamma: text.number("gamma", (Bound::Excluded(0.0), Bound::Excluded(1.0)))?,
        })
    }
}

impl Sampler for Tpe {
    fn propose(&mut self, history: &History, trial: u64) -> Option<Vec<f64>> {
        let dimensions = history.space.dimensions.len();
        if dimensions == 0 {
            return None;
        }
        let (good, bad) = split(&history.rows, history.settings.objectives.len(), self.gamma);
        if good.len() + bad.len() < self.startup {
            return Some(qmc::point(history.settings.seed, trial, dimensions));
        }
        let mut rng = generator(history.settings.seed, trial, "tpe");
        let good = Parzen::new(&history.space, &good);
        let bad = Parzen::new(&history.space, &bad);
        let mut best: Option<(f64, Vec<f64>)> = None;
        let draws = (0..self.candidates.saturating_mul(DRAWS)).map(|_| {
            let point = good.sample(&mut rng);
            let active: Vec<bool> = (0..dimensions).map(|index| history.space.is_active(index, &point)).collect();
            (point, active)
        });
        let untried = draws.filter(|(point, active)| !is_tried(history, point, active));
        for (point, active) in untried.take(self.candidates) {
            let score = good.log_density(&point, &active) - bad.log_density(&point, &active);
            if best.as_ref().is_none_or(|(highest, _)| score > *highest) {
                best = Some((score, point));
            }
        }
        best.map(|(_, point)| point)
    }

    fn begins_in_the_middle(&self) -> bool {
        true
    }
}

/// Whether a trial of the search has the values of this point.
///
/// Without this check the best point would be proposed repeatedly where there are only whole numbers and choices. Its copies have
/// the same loss, would take the places of all other good trials, and no other point would be near a kernel.
fn is_tried(history: &History, point: &[f64], active: &[bool]) -> bool {
    let dimensions = &history.space.dimensions;
    let is_lattice =
        dimensions.iter().zip(active).all(|(known, active)| !active || known.distribution.cells().is_some());
    if !is_lattice {
        return false;
    }
    let own = |((known, unit), active): ((&Dimension, &f64), &bool)| {
        // A draw on a logarithmic scale lies anywhere in the cell of its value.
        let unit = known.distribution.to_unit(&known.distribution.from_unit(*unit));
        unit.filter(|_| *active).unwrap_or(f64::NAN)
    };
    let own: Vec<f64> = dimensions.iter().zip(point).zip(active).map(own).collect();
    let is_same = |(a, b): (&f64, &f64)| (a - b).abs() < 1e-9 || (a.is_nan() && b.is_nan());
    let mut trials = history.rows.iter().filter(|row| row.trial.is_some());
    trials.any(|row| row.point.iter().zip(&own).all(is_same))
}

/// The points of the good trials, and those of the others: failed, pruned and running trials, so that the next proposal
/// is not close to these (the constant liar of Ginsbourger et al. 2010).
fn split(rows: &[Row], objectives: usize, gamma: Option<f64>) -> (Vec<&[f64]>, Vec<&[f64]>) {
    let (mut judged, mut population, mut open) = (Vec::new(), Vec::new(), Vec::new());
    for row in rows {
        match Fitness::of(&row.outcome, objectives) {
            Some(fitness) => {
                judged.push(row);
                population.push(fitness);
            }
            None => open.push(row.point.as_slice()),
        }
    }
    let worthy = judged.iter().filter(|row| matches!(row.outcome, Outcome::Finished { .. } | Outcome::Pruned { .. }));
    let worthy = worthy.count();
    let count = gamma.map_or_else(|| below(worthy), |gamma| (gamma * worthy as f64).ceil() as usize);
    let order = survivors(&population, population.len());
    let points = |order: &[usize]| order.iter().map(|index| judged[*index].point.as_slice()).collect();
    let (good, mut bad): (Vec<&[f64]>, Vec<&[f64]>) = (points(&order[..count]), points(&order[count..]));
    // Keeps the order of the trials, in which the estimator sums its kernels.
    bad.extend(open);
    (good, bad)
}

/// The number of good trials among this number of trials: a tenth, as in Optuna, but at most 25.
fn below(trials: usize) -> usize {
    trials.div_ceil(10).min(25)
}
