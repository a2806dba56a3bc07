//! Short texts of values and ranges for messages and tables. Nothing parses these texts.

use super::{Distribution, Scale, Value};
use std::fmt;

impl fmt::Display for Distribution {
    /// Writes the range with its article: `an int 32..=512, step 32`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scale = |scale: &Scale| match scale {
            Scale::Linear => "",
            Scale::Log => ", log",
            Scale::ReverseLog => ", reverse log",
        };
        match self {
            Distribution::Int { low, high, step, scale: spread } => {
                let step = if *step == 1 { String::new() } else { format!(", step {step}") };
                write!(formatter, "an int {low}..={high}{step}{}", scale(spread))
            }
            Distribution::Float { low, high, step, scale: spread } => {
                let step = step.map_or_else(String::new, |step| format!(", step {step}"));
                write!(formatter, "a float {low:?}..={high:?}{step}{}", scale(spread))
            }
            Distribution::Choice { values, is_ordered } => {
                let values: Vec<String> = values.iter().map(Value::exact).collect();
                let kind = if *is_ordered { "an ordered choice" } else { "a choice" };
                write!(formatter, "{kind} of {}", values.join(", "))
            }
        }
    }
}

impl fmt::Display for Value {
    /// Writes a float with four significant digits; the journal has all digits.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Bool(value) => formatter.pad(&value.to_string()),
            Value::Int(value) => formatter.pad(&value.to_string()),
            Value::Float(value) => formatter.pad(&short_float(*value)),
            Value::Text(value) => formatter.pad(value),
        }
    }
}

impl Value {
    /// The value with all its digits, for messages about exactly this value.
    pub fn exact(&self) -> String {
        match self {
            Value::Float(value) => format!("{value:?}"),
            other => other.to_string(),
        }
    }
}

fn short_float(number: f64) -> String {
    let scientific = format!("{number:.3e}");
    let Some((digits, exponent)) = scientific.split_once('e') else {
        return scientific; // NaN and the infinities
    };
    let trimmed = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    };
    match exponent.parse::<i32>() {
        Ok(power @ -4..=3) => {
            let decimals = usize::try_from(3 - power).unwrap_or(0);
            trimmed(&format!("{number:.decimals$}"))
        }
        _ => format!("{}e{exponent}", trimmed(digits)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distributions_are_described_in_the_users_words() {
        let units = Distribution::Int { low: 32, high: 512, step: 32, scale: Scale::Linear };
        assert_eq!(units.to_string(), "an int 32..=512, step 32");
        let lr = Distribution::Float { low: 1e-4, high: 0.1, step: None, scale: Scale::Log };
        assert_eq!(lr.to_string(), "a float 0.0001..=0.1, log");
        let choice = Distribution::Choice {
            values: vec![Value::Text("adam".into()), Value::Text("sgd".into())],
            is_ordered: false,
        };
        assert_eq!(choice.to_string(), "a choice of adam, sgd");
    }
}
