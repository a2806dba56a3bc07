//! Decides whether a trial is refused because similar trials ran out of memory. Pure. In doubt, nothing is refused: a trial
//! that runs out of memory costs some seconds, but a trial that is wrongly refused may have been the best.
//!
//! A power law, fitted to the trials that fit into memory, shows which numbers cost memory and which save it. A trial is
//! refused if several trials ran out of memory although they had no more of the costly numbers and no less of the saving
//! ones. The law must explain their ends, and no trial that had as much may have fitted. Nothing is extrapolated: the
//! memory that those trials took is the least that this trial would take.

use ferrotune_space::record::{Ending, TrialRecord};
use ferrotune_space::{Distribution, Parameter, Value};
use std::collections::BTreeMap;

/// The number of trials that ran out of memory and must agree.
const EVIDENCE: usize = 3;
/// The period of trials that are never refused: a trial that fits then contradicts a wrong law.
const RUN_ANYWAY: u64 = 4;
/// The largest number of numeric parameters that a law is fitted to.
const MOST_NUMBERS: usize = 16;
/// The number of fitting trials that a law needs, in addition to two for each number.
const LEAST_TRIALS: usize = 6;
/// The least certainty, in standard errors: one exponent at least must be this far above zero (`CERTAINTY`), and each
/// exponent this far from zero (`RELEVANCE`).
const CERTAINTY: f64 = 4.0;
const RELEVANCE: f64 = 2.0;
/// The smallest error that a law is assumed to have: a twentieth.
const LEAST_ERROR: f64 = 0.05;
/// The share of the budget that the law must predict for a trial whose end it explains (`EXPLAINED`), and for a trial that
/// is refused (`BEYOND`). A trial near the limit may fit by chance.
const EXPLAINED: f64 = 0.5;
const BEYOND: f64 = 1.1;

type Parameters = BTreeMap<String, Parameter>;

/// The least memory in bytes that the trial `wanted` would take, if it has to be refused: the largest amount that the
/// trials in evidence took. The record has all parameters that are known so far.
pub(super) fn refusal(wanted: &TrialRecord, trials: &[TrialRecord], budget_bytes: u64) -> Option<u64> {
    if wanted.number % RUN_ANYWAY == RUN_ANYWAY - 1 {
        return None;
    }
    let alike =
        |trial: &&TrialRecord| trial.number != wanted.number && trial.parameters.keys().eq(wanted.parameters.keys());
    let starved = |trial: &TrialRecord| match trial.ending {
        // A trial with a smaller budget, or on a machine short of memory, is no evidence about this trial.
        Some(Ending::OutOfMemory { peak_bytes, budget_bytes: budget }) => {
            (budget >= budget_bytes && peak_bytes > budget_bytes).then_some(peak_bytes)
        }
        _ => None,
    };
    let starved: Vec<(&TrialRecord, u64)> =
        trials.iter().filter(alike).filter_map(|trial| Some((trial, starved(trial)?))).collect();
    if starved.len() < EVIDENCE {
        return None;
    }
    let fits = |trial: &&TrialRecord| {
        let is_whole = matches!(trial.ending, Some(Ending::Finished | Ending::Pruned));
        is_whole && (1..=budget_bytes).contains(&trial.peak_bytes)
    };
    let fitting: Vec<&TrialRecord> = trials.iter().filter(alike).filter(fits).collect();
    let law = Law::of(&fitting).filter(|law| law.bytes(&wanted.parameters) >= BEYOND * budget_bytes as f64)?;
    let is_explained = |trial: &TrialRecord| law.bytes(&trial.parameters) >= EXPLAINED * budget_bytes as f64;
    let is_contradicted = |trial: &TrialRecord| {
        let is_like = |other: &&TrialRecord| {
            has_same_choices(&trial.parameters, &other.parameters)
                || has_same_choices(&wanted.parameters, &other.parameters)
        };
        fitting.iter().copied().filter(is_like).any(|other| law.is_no_larger(&trial.parameters, &other.parameters))
    };
    let evidence: Vec<(&Parameters, u64)> = starved
        .into_iter()
        .filter(|(trial, _)| law.is_no_larger(&trial.parameters, &wanted.parameters))
        .filter(|(trial, _)| is_explained(trial) && !is_contradicted(trial))
        .map(|(trial, bytes)| (&trial.parameters, bytes))
        .collect();
    let is_covered =
        |(name, parameter): (&String, &Parameter)| law.knows(name) || is_covered(name, parameter, &evidence);
    if evidence.len() < EVIDENCE || !wanted.parameters.iter().all(is_covered) {
        return None;
    }
    evidence.into_iter().map(|(_, bytes)| bytes).max()
}

