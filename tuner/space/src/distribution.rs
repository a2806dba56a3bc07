//! Hyper-parameters: kinds, ranges, lattices and values. Refuses empty and impossible ranges.

mod cube;
mod display;
mod optuna;
mod scale;
mod validity;
mod value;

pub use scale::Scale;
pub use validity::SpaceError;

use crate::lattice::nearest_point;
use serde::{Deserialize, Serialize};

/// The largest distance of a value from its lattice point, in steps. Single precision has a relative error of 6e-8.
const NEAR: f64 = 1e-6;

/// A hyper-parameter's value, in the form that the objective gets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Value {
    /// A `bool` parameter's value.
    Bool(bool),
    /// An `int` parameter's value.
    Int(i64),
    /// A `float` parameter's value.
    Float(f64),
    /// The value of a `choice` of strings.
    Text(String),
}

/// The range of one hyper-parameter. Bounds are inclusive.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Distribution {
    /// Whole numbers `low, low + step, …` up to `high`; `step` is 1 unless `scale` is linear.
    Int {
        /// Smallest value.
        low: i64,
        /// Largest value; lowered to the lattice if `step` does not divide the range.
        high: i64,
        /// Distance between neighbours, at least 1.
        step: i64,
        /// The scale on which values are uniform; a logarithmic one needs `low >= 1`.
        #[serde(rename = "log")]
        scale: Scale,
    },
    /// Real numbers from `low` to `high`, on a lattice if there is a `step`.
    Float {
        /// Smallest value.
        low: f64,
        /// Largest value.
        high: f64,
        /// Distance between neighbours, if the values lie on a lattice.
        step: Option<f64>,
        /// The scale on which values are uniform; a logarithmic one needs `low > 0` and no `step`.
        #[serde(rename = "log")]
        scale: Scale,
    },
    /// One of the listed values. A `bool` parameter is a choice of `false` and `true`.
    Choice {
        /// The values, at least one, all of one type.
        values: Vec<Value>,
        /// Whether neighbours in the list are similar; oracles then use the ranks 0, 1, …
        #[serde(default, skip_serializing_if = "is_false")]
        is_ordered: bool,
    },
}

/// A parameter of a trial: its range and its value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Parameter {
    /// The range from which the value was drawn.
    pub distribution: Distribution,
    /// The parameter's value.
    pub value: Value,
}

impl Distribution {
    /// Whether `value` is of the right type, inside the bounds and on the lattice.
    pub fn contains(&self, value: &Value) -> bool {
        match (self, value) {
            (Distribution::Int { low, step, .. }, Value::Int(value)) => {
                *low <= *value
                    && *value <= self.top_int()
                    && (i128::from(*value) - i128::from(*low)) % i128::from((*step).max(1)) == 0
            }
            (Distribution::Float { low, high, step: None, .. }, Value::Float(value)) => low <= value && value <= high,
            // Decimals such as 0.1 have no exact binary form, so sums of them, and values in single precision, miss a
            // lattice point by a little. Such values are accepted, also at the ends of the range.
            (Distribution::Float { low, high, step: Some(step), .. }, Value::Float(value)) => {
                (nearest_point(*low, *high, *step, *value) - value).abs() <= NEAR * step
            }
            (Distribution::Choice { values, .. }, value) => values.contains(value),
            _ => false,
        }
    }

    /// The value of this distribution that is nearest to `value`; `None` if the types differ, or if a choice is not
    /// listed.
    pub fn clamp_to_lattice(&self, value: &Value) -> Option<Value> {
        match (self, value) {
            (Distribution::Int { low, step, .. }, Value::Int(value)) => {
                let (low, step) = (i128::from(*low), i128::from((*step).max(1)));
                let inside = i128::from(*value).clamp(low, i128::from(self.top_int()));
                // The value is within the bounds now, so adding half a step and rounding down cannot overflow.
                let point = low + (inside - low + step / 2) / step * step;
                i64::try_from(point.min(i128::from(self.top_int()))).ok().map(Value::Int)
            }
            (Distribution::Float { low, high, step, .. }, Value::Float(value)) if !value.is_nan() => {
                let inside = value.clamp(*low, *high);
                Some(Value::Float(step.map_or(inside, |step| nearest_point(*low, *high, step, inside))))
            }
            (Distribution::Choice { values, .. }, value) => values.contains(value).then(|| value.clone()),
            _ => None,
        }
    }

    /// Whether both ranges are equal in single precision. In studies of earlier versions the bounds of `f32` parameters
    /// have the digits that double precision adds, such as 0.10000000149011612 for 0.1.
    pub fn is_alike(&self, other: &Distribution) -> bool {
        match (self, other) {
            (
                Distribution::Float { low, high, step, scale },
                Distribution::Float { low: other_low, high: other_high, step: other_step, scale: other_scale },
            ) => {
                let single = |low: &f64, high: &f64, step: &Option<f64>| {
                    (*low as f32, *high as f32, step.map(|step| step as f32))
                };
                scale == other_scale && single(low, high, step) == single(other_low, other_high, other_step)
            }
            _ => self == other,
        }
    }

    /// The distribution's lowest value, or the first one of its list. The distribution must be valid (see [`Distribution::validate`]).
    pub fn first(&self) -> Value {
        match self {
            Distribution::Int { low, .. } => Value::Int(*low),
            Distribution::Float { low, .. } => Value::Float(*low),
            Distribution::Choice { values, .. } => values[0].clone(),
        }
    }

    /// Whether the distribution's values have an order: numbers and ordered choices do.
    pub fn has_order(&self) -> bool {
        !matches!(self, Distribution::Choice { is_ordered: false, .. })
    }

    /// Largest integer on the lattice; 0 for a distribution that is not an integer range.
    fn top_int(&self) -> i64 {
        match self {
            Distribution::Int { low, high, step, .. } => {
                let (bottom, step) = (i128::from(*low), i128::from((*step).max(1)));
                let top = bottom + (i128::from(*high) - bottom).max(0) / step * step;
                i64::try_from(top).unwrap_or(*high)
            }
            _ => 0,
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_false(flag: &bool) -> bool {
    !flag
}
