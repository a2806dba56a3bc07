//! The user's settings for parameters: fixed values for all trials, values of the trials to try first, and the names of the
//! parameters to tune. The oracle does not choose these values. Knows neither oracles nor the journal.

use crate::{Distribution, Parameter, Value};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Values of some parameters, by name.
pub type Values = BTreeMap<String, Value>;

/// The user's settings for parameters, made before the search.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Given {
    /// Values that parameters have in every trial, by parameter name.
    pub fixed: Values,
    /// The parameters to tune; empty for all of them. Any other parameter keeps its default, or else its lowest or first value.
    pub tune_only: Vec<String>,
    /// Values of trials to try first; the oracle chooses the other parameters. Applies to one call; the journal has an entry for
    /// each queued trial, and does not queue the same values twice.
    pub enqueued: Vec<Values>,
}

impl Given {
    /// The value that the user has set for a parameter, in a trial that was enqueued with the values `preset`; `None` leaves the
    /// choice to the oracle. The distribution must be valid. Fails with the reason if the parameter cannot have the value.
    pub fn value(
        &self,
        preset: &Values,
        name: &str,
        distribution: &Distribution,
        default: Option<&Value>,
    ) -> Result<Option<Value>, String> {
        let enqueued = preset.get(name).map(|value| ("--enqueue", value));
        if let Some((option, value)) = enqueued.or_else(|| self.fixed.get(name).map(|value| ("--fix", value))) {
            let value_text = value.exact();
            let misfit = || {
                format!("{option} gives `{name}` the value {value_text}, but it is {distribution}; give one of these")
            };
            return fit(value, distribution).map(Some).ok_or_else(misfit);
        }
        let is_tuned = self.tune_only.is_empty() || self.tune_only.iter().any(|tuned| tuned == name);
        Ok((!is_tuned).then(|| default.cloned().unwrap_or_else(|| distribution.first())))
    }

    /// Whether an oracle chooses the parameter's value in the trials that were not enqueued with a value for the parameter.
    pub fn leaves_open(&self, name: &str) -> bool {
        !self.fixed.contains_key(name)
            && (self.tune_only.is_empty() || self.tune_only.iter().any(|tuned| tuned == name))
    }

    /// Whether a trial with these parameters has the value of every fixed parameter that the trial asks for. A trial from before
    /// the value was fixed, or enqueued with another value, is not used as data for the present search.
    pub fn agrees_with(&self, parameters: &BTreeMap<String, Parameter>) -> bool {
        self.has_fixed(parameters, true)
    }

    /// Whether a trial of another study has the value of every fixed parameter; a range of that study may not contain the value.
    pub fn agrees_with_source(&self, parameters: &BTreeMap<String, Parameter>) -> bool {
        self.has_fixed(parameters, false)
    }

    /// Whether the parameters have every fixed value; the answer is `misfit` for a parameter whose range does not contain its fixed value.
    fn has_fixed(&self, parameters: &BTreeMap<String, Parameter>, misfit: bool) -> bool {
        let has_it = |(name, value): (&String, &Value)| {
            let asked = parameters.get(name);
            asked.is_none_or(|asked| fit(value, &asked.distribution).map_or(misfit, |value| value == asked.value))
        };
        self.fixed.iter().all(has_it)
    }

    /// The names of the parameters that are fixed or listed to be tuned. The objective need not ask for all of them.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.fixed.keys().chain(&self.tune_only).map(String::as_str)
    }
}

/// The value that a text means: `true`, `64`, `1e-3`, or else the text itself.
pub fn parse_value(text: &str) -> Value {
    let boolean = text.parse().map(Value::Bool).ok();
    let real = || text.parse().ok().filter(|value: &f64| value.is_finite()).map(Value::Float);
    let number = || text.parse().map(Value::Int).ok().or_else(real);
    boolean.or_else(number).unwrap_or_else(|| Value::Text(text.to_owned()))
}

/// The value in the type of the range: 1.0 for the whole number 1 of a float range. `None` if the range does not contain the value.
pub fn fit(value: &Value, distribution: &Distribution) -> Option<Value> {
    let fitted = match (distribution, value) {
        (Distribution::Float { .. }, Value::Int(value)) => Value::Float(*value as f64),
        // Beyond 2^53 several whole numbers have the same float.
        (Distribution::Int { .. }, Value::Float(value)) if value.fract() == 0.0 && value.abs() < 9e15 => {
            Value::Int(*value as i64)
        }
        (Distribution::Choice { values, .. }, value) => chosen(value, values)?.clone(),
        _ => value.clone(),
    };
    // A sum of decimals misses its lattice point by a little; the lattice point is the intended value.
    distribution.contains(&fitted).then(|| distribution.clamp_to_lattice(&fitted)).flatten()
}

/// The choice that a value means: an equal choice, or else the choice with the same text, or else the choice with the same number.
fn chosen<'a>(value: &Value, values: &'a [Value]) -> Option<&'a Value> {
    let read = |known: &Value| match known {
        Value::Text(text) => parse_value(text),
        other => other.clone(),
    };
    let same = values.iter().find(|known| *known == value);
    let written = || values.iter().find(|known| read(known) == *value);
    same.or_else(written).or_else(|| values.iter().find(|known| is_same_number(&read(known), value)))
}