/// Whether the evidence covers a parameter that is not in the law: some trial in evidence has the same choice, or there are
/// trials with smaller and with larger numbers, so that changing the number would not have helped.
fn is_covered(name: &str, parameter: &Parameter, evidence: &[(&Parameters, u64)]) -> bool {
    let known = || evidence.iter().filter_map(|(parameters, _)| parameters.get(name));
    match number(&parameter.value) {
        Some(wanted) if !is_choice(parameter) => {
            let mut numbers = known().filter_map(|parameter| number(&parameter.value));
            numbers.clone().any(|number| number <= wanted) && numbers.any(|number| number >= wanted)
        }
        _ => known().any(|known| known.value == parameter.value),
    }
}

fn has_same_choices(first: &Parameters, second: &Parameters) -> bool {
    let choices = first.iter().filter(|(_, parameter)| is_choice(parameter));
    choices.into_iter().all(|(name, parameter)| second.get(name).is_some_and(|other| other.value == parameter.value))
}

fn is_choice(parameter: &Parameter) -> bool {
    matches!(parameter.distribution, Distribution::Choice { .. })
}

fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Int(value) => Some(*value as f64),
        Value::Float(value) => Some(*value),
        Value::Bool(_) | Value::Text(_) => None,
    }
}

/// A law of memory: the product of powers of numeric parameters.
#[derive(Debug)]
struct Law<'a> {
    terms: Vec<Term<'a>>,
    /// The mean of the logarithms of the trials' memory in bytes.
    mean: f64,
}

/// One numeric parameter in the law.
#[derive(Clone, Debug)]
struct Term<'a> {
    name: &'a str,
    /// Whether the number can be 0, which has no logarithm.
    has_zero: bool,
    mean: f64,
    exponent: f64,
}

