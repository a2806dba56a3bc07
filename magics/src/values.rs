//! The readers of the values of options and arguments from text. The error of each reader describes the mistake in the text.
//! Only the tuner can check whether a parameter accepts a value.

use crate::action::Lines;
use ferrotune_space::Value;
use ferrotune_space::given::{Values, parse_value};
use ferrotune_space::objective::{Constraint, Direction, Objective, Summary};
use ferrotune_space::spec::PublishTo;

pub(crate) fn text(text: &str) -> Result<String, String> {
    Ok(text.to_owned())
}

/// Reads a whole number. Refuses `+7`, which Rust would parse as an integer.
pub(crate) fn number(text: &str) -> Result<u64, String> {
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err("not a whole number".to_owned());
    }
    text.parse().map_err(|_| "too large".to_owned())
}

/// Reads a whole number of at least 1.
pub(crate) fn count(text: &str) -> Result<u64, String> {
    match number(text)? {
        0 => Err("give at least 1".to_owned()),
        count => Ok(count),
    }
}

/// Reads a range of numbers from 1, as `5`, `5-` or `5-10`.
pub(crate) fn lines(text: &str) -> Result<Lines, String> {
    let read = |number: &str| count(number).map_err(|problem| format!("{number:?} is no number from 1: {problem}"));
    let (first, last) = match text.split_once('-') {
        None => (read(text)?, Some(read(text)?)),
        Some((first, "")) => (read(first)?, None),
        Some((first, last)) => (read(first)?, Some(read(last)?)),
    };
    if last.is_some_and(|last| last < first) {
        return Err("the last number is below the first".to_owned());
    }
    Ok(Lines { first, last })
}

/// Reads the name of a study, which is a folder's name.
pub(crate) fn project(text: &str) -> Result<String, String> {
    if matches!(text, "." | "..") || text.contains(['/', '\\', '\0']) {
        return Err("a project is a name, not a path; the folder above it is --directory".to_owned());
    }
    Ok(text.to_owned())
}

/// Beginnings of the addresses of stores to which objects can be written: all stores from which data is read, except web servers.
const STORES: [&str; 7] = ["abfs://", "abfss://", "az://", "file:///", "gs://", "s3://", "s3a://"];

/// Reads the address of a store. An empty text means the study's database.
pub(crate) fn publish_to(text: &str) -> Result<PublishTo, String> {
    match text {
        "" => Ok(PublishTo::Database),
        address if STORES.iter().any(|store| address.starts_with(store)) => Ok(PublishTo::Store(address.to_owned())),
        _ => Err("no store; write s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, az://CONTAINER/PREFIX or file:///FOLDER, or leave \
                  it out for the study's database"
            .to_owned()),
    }
}

/// Reads a list whose parts are separated by `separator`.
pub(crate) fn list<T>(text: &str, separator: char, read: impl Fn(&str) -> Result<T, String>) -> Result<Vec<T>, String> {
    text.split(separator).map(|part| read(part.trim())).collect()
}

/// Reads an objective, `NAME:max` or `NAME:min`, optionally followed by `:best`, `:last` or `:mean`.
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

/// Reads a constraint, `NAME<=NUMBER` or `NAME>=NUMBER`.
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

/// Reads a list in which a value may be in quotes and then contain separators: `opt='a,b',lr=1`. A quote has a special meaning only
/// at the beginning of a value.
pub(crate) fn quoted_list<T>(
    text: &str,
    separator: char,
    read: impl Fn(&str) -> Result<T, String>,
) -> Result<Vec<T>, String> {
    let (mut parts, mut begin, mut open, mut before) = (Vec::new(), 0, None, separator);
    for (place, c) in text.char_indices() {
        match open {
            Some(quote) if c == quote => open = None,
            None if before == '=' && matches!(c, '\'' | '"') => open = Some(c),
            None if c == separator => {
                parts.push(&text[begin..place]);
                begin = place + c.len_utf8();
            }
            _ => {}
        }
        if !c.is_whitespace() {
            before = c;
        }
    }
    parts.push(&text[begin..]);
    match open {
        Some(quote) => {
            Err(format!("the quote {quote} is not closed; a value with one begins and ends with the other quote"))
        }
        None => parts.into_iter().map(|part| read(part.trim())).collect(),
    }
}

/// Reads values of parameters, `NAME=VALUE,…`.
pub(crate) fn settings(text: &str) -> Result<Values, String> {
    Ok(quoted_list(text, ',', setting)?.into_iter().collect())
}

fn setting(text: &str) -> Result<(String, Value), String> {
    let parts = text.split_once('=').map(|(name, value)| (name.trim(), value.trim()));
    match parts.filter(|(name, value)| !name.is_empty() && !value.is_empty()) {
        Some((name, value)) => Ok((name.to_owned(), parse_value(unquoted(value)))),
        None => Err(format!("{text:?} is not a parameter and its value, as in lr=0.01")),
    }
}

/// A text without the quotes at its beginning and end.
fn unquoted(text: &str) -> &str {
    let within = |quote: char| text.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote));
    within('"').or_else(|| within('\'')).unwrap_or(text)
}

/// Reads the name of a parameter.
pub(crate) fn parameter(text: &str) -> Result<String, String> {
    if text.is_empty() { Err("a name is missing between the commas".to_owned()) } else { Ok(text.to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_in_quotes_have_commas_semicolons_and_quotes() {
        let text = |text: &str| Value::Text(text.to_owned());
        let read = |given: &str| quoted_list(given, ';', settings);
        let one = |name: &str, value: Value| Values::from([(name.to_owned(), value)]);
        assert_eq!(read("kernel='3,3'"), Ok(vec![one("kernel", text("3,3"))]));
        let both = Values::from([("kernel".to_owned(), text("3,3;5")), ("lr".to_owned(), Value::Float(0.1))]);
        assert_eq!(read(r#"kernel = "3,3;5", lr=0.1; name=it's"#), Ok(vec![both, one("name", text("it's"))]));
        assert_eq!(read(r#"quote="it's, so""#), Ok(vec![one("quote", text("it's, so"))]));
        assert_eq!(read("units='64'"), Ok(vec![one("units", Value::Int(64))]));
        assert!(read("kernel='3,3").unwrap_err().contains("is not closed"));
    }
}