/// Whether a whole number and a float are the same number.
fn is_same_number(first: &Value, second: &Value) -> bool {
    match (first, second) {
        (Value::Int(whole), Value::Float(float)) | (Value::Float(float), Value::Int(whole)) => {
            // Beyond 2^53 several whole numbers have the same float.
            whole.unsigned_abs() < 1 << 53 && *whole as f64 == *float
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Scale;
    use expect_test::expect;

    fn units() -> Distribution {
        Distribution::Int { low: 32, high: 512, step: 32, scale: Scale::Linear }
    }

    fn values(text: &str) -> Values {
        let pairs = text.split_whitespace().filter_map(|pair| pair.split_once('='));
        pairs.map(|(name, value)| (name.to_owned(), parse_value(value))).collect()
    }

    #[test]
    fn texts_are_read_as_the_value_that_they_look_like() {
        let text = |text: &str| Value::Text(text.to_owned());
        let read = ["true", "64", "-3", "1e-3", "adam", "0x1", "inf", ""].map(parse_value);
        let meant = [
            Value::Bool(true),
            Value::Int(64),
            Value::Int(-3),
            Value::Float(1e-3),
            text("adam"),
            text("0x1"),
            text("inf"),
            text(""),
        ];
        assert_eq!(read, meant);
    }

    #[test]
    fn given_values_take_the_type_of_their_range() {
        let lr = Distribution::Float { low: 1e-4, high: 10.0, step: None, scale: Scale::Log };
        let kernel = Distribution::Choice {
            values: ["1", "3"].map(|text| Value::Text(text.to_owned())).to_vec(),
            is_ordered: false,
        };
        let given = Given { fixed: values("units=64.0 lr=1 kernel=3"), ..Given::default() };
        let value = |name: &str, range: &Distribution| given.value(&Values::new(), name, range, None);
        assert_eq!(value("units", &units()), Ok(Some(Value::Int(64))));
        assert_eq!(value("lr", &lr), Ok(Some(Value::Float(1.0))));
        assert_eq!(value("kernel", &kernel), Ok(Some(Value::Text("3".to_owned()))));
        assert_eq!(value("other", &lr), Ok(None));
    }

    #[test]
    fn choice_next_to_the_given_value_is_not_taken() {
        let floats = |values: &[f64]| Distribution::Choice {
            values: values.iter().copied().map(Value::Float).collect(),
            is_ordered: false,
        };
        let value = |text: &str, range: &Distribution| {
            let given = Given { fixed: values(&format!("beta2={text}")), ..Given::default() };
            given.value(&Values::new(), "beta2", range, None)
        };
        let beta2 = floats(&[0.9, 0.99995, 0.99999, 1.0]);
        for wanted in [0.9, 0.99995, 0.99999, 1.0] {
            assert_eq!(value(&wanted.to_string(), &beta2), Ok(Some(Value::Float(wanted))));
        }
        expect![
            "--fix gives `beta2` the value 0.99998, but it is a choice of 0.9, 0.99995, 0.99999, 1.0; give one of these"
        ]
        .assert_eq(&value("0.99998", &beta2).expect_err("refused"));
        let texts = |texts: &[&str]| Distribution::Choice {
            values: texts.iter().map(|text| Value::Text((*text).to_owned())).collect(),
            is_ordered: false,
        };
        let one = |text: &str| Ok(Some(Value::Text(text.to_owned())));
        assert_eq!(value("1e-3", &texts(&["0.0010001", "1e-3"])), one("1e-3"));
        assert_eq!(value("1", &texts(&["1.0", "1"])), one("1"));
        assert_eq!(value("1.0", &texts(&["1"])), one("1"));
        assert_eq!(value("1", &floats(&[0.5, 1.0])), Ok(Some(Value::Float(1.0))));
    }

    #[test]
    fn trial_with_another_value_of_a_fixed_parameter_is_not_of_the_search() {
        let given = Given { fixed: values("units=64 other=1"), tune_only: vec!["lr".to_owned()], ..Given::default() };
        let of = |value| BTreeMap::from([("units".to_owned(), Parameter { distribution: units(), value })]);
        assert!(given.agrees_with(&of(Value::Int(64))) && given.agrees_with(&BTreeMap::new()));
        assert!(!given.agrees_with(&of(Value::Int(96))));
        assert!(given.leaves_open("lr") && !given.leaves_open("units") && !given.leaves_open("depth"));
    }

    #[test]
    fn value_outside_its_range_is_refused_with_the_option_that_gave_it() {
        let given = Given { fixed: values("units=65"), ..Given::default() };
        let error = |preset: &str| given.value(&values(preset), "units", &units(), None).expect_err("refused");
        expect!["--fix gives `units` the value 65, but it is an int 32..=512, step 32; give one of these"]
            .assert_eq(&error(""));
        expect!["--enqueue gives `units` the value many, but it is an int 32..=512, step 32; give one of these"]
            .assert_eq(&error("units=many"));
    }

    #[test]
    fn what_is_not_to_be_tuned_keeps_its_default_or_its_lowest_value() {
        let given = Given { tune_only: vec!["lr".to_owned()], ..Given::default() };
        let value = |name, default: Option<&Value>| given.value(&values("depth=96"), name, &units(), default);
        assert_eq!(value("lr", Some(&Value::Int(96))), Ok(None));
        assert_eq!(value("units", Some(&Value::Int(96))), Ok(Some(Value::Int(96))));
        assert_eq!(value("units", None), Ok(Some(Value::Int(32))));
        assert_eq!(value("depth", None), Ok(Some(Value::Int(96))), "an enqueued value counts first");
    }
}
