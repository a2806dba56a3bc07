//! Whether a trial is refused because trials like it ran out of memory. Pure. Refuses nothing rather than something
//! doubtful: a trial that runs out of memory costs some seconds, one that is refused wrongly may have been the best.
//!
//! The trials that fit tell, by a power law, which numbers cost memory and which save it. A trial is refused where several
//! trials ran out of memory that had no more of the former and no less of the latter, as the law explains, and where none
//! that had as much has fitted. Nothing is extrapolated: what those trials took is what this one would take at least.

use ferrotune_space::record::{Ending, TrialRecord};
use ferrotune_space::{Distribution, Parameter, Value};
use std::collections::BTreeMap;

/// So many trials that ran out of memory must agree.
const EVIDENCE: usize = 3;
/// One trial in this many is never refused, so that a wrong law is contradicted by a trial that fits.
const RUN_ANYWAY: u64 = 4;
/// More numbers than this are not worth fitting.
const MOST_NUMBERS: usize = 16;
/// Trials that fit, beyond two for each number.
const LEAST_TRIALS: usize = 6;
/// By how many standard errors one exponent at least must be above zero, and each of them away from it.
const CERTAINTY: f64 = 4.0;
const RELEVANCE: f64 = 2.0;
/// A twentieth: no law is taken to be closer than that.
const LEAST_ERROR: f64 = 0.05;
/// Share of the budget that the law must come to for a trial whose end it is said to explain, and for one that is refused:
/// what is at the edge may fit by chance.
const EXPLAINED: f64 = 0.5;
const BEYOND: f64 = 1.1;

type Parameters = BTreeMap<String, Parameter>;

/// The memory in bytes that a trial would at least take, if it is to be refused: what the trials took that say so. The
/// record has all its parameters, as far as is known.
pub(super) fn refusal(wanted: &TrialRecord, trials: &[TrialRecord], budget_bytes: u64) -> Option<u64> {
    if wanted.number % RUN_ANYWAY == RUN_ANYWAY - 1 {
        return None;
    }
    let alike =
        |trial: &&TrialRecord| trial.number != wanted.number && trial.parameters.keys().eq(wanted.parameters.keys());
    let starved = |trial: &TrialRecord| match trial.ending {
        // With a smaller budget, or where the machine was short, it says nothing of this one.
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

/// Whether the evidence bears on a parameter of which it is not known that it costs memory: it has the same choice, and
/// numbers on both sides, so that neither more nor less of it would have helped.
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

/// How memory depends on numbers: on a power of each.
#[derive(Debug)]
struct Law<'a> {
    terms: Vec<Term<'a>>,
    /// Mean of the logarithms of the trials' memory in bytes.
    mean: f64,
}

/// One number in the law.
#[derive(Clone, Debug)]
struct Term<'a> {
    name: &'a str,
    /// Whether it can be 0, where a logarithm cannot follow.
    has_zero: bool,
    mean: f64,
    exponent: f64,
}

impl<'a> Law<'a> {
    /// The law by which these trials took their memory; none where they are too few, or where it grows with nothing.
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
        // What least deserves its place goes, until all that is left seems to matter.
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

    /// Whether the first is no larger than the second in any number that costs memory, and no smaller in any that saves
    /// it.
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

    /// How far its logarithm is from the mean.
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
    // The normal equations, the right-hand side, and the unit matrix, of which the inverse is made.
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

/// Turns the left part of a symmetric system into the unit matrix, by Gaussian elimination with pivots; none where that
/// is singular.
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
