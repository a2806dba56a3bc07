//! `%space`: the search space that the trials have shown.

use crate::columns::numeric;
use crate::{ResultsError, number};
use ferrotune_display::{Bundle, table};
use ferrotune_tuner::journal::Study;
use ferrotune_tuner::space::{Dimension, Distribution, Scale, Space, Value};

/// Most values of a choice in a cell.
const MOST_VALUES: usize = 12;

/// Name, kind, range, scale, default, condition and values so far of every parameter. Fails before the first trial.
pub fn space(study: &Study) -> Result<Bundle, ResultsError> {
    let space = Space::infer(&study.trials);
    if space.dimensions.is_empty() {
        return Err(ResultsError::NoTrial { study: study.spec.project.clone() });
    }
    let header = ["parameter", "kind", "range", "scale", "default", "asked for", "tried", "trials"];
    let rows: Vec<Vec<String>> = space.dimensions.iter().map(|dimension| row(study, &space, dimension)).collect();
    Ok(table(&header, &rows))
}

fn row(study: &Study, space: &Space, dimension: &Dimension) -> Vec<String> {
    let values: Vec<&Value> = study
        .trials
        .iter()
        .filter_map(|trial| trial.parameters.get(&dimension.name).map(|parameter| &parameter.value))
        .collect();
    let (kind, range, scale) = described(&dimension.distribution);
    let condition = condition(space, dimension).unwrap_or_else(|| "always".to_owned());
    let default = study.defaults.get(&dimension.name).map_or_else(String::new, ToString::to_string);
    let count = values.len().to_string();
    vec![dimension.name.clone(), kind.to_owned(), range, scale, default, condition, tried(&values), count]
}

/// Kind, range and scale.
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

/// The condition under which it is asked for, if that is known.
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
    Some(format!("if {} is {}", parent.name, listed(present)))
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