impl<'a> Law<'a> {
    /// Fits the law to the memory of these trials. Returns none if there are too few trials, or if memory grows with no
    /// number.
    fn of(trials: &[&'a TrialRecord]) -> Option<Law<'a>> {
        let first = trials.first()?;
        let term = |(name, parameter): (&'a String, &'a Parameter)| {
            let value = |trial: &&TrialRecord| trial.parameters.get(name).and_then(|known| number(&known.value));
            let values: Option<Vec<f64>> = trials.iter().map(value).collect();
            let values = values.filter(|values| !is_choice(parameter) && values.iter().all(|value| *value >= 0.0))?;
            let has_zero = values.contains(&0.0);
            let term = Term { name, has_zero, mean: 0.0, exponent: 0.0 };
            let mean = values.iter().map(|value| term.logarithm(*value)).sum::<f64>() / values.len() as f64;
            let varies = values.iter().any(|value| *value != values[0]);
            varies.then_some(Term { mean, ..term })
        };
        let mut terms: Vec<Term<'a>> = first.parameters.iter().filter_map(term).collect();
        if terms.len() > MOST_NUMBERS {
            return None;
        }
        let logarithms: Vec<f64> = trials.iter().map(|trial| (trial.peak_bytes as f64).ln()).collect();
        let mean = logarithms.iter().sum::<f64>() / logarithms.len() as f64;
        // The least relevant term is removed until all remaining terms are relevant.
        while !terms.is_empty() {
            if trials.len() < 2 * terms.len() + LEAST_TRIALS {
                return None;
            }
            let fitted = fit(&terms, trials, &logarithms, mean)?;
            terms.iter_mut().zip(&fitted).for_each(|(term, (exponent, _))| term.exponent = *exponent);
            let certainties: Vec<f64> = fitted.iter().map(|(exponent, error)| exponent / error).collect();
            let relevance = |index: &usize| certainties[*index].abs();
            let weakest = (0..terms.len()).min_by(|a, b| relevance(a).total_cmp(&relevance(b)))?;
            if relevance(&weakest) >= RELEVANCE {
                let is_certain = certainties.iter().any(|certainty| *certainty >= CERTAINTY);
                return is_certain.then_some(Law { terms, mean });
            }
            terms.remove(weakest);
        }
        None
    }

    fn knows(&self, name: &str) -> bool {
        self.terms.iter().any(|term| term.name == name)
    }

    fn bytes(&self, parameters: &Parameters) -> f64 {
        let grown = self.terms.iter().map(|term| term.exponent * term.deviation(parameters));
        (self.mean + grown.sum::<f64>()).exp()
    }

    /// Whether `first` is no larger than `second` in each number that costs memory, and no smaller in each number that
    /// saves memory.
    fn is_no_larger(&self, first: &Parameters, second: &Parameters) -> bool {
        let value = |parameters: &Parameters, name| parameters.get(name).and_then(|known| number(&known.value));
        self.terms.iter().all(|term| {
            let (first, second) = (value(first, term.name), value(second, term.name));
            if term.exponent >= 0.0 { first <= second } else { first >= second }
        })
    }
}

impl Term<'_> {
    fn logarithm(&self, value: f64) -> f64 {
        if self.has_zero { value.ln_1p() } else { value.max(f64::MIN_POSITIVE).ln() }
    }

    /// The distance of the number's logarithm from the mean logarithm.
    fn deviation(&self, parameters: &Parameters) -> f64 {
        let value = parameters.get(self.name).and_then(|known| number(&known.value));
        value.map_or(0.0, |value| self.logarithm(value) - self.mean)
    }
}

/// The exponents by least squares, each with its standard error.
fn fit(terms: &[Term<'_>], trials: &[&TrialRecord], logarithms: &[f64], mean: f64) -> Option<Vec<(f64, f64)>> {
    let size = terms.len();
    let rows: Vec<Vec<f64>> =
        trials.iter().map(|trial| terms.iter().map(|term| term.deviation(&trial.parameters)).collect()).collect();
    // A row holds the normal equations, the right-hand side, and the unit matrix, which becomes the inverse.
    let mut system = vec![vec![0.0; 2 * size + 1]; size];
    for (row, logarithm) in rows.iter().zip(logarithms) {
        for (line, first) in system.iter_mut().zip(row) {
            line.iter_mut().zip(row).for_each(|(cell, second)| *cell += first * second);
            line[size] += first * (logarithm - mean);
        }
    }
    for (index, line) in system.iter_mut().enumerate() {
        line[size + 1 + index] = 1.0;
    }
    solve(&mut system)?;
    let exponents: Vec<f64> = system.iter().map(|line| line[size]).collect();
    let error = |(row, logarithm): (&Vec<f64>, &f64)| {
        let grown: f64 = row.iter().zip(&exponents).map(|(deviation, exponent)| deviation * exponent).sum();
        (logarithm - mean - grown).powi(2)
    };
    let freedom = trials.len() - size - 1;
    let variance = rows.iter().zip(logarithms).map(error).sum::<f64>() / freedom as f64;
    let variance = variance.max(LEAST_ERROR * LEAST_ERROR);
    let error = |index: usize| (variance * system[index][size + 1 + index].max(0.0)).sqrt();
    Some(exponents.iter().enumerate().map(|(index, exponent)| (*exponent, error(index))).collect())
}

/// Turns the left part of a symmetric system into the unit matrix, by Gaussian elimination with pivots. Returns none if
/// that part is singular.
fn solve(system: &mut [Vec<f64>]) -> Option<()> {
    for column in 0..system.len() {
        let pivot =
            (column..system.len()).max_by(|a, b| system[*a][column].abs().total_cmp(&system[*b][column].abs()))?;
        system.swap(column, pivot);
        let height = system[column][column];
        if height.abs() < 1e-12 {
            return None;
        }
        system[column].iter_mut().for_each(|cell| *cell /= height);
        let line = system[column].clone();
        for (_, other) in system.iter_mut().enumerate().filter(|(index, _)| *index != column) {
            let factor = other[column];
            other.iter_mut().zip(&line).for_each(|(cell, above)| *cell -= factor * above);
        }
    }
    Some(())
}

#[cfg(test)]
mod tests;
