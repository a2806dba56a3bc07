//! What memory a trial will need, from the trials before it: a power law in its parameters, fitted by least squares,
//! with the margin that its own errors ask for. Pure. Says nothing rather than something doubtful.

use crate::record::{Ending, Parameter, TrialRecord};
use crate::space::{Distribution, Value};
use std::collections::BTreeMap;

/// More coefficients than this are not worth fitting.
const MOST_COEFFICIENTS: usize = 24;
/// How many standard errors an estimate must lie above the budget.
const MARGIN: f64 = 3.0;
/// A twentieth: no estimate is taken to be closer than that.
const LEAST_ERROR: f64 = 0.05;

type Parameters = BTreeMap<String, Parameter>;

/// The memory in bytes that a trial with these parameters needs at least, all but certainly; none where earlier trials
/// with parameters of the same names are too few, or do not tell.
pub(super) fn least_bytes(parameters: &Parameters, trials: &[TrialRecord]) -> Option<u64> {
    let row = features(parameters)?;
    let alike = trials.iter().filter(|trial| trial.peak_bytes > 0);
    let alike: Vec<_> = alike.filter(|trial| trial.parameters.keys().eq(parameters.keys())).collect();
    let whole = |trial: &&TrialRecord| matches!(trial.ending, Some(Ending::Finished | Ending::Pruned));
    let mut samples: Vec<Sample> = alike.iter().copied().filter(whole).filter_map(sample).collect();
    samples.retain(|sample| sample.features.len() == row.len());
    if row.len() > MOST_COEFFICIENTS || samples.len() < 2 * row.len() + 2 {
        return None;
    }
    let (coefficients, _) = fit(&samples, &row)?;
    // One that ran out of memory needed more than it got: it counts where the others would have it need less.
    let cut_off = |trial: &&TrialRecord| matches!(trial.ending, Some(Ending::OutOfMemory { .. }));
    let cut_off = alike.iter().copied().filter(cut_off).filter_map(sample);
    samples.extend(
        cut_off
            .filter(|sample| sample.features.len() == row.len() && sample.need > dot(&sample.features, &coefficients)),
    );
    let (coefficients, weights) = fit(&samples, &row)?;
    let error = |sample: &Sample| (sample.need - dot(&sample.features, &coefficients)).powi(2);
    let variance = samples.iter().map(error).sum::<f64>() / (samples.len() - row.len()) as f64;
    // The variance of a prediction for new parameters: it grows with their distance from those that were tried.
    let deviation = variance.sqrt().max(LEAST_ERROR) * (1.0 + dot(&row, &weights).max(0.0)).sqrt();
    let bytes = (dot(&row, &coefficients) - MARGIN * deviation).exp();
    bytes.is_finite().then_some(bytes as u64)
}

/// A trial as the fit sees it.
struct Sample {
    features: Vec<f64>,
    /// Logarithm of its memory in bytes.
    need: f64,
}

fn sample(trial: &TrialRecord) -> Option<Sample> {
    Some(Sample { features: features(&trial.parameters)?, need: (trial.peak_bytes as f64).ln() })
}

/// The coefficients of the least squares, and the weights by which `row` says how far it is from the samples.
fn fit(samples: &[Sample], row: &[f64]) -> Option<(Vec<f64>, Vec<f64>)> {
    let width = row.len();
    let mut system = vec![vec![0.0; width + 2]; width];
    for Sample { features, need } in samples {
        for (line, first) in system.iter_mut().zip(features) {
            for (cell, second) in line.iter_mut().zip(features) {
                *cell += first * second;
            }
            line[width] += first * need;
        }
    }
    for (index, line) in system.iter_mut().enumerate() {
        // A little ridge: features that never vary must not make the system singular.
        line[index] += 1e-6;
        line[width + 1] = row[index];
    }
    solve(system)
}

/// One, the logarithm of each number, and a one for the chosen of each list.
fn features(parameters: &Parameters) -> Option<Vec<f64>> {
    let mut features = vec![1.0];
    for parameter in parameters.values() {
        match (&parameter.distribution, &parameter.value) {
            (Distribution::Choice { values, .. }, value) => {
                features.extend(values.iter().skip(1).map(|choice| f64::from(u8::from(choice == value))));
            }
            (_, Value::Int(value)) => features.push((value.unsigned_abs() as f64).ln_1p()),
            (_, Value::Float(value)) if value.is_finite() => features.push(value.abs().max(1e-12).ln()),
            _ => return None,
        }
    }
    Some(features)
}

