//! Checks that values can be drawn from a range; an error says what to change. Changes nothing itself.

use super::{Distribution, Scale, Value};

/// Why a range is invalid.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SpaceError {
    /// `low` is above `high`.
    #[error("parameter {name} has the empty range {low}..={high}; put the smaller bound first")]
    EmptyRange {
        /// The parameter.
        name: String,
        /// Lower bound.
        low: Value,
        /// Upper bound.
        high: Value,
    },
    /// The step is not a positive number.
    #[error("parameter {name} has step {step}; give a step of {least}")]
    Step {
        /// The parameter.
        name: String,
        /// The step.
        step: Value,
        /// The steps that are allowed.
        least: &'static str,
    },
    /// A logarithmic scale reaches zero or below.
    #[error("parameter {name} is logarithmic but starts at {low}; start {least} or drop {}", scale.method())]
    LogBound {
        /// The parameter.
        name: String,
        /// Lower bound.
        low: Value,
        /// The smallest allowed lower bound.
        least: &'static str,
        /// The scale.
        scale: Scale,
    },
    /// A logarithmic scale has a step.
    #[error("parameter {name} is logarithmic and has step {step}; drop the step or {}", scale.method())]
    LogStep {
        /// The parameter.
        name: String,
        /// The step.
        step: Value,
        /// The scale.
        scale: Scale,
    },
    /// A bound or a choice is infinite or not a number.
    #[error("parameter {name} has the bound or choice {bound}; give finite numbers")]
    NotFinite {
        /// The parameter.
        name: String,
        /// The bound or choice.
        bound: Value,
    },
    /// A choice has no values.
    #[error("parameter {name} has no choices; list at least one value")]
    NoChoices {
        /// The parameter.
        name: String,
    },
    /// A choice lists a value twice, so that the value is drawn twice as often, and a grid tries it twice.
    #[error("parameter {name} has the choice {value} twice; list each value once")]
    EqualChoices {
        /// The parameter.
        name: String,
        /// The value.
        value: Value,
    },
    /// A choice has values of several types.
    #[error("parameter {name} has choices of different types ({first} and {other}); give all of one type")]
    MixedChoices {
        /// The parameter.
        name: String,
        /// Type of the first choice.
        first: &'static str,
        /// The type of the first choice that differs.
        other: &'static str,
    },
    /// A text is not a distribution of Optuna.
    #[error("`{text}` is not a distribution that can be searched: {reason}; write it with Optuna 3 or later")]
    Foreign {
        /// The text.
        text: String,
        /// The reason why the text was refused.
        reason: String,
    },
}

impl Distribution {
    /// Checks that values can be drawn; an error names the parameter and says what to change.
    pub fn validate(&self, name: &str) -> Result<(), SpaceError> {
        match self {
            Distribution::Int { low, high, step, scale } => validate_int(name, *low, *high, *step, *scale),
            Distribution::Float { low, high, step, scale } => validate_float(name, *low, *high, *step, *scale),
            Distribution::Choice { values, .. } => validate_choice(name, values),
        }
    }
}

fn validate_int(name: &str, low: i64, high: i64, step: i64, scale: Scale) -> Result<(), SpaceError> {
    let name = name.to_owned();
    if low > high {
        return Err(SpaceError::EmptyRange { name, low: Value::Int(low), high: Value::Int(high) });
    }
    if step < 1 {
        return Err(SpaceError::Step { name, step: Value::Int(step), least: "at least 1" });
    }
    if scale != Scale::Linear && step != 1 {
        return Err(SpaceError::LogStep { name, step: Value::Int(step), scale });
    }
    if scale != Scale::Linear && low < 1 {
        return Err(SpaceError::LogBound { name, low: Value::Int(low), least: "at 1", scale });
    }
    Ok(())
}

fn validate_float(name: &str, low: f64, high: f64, step: Option<f64>, scale: Scale) -> Result<(), SpaceError> {
    let name = name.to_owned();
    if let Some(bound) = [low, high].into_iter().find(|bound| !bound.is_finite()) {
        return Err(SpaceError::NotFinite { name, bound: Value::Float(bound) });
    }
    if low > high {
        return Err(SpaceError::EmptyRange { name, low: Value::Float(low), high: Value::Float(high) });
    }
    if let Some(step) = step.filter(|step| !(step.is_finite() && *step > 0.0)) {
        return Err(SpaceError::Step { name, step: Value::Float(step), least: "more than 0" });
    }
    if let Some(step) = step.filter(|_| scale != Scale::Linear) {
        return Err(SpaceError::LogStep { name, step: Value::Float(step), scale });
    }
    if scale != Scale::Linear && low <= 0.0 {
        return Err(SpaceError::LogBound { name, low: Value::Float(low), least: "above 0", scale });
    }
    Ok(())
}

fn validate_choice(name: &str, values: &[Value]) -> Result<(), SpaceError> {
    let Some(first) = values.first() else {
        return Err(SpaceError::NoChoices { name: name.to_owned() });
    };
    for (index, value) in values.iter().enumerate() {
        if values[..index].contains(value) {
            return Err(SpaceError::EqualChoices { name: name.to_owned(), value: value.clone() });
        }
        if std::mem::discriminant(value) != std::mem::discriminant(first) {
            let (first, other) = (first.type_name(), value.type_name());
            return Err(SpaceError::MixedChoices { name: name.to_owned(), first, other });
        }
        if let Value::Float(number) = value
            && !number.is_finite()
        {
            return Err(SpaceError::NotFinite { name: name.to_owned(), bound: value.clone() });
        }
    }
    Ok(())
}

impl Value {
    fn type_name(&self) -> &'static str {
        match self {
            Value::Bool(_) => "bool",
            Value::Int(_) => "int",
            Value::Float(_) => "float",
            Value::Text(_) => "text",
        }
    }
}
