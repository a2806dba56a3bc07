//! Distributions and values in Optuna's storage format. Refuses distributions that this program cannot draw from.

use super::{Distribution, Scale, SpaceError, Value};
use crate::lattice::{last_index, point};
use serde::{Deserialize, Serialize};

/// Optuna's JSON of a distribution: its class name and constructor arguments.
#[derive(Serialize, Deserialize)]
#[serde(tag = "name", content = "attributes")]
enum Stored {
    #[serde(rename = "IntDistribution")]
    Int { log: bool, step: i64, low: i64, high: i64 },
    #[serde(rename = "FloatDistribution")]
    Float { step: Option<f64>, low: f64, high: f64, log: bool },
    #[serde(rename = "CategoricalDistribution")]
    Categorical { choices: Vec<Value> },
}

impl Distribution {
    /// A parameter's value as Optuna stores it: the number itself, or the index of a choice. `None` for a value that is
    /// not of this distribution's type, or not among the choices.
    pub fn to_internal(&self, value: &Value) -> Option<f64> {
        match (self, value) {
            (Distribution::Int { .. }, Value::Int(value)) => Some(*value as f64),
            (Distribution::Float { .. }, Value::Float(value)) => Some(*value),
            (Distribution::Choice { values, .. }, value) => {
                values.iter().position(|choice| choice == value).map(|index| index as f64)
            }
            _ => None,
        }
    }

    /// The value that Optuna's stored number means; `None` for a choice index out of range, or NaN.
    pub fn from_internal(&self, internal: f64) -> Option<Value> {
        if internal.is_nan() {
            return None;
        }
        match self {
            Distribution::Int { .. } => Some(Value::Int(internal as i64)),
            Distribution::Float { .. } => Some(Value::Float(internal)),
            Distribution::Choice { .. } if internal < 0.0 => None,
            Distribution::Choice { values, .. } => values.get(internal as usize).cloned(),
        }
    }

    /// The JSON text that Optuna stores for a distribution. Lowers `high` to the lattice, which Optuna requires. Leaves
    /// out reversed logarithms and orders of choices, which Optuna does not have.
    pub fn to_optuna(&self) -> String {
        let stored = match self {
            Distribution::Int { low, step, scale, .. } => {
                Stored::Int { log: *scale == Scale::Log, step: *step, low: *low, high: self.top_int() }
            }
            Distribution::Float { low, high, step, scale } => {
                let high = step.map_or(*high, |step| point(*low, step, last_index(*low, *high, step)));
                Stored::Float { step: *step, low: *low, high, log: *scale == Scale::Log }
            }
            Distribution::Choice { values, .. } => Stored::Categorical { choices: values.clone() },
        };
        serde_json::to_string(&stored).expect("plain numbers, booleans and strings always make JSON")
    }

    /// Reads Optuna's JSON text. Fails for the distributions of Optuna 2, for choices of `None`, and for anything
    /// else that is not an int, float or categorical distribution.
    pub fn from_optuna(text: &str) -> Result<Distribution, SpaceError> {
        let stored = serde_json::from_str(text)
            .map_err(|error| SpaceError::Foreign { text: text.to_owned(), reason: error.to_string() })?;
        let scale = |log: bool| if log { Scale::Log } else { Scale::Linear };
        Ok(match stored {
            Stored::Int { log, step, low, high } => Distribution::Int { low, high, step, scale: scale(log) },
            Stored::Float { step, low, high, log } => Distribution::Float { low, high, step, scale: scale(log) },
            Stored::Categorical { choices } => Distribution::Choice { values: choices, is_ordered: false },
        })
    }
}
