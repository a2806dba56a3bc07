//! `%space`: the search space inferred from trials.

use crate::columns::numeric;
use crate::{ResultsError, number};
use ferrotune_display::{Bundle, table};
use ferrotune_journal::Study;
use ferrotune_oracle::inferred::{Dimension, Space};
use ferrotune_space::record::TrialRecord;
use ferrotune_space::{Distribution, Scale, Value};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// The largest number of a choice's values that a cell of the table lists.
const MOST_VALUES: usize = 12;
/// The largest number of ranges of a parameter that have rows of their own. A parameter with more ranges has one row, because its
/// range depends on other values.
const MOST_RANGES: usize = 8;
/// The separator between a parameter's name and the number of its range. No parameter's name contains it.
const RANGE: char = '\0';

/// A table of all parameters: name, kind, range, scale, default, condition, tried values and number of trials. A parameter with
/// different ranges in different trials, such as in two branches of the objective, has a row for each range. Fails if no trial has
/// asked for a parameter.
pub fn space(study: &Study) -> Result<Bundle, ResultsError> {
    let ranges = ranges(&study.trials);
    let trials = by_range(&study.trials, &ranges);
    let space = Space::infer(&trials);
    if space.dimensions.is_empty() {
        return Err(ResultsError::NoTrial { study: study.spec.project.clone() });
    }
    let header = ["parameter", "kind", "range", "scale", "default", "asked for", "tried", "trials"];
    let rows: Vec<Vec<String>> =
        space.dimensions.iter().map(|dimension| row(study, &trials, &space, dimension, &ranges)).collect();
    Ok(table(&header, &rows))
}

fn row(
    study: &Study,
    trials: &[TrialRecord],
    space: &Space,
    dimension: &Dimension,
    ranges: &Ranges<'_>,
) -> Vec<String> {
    let values: Vec<&Value> = trials
        .iter()
        .filter_map(|trial| trial.parameters.get(&dimension.name).map(|parameter| &parameter.value))
        .collect();
    let name = shown(&dimension.name);
    let (kind, mut range, scale) = described(&dimension.distribution);
    let count = ranges.get(name).map_or(1, Vec::len);
    if count > MOST_RANGES {
        range = format!("{range} and {} other ranges", count - 1);
    }
    let unknown = if name == dimension.name { "always" } else { "in some trials" };
    let condition = condition(space, dimension).unwrap_or_else(|| unknown.to_owned());
    let default =
        study.defaults.get(name).filter(|default| count > MOST_RANGES || dimension.distribution.contains(default));
    let default = default.map_or_else(String::new, ToString::to_string);
    let count = values.len().to_string();
    vec![name.to_owned(), kind.to_owned(), range, scale, default, condition, tried(&values), count]
}

/// The ranges of each parameter, in the order of their first trials.
type Ranges<'a> = BTreeMap<&'a str, Vec<&'a Distribution>>;

fn ranges(trials: &[TrialRecord]) -> Ranges<'_> {
    let mut ranges = Ranges::new();
    for (name, parameter) in trials.iter().flat_map(|trial| &trial.parameters) {
        let known = ranges.entry(name).or_default();
        if !known.contains(&&parameter.distribution) {
            known.push(&parameter.distribution);
        }
    }
    ranges
}

/// The trials with a separate parameter for each range, if a parameter has several ranges.
fn by_range<'a>(trials: &'a [TrialRecord], ranges: &Ranges<'_>) -> Cow<'a, [TrialRecord]> {
    let is_split = |known: &Vec<&Distribution>| (2..=MOST_RANGES).contains(&known.len());
    if !ranges.values().any(is_split) {
        return Cow::Borrowed(trials);
    }
    let mut trials = trials.to_vec();
    for trial in &mut trials {
        let parameters = std::mem::take(&mut trial.parameters).into_iter().map(|(name, parameter)| {
            let known = ranges.get(name.as_str()).filter(|known| is_split(known));
            let range = known.and_then(|known| known.iter().position(|range| **range == parameter.distribution));
            (range.map_or_else(|| name.clone(), |range| format!("{name}{RANGE}{range}")), parameter)
        });
        trial.parameters = parameters.collect();
    }
    Cow::Owned(trials)
}

/// A parameter's name without the number of its range.
fn shown(name: &str) -> &str {
    name.split_once(RANGE).map_or(name, |(name, _)| name)
}

/// The texts of kind, range and scale.
fn described(distribution: &Distribution) -> (&'static str, String, String) {
    let spread = |scale: &Scale, step: Option<String>| match (scale, step) {
        (Scale::Linear, Some(step)) => format!("step {step}"),
        (Scale::Linear, None) => "linear".to_owned(),
        (Scale::Log, _) => "log".to_owned(),
        (Scale::ReverseLog, _) => "reverse log".to_owned(),
    };
    match distribution {
        Distribution::Int { low, high, step, scale } => {
            ("int", format!("{low}..={high}"), spread(scale, Some(step.to_string())))
        }
        Distribution::Float { low, high, step, scale } => {
            ("float", format!("{}..={}", number(*low), number(*high)), spread(scale, step.map(number)))
        }
        Distribution::Choice { values, is_ordered } => {
            let kind = if matches!(values.first(), Some(Value::Bool(_))) { "bool" } else { "choice" };
            let order = if *is_ordered { "ordered" } else { "" };
            (if values.len() == 1 { "fixed" } else { kind }, listed(values.iter()), order.to_owned())
        }
    }
}

/// The condition under which trials ask for the parameter, if it is known.
fn condition(space: &Space, dimension: &Dimension) -> Option<String> {
    let condition = dimension.condition.as_ref()?;
    let parent = &space.dimensions[condition.parent];
    let values: Vec<Value> = match &parent.distribution {
        Distribution::Choice { values, .. } => values.clone(),
        Distribution::Int { low, step, .. } => {
            (0..condition.present.len()).map(|index| Value::Int(low + step * index as i64)).collect()
        }
        Distribution::Float { .. } => {
            let count = condition.present.len();
            let middle = |index: usize| (index as f64 + 0.5) / count as f64;
            (0..count).map(|index| parent.distribution.from_unit(middle(index))).collect()
        }
    };
    let present = values.iter().zip(&condition.present).filter(|(_, present)| **present).map(|(value, _)| value);
    Some(format!("if {} is {}", shown(&parent.name), listed(present)))
}

/// The values that were tried: the smallest and the largest number, or a list.
fn tried(values: &[&Value]) -> String {
    let numbers: Option<Vec<f64>> = values.iter().map(|value| numeric(value)).collect();
    match numbers {
        Some(numbers) => {
            let (low, high) = crate::chart::extent(numbers);
            if low == high { number(low) } else { format!("{} to {}", number(low), number(high)) }
        }
        None => {
            let mut distinct: Vec<&Value> = Vec::new();
            for value in values {
                if !distinct.contains(value) {
                    distinct.push(value);
                }
            }
            listed(distinct.into_iter())
        }
    }
}

fn listed<'a>(values: impl Iterator<Item = &'a Value>) -> String {
    let texts: Vec<String> = values.map(ToString::to_string).collect();
    if texts.len() > MOST_VALUES {
        return format!("{}, … ({} values)", texts[..MOST_VALUES].join(", "), texts.len());
    }
    texts.join(", ")
}
