//! What the user has decided about parameters beforehand, so that no oracle is asked: values for all trials, values of the
//! trials to try first, and which parameters are tuned at all. Knows no trial's record and no journal.

use crate::space::{Distribution, Value};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Values of some parameters, by name.
pub type Values = BTreeMap<String, Value>;

/// What the user has decided beforehand.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Given {
    /// Values that parameters have in every trial.
    pub fixed: Values,
    /// The parameters to tune; empty for all of them. Any other keeps its default, or else its lowest or first value.
    pub tune_only: Vec<String>,
    /// Values of trials to try first, each of which leaves the other parameters to the oracle. Like `overwrite` a deed of
    /// the call that asks for it; what the study has in its queue already is not put there again.
    pub enqueued: Vec<Values>,
}

impl Given {
    /// The value that is decided for a parameter of a trial that was enqueued with the values `preset`; `None` leaves it
    /// to the oracle. The distribution must be valid. Fails with the reason where the parameter cannot have the value.
    pub fn value(
        &self,
        preset: &Values,
        name: &str,
        distribution: &Distribution,
        default: Option<&Value>,
    ) -> Result<Option<Value>, String> {
        let enqueued = preset.get(name).map(|value| ("--enqueue", value));
        if let Some((option, value)) = enqueued.or_else(|| self.fixed.get(name).map(|value| ("--fix", value))) {
            let misfit =
                || format!("{option} gives `{name}` the value {value}, but it is {distribution}; give one of these");
            return fitted(value, distribution).map(Some).ok_or_else(misfit);
        }
        let is_tuned = self.tune_only.is_empty() || self.tune_only.iter().any(|tuned| tuned == name);
        Ok((!is_tuned).then(|| default.cloned().unwrap_or_else(|| distribution.first())))
    }

    /// The names that it names, of parameters that no one may ever ask for.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.fixed.keys().chain(&self.tune_only).map(String::as_str)
    }
}

/// A value as people write it: `true`, `64`, `1e-3`, or else a text.
pub fn parse_value(text: &str) -> Value {
    let boolean = text.parse().map(Value::Bool).ok();
    let real = || text.parse().ok().filter(|value: &f64| value.is_finite()).map(Value::Float);
    let number = || text.parse().map(Value::Int).ok().or_else(real);
    boolean.or_else(number).unwrap_or_else(|| Value::Text(text.to_owned()))
}

/// The value in the type of the range, if it lies there.
fn fitted(value: &Value, distribution: &Distribution) -> Option<Value> {
    let fitted = match (distribution, value) {
        (Distribution::Float { .. }, Value::Int(value)) => Value::Float(*value as f64),
        // Beyond 2^53 a float does not name one whole number.
        (Distribution::Int { .. }, Value::Float(value)) if value.fract() == 0.0 && value.abs() < 9e15 => {
            Value::Int(*value as i64)
        }
        // `1` may be meant for the text "1".
        (Distribution::Choice { values, .. }, value) => {
            values.iter().find(|known| *known == value || known.to_string() == value.to_string())?.clone()
        }
        _ => value.clone(),
    };
    // A sum of decimals is the lattice point that it is meant to be.
    distribution.contains(&fitted).then(|| distribution.clamp_to_lattice(&fitted)).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::space::Scale;
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
