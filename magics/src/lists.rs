//! The parts of options that take several things at once: objectives, constraints and values of parameters. Each reads one
//! part, and says what is wrong with it; whether a parameter can have a value, only the tuner knows.

use crate::action::{Constraint, Direction, Objective, Setting, Summary};

/// `NAME:max|min`, with `:best`, `:last` or `:mean` behind it or not.
pub(crate) fn objective(text: &str) -> Result<Objective, String> {
    let (name, summary) = match text.rsplit_once(':') {
        Some((name, "best")) => (name, Summary::Best),
        Some((name, "last")) => (name, Summary::Last),
        Some((name, "mean")) => (name, Summary::Mean),
        _ => (text, Summary::Best),
    };
    let Some((metric, direction)) = name.rsplit_once(':') else {
        let name = if name.is_empty() { "val_accuracy" } else { name };
        return Err(format!("the direction is missing; write --objective {name}:max or --objective {name}:min"));
    };
    if metric.trim().is_empty() {
        return Err("the metric's name is missing, as in --objective val_accuracy:max".to_owned());
    }
    let direction = match direction {
        "min" => Direction::Min,
        "max" => Direction::Max,
        _ if metric.ends_with(":min") || metric.ends_with(":max") => {
            return Err(format!("{direction} is none of best, last and mean, as in --objective {metric}:last"));
        }
        _ => return Err(format!("the direction is min or max, as in --objective {metric}:max")),
    };
    Ok(Objective { metric: metric.to_owned(), direction, summary })
}

/// `NAME<=NUMBER` or `NAME>=NUMBER`.
pub(crate) fn constraint(text: &str) -> Result<Constraint, String> {
    let at_most = text.split_once("<=").map(|parts| (parts, Direction::Min));
    let bound = at_most.or_else(|| text.split_once(">=").map(|parts| (parts, Direction::Max)));
    let Some(((metric, bound), direction)) = bound.filter(|((metric, _), _)| !metric.trim().is_empty()) else {
        return Err("a constraint is a metric and its bound, as in --constraint \"latency<=10\"".to_owned());
    };
    match bound.trim().parse() {
        Ok(number) if f64::is_finite(number) => {
            Ok(Constraint { metric: metric.trim().to_owned(), direction, bound: number })
        }
        _ => Err(format!("the bound {:?} is not a number", bound.trim())),
    }
}

/// `NAME=VALUE`.
pub(crate) fn setting(text: &str) -> Result<Setting, String> {
    let parts = text.split_once('=').map(|(name, value)| (name.trim(), value.trim()));
    match parts.filter(|(name, value)| !name.is_empty() && !value.is_empty()) {
        Some((name, value)) => Ok(Setting { name: name.to_owned(), value: value.to_owned() }),
        None => Err(format!("{text:?} is not a parameter and its value, as in lr=0.01")),
    }
}

/// Several `NAME=VALUE` with commas between them: the values of one trial.
pub(crate) fn settings(text: &str) -> Result<Vec<Setting>, String> {
    text.split(',').map(|part| setting(part.trim())).collect()
}

/// The name of a parameter.
pub(crate) fn name(text: &str) -> Result<String, String> {
    if text.is_empty() { Err("a name is missing between the commas".to_owned()) } else { Ok(text.to_owned()) }
}