fn dot(first: &[f64], second: &[f64]) -> f64 {
    first.iter().zip(second).map(|(a, b)| a * b).sum()
}

/// Solves a symmetric system with two right-hand sides in its last columns, by Gaussian elimination with pivots.
fn solve(mut system: Vec<Vec<f64>>) -> Option<(Vec<f64>, Vec<f64>)> {
    let size = system.len();
    for column in 0..size {
        let pivot = (column..size).max_by(|a, b| system[*a][column].abs().total_cmp(&system[*b][column].abs()))?;
        system.swap(column, pivot);
        let line = system[column].clone();
        if line[column].abs() < 1e-12 {
            return None;
        }
        for (_, other) in system.iter_mut().enumerate().filter(|(index, _)| *index != column) {
            let factor = other[column] / line[column];
            for (cell, above) in other.iter_mut().zip(&line) {
                *cell -= factor * above;
            }
        }
    }
    let side = |offset: usize| (0..size).map(|index| system[index][size + offset] / system[index][index]).collect();
    Some((side(0), side(1)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::space::Scale;

    fn trial(units: i64, layers: i64, peak_bytes: u64) -> TrialRecord {
        let mut record = TrialRecord::new(0);
        for (name, value) in [("units", units), ("layers", layers)] {
            let distribution = Distribution::Int { low: 1, high: 1 << 20, step: 1, scale: Scale::Log };
            record.parameters.insert(name.to_owned(), Parameter { distribution, value: Value::Int(value) });
        }
        (record.peak_bytes, record.ending) = (peak_bytes, Some(Ending::Finished));
        record
    }

    fn need(units: i64, layers: i64) -> u64 {
        1000 * (units * units * layers).unsigned_abs()
    }

    fn history() -> Vec<TrialRecord> {
        let sizes = [(8, 1), (16, 2), (32, 1), (64, 3), (100, 2), (128, 1), (20, 4), (250, 2), (40, 2), (80, 4)];
        sizes.map(|(units, layers)| trial(units, layers, need(units, layers))).to_vec()
    }

    #[test]
    fn a_trial_beyond_those_before_it_is_estimated_from_below() {
        let wanted = trial(512, 4, 0);
        let bytes = least_bytes(&wanted.parameters, &history()).unwrap_or(0);
        assert!(bytes > need(512, 4) / 2 && bytes < need(512, 4), "{bytes} for {}", need(512, 4));
    }

    #[test]
    fn trials_that_ran_out_of_memory_do_not_hide_what_others_tell() {
        let mut trials = history();
        trials.extend((300..320).map(|units| {
            let budget_bytes = 50_000_000;
            let ending = Some(Ending::OutOfMemory { peak_bytes: budget_bytes, budget_bytes });
            TrialRecord { ending, ..trial(units, 4, budget_bytes) }
        }));
        let bytes = least_bytes(&trial(512, 4, 0).parameters, &trials).unwrap_or(0);
        assert!(bytes > need(512, 4) / 2 && bytes < need(512, 4), "{bytes} for {}", need(512, 4));
    }

    #[test]
    fn few_trials_or_others_tell_nothing() {
        let wanted = trial(512, 4, 0);
        assert_eq!(least_bytes(&wanted.parameters, &history()[..7]), None);
        let mut other = wanted.clone();
        other.parameters.remove("layers");
        assert_eq!(least_bytes(&other.parameters, &history()), None);
    }

    #[test]
    fn memory_that_has_nothing_to_do_with_the_parameters_refuses_nothing() {
        let sizes = [3_u64, 900, 20, 4, 700, 5, 60, 800, 2, 300];
        let mut trials = history();
        trials.iter_mut().zip(sizes).for_each(|(trial, size)| trial.peak_bytes = size << 20);
        let bytes = least_bytes(&trial(512, 4, 0).parameters, &trials).unwrap_or(0);
        assert!(bytes < 900 << 20, "{bytes}");
    }
}
