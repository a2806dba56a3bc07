//! Hyper-parameters: what an objective may ask for. Ranges are checked where the values are drawn, by the supervisor.

use super::Trial;
use crate::connection::unexpected;
use crate::error::{Result, TrialError};
use ferrotune_tuner::space::{Distribution, Value};
use ferrotune_tuner::wire::{Reply, Request};
use std::fmt;
use std::marker::PhantomData;
use std::ops::RangeInclusive;

impl Trial {
    /// A whole number of any integer type. Bounds are inclusive.
    ///
    /// ```no_run
    /// # fn objective(trial: &ferrotune_trial::Trial) -> ferrotune_trial::Result<()> {
    /// let units: usize = trial.int("units", 32..=512).step(32).get()?;
    /// # Ok(()) }
    /// ```
    pub fn int<T: Integer>(&self, name: &str, range: RangeInclusive<T>) -> IntParameter<'_, T> {
        let (low, high) = (*range.start(), *range.end());
        IntParameter { trial: self, name: name.to_owned(), low, high, step: None, log: false, default: None }
    }

    /// A real number. Bounds are inclusive.
    ///
    /// ```no_run
    /// # fn objective(trial: &ferrotune_trial::Trial) -> ferrotune_trial::Result<()> {
    /// let lr = trial.float("lr", 1e-4..=1e-1).log().get()?;
    /// # Ok(()) }
    /// ```
    pub fn float<T: Real>(&self, name: &str, range: RangeInclusive<T>) -> FloatParameter<'_, T> {
        let (low, high) = (*range.start(), *range.end());
        FloatParameter { trial: self, name: name.to_owned(), low, high, step: None, log: false, default: None }
    }

    /// One of a list of strings, numbers or bools. A choice of strings gives a `String`.
    ///
    /// ```no_run
    /// # fn objective(trial: &ferrotune_trial::Trial) -> ferrotune_trial::Result<()> {
    /// let optimiser = trial.choice("optimiser", ["adam", "sgd"]).get()?;
    /// let batch: usize = trial.choice("batch", [32, 64, 128]).get()?;
    /// # Ok(()) }
    /// ```
    pub fn choice<T: Choosable>(&self, name: &str, values: impl AsRef<[T]>) -> ChoiceParameter<'_, T> {
        let values = values.as_ref().iter().map(Choosable::to_value).collect();
        let (name, default, kind) = (name.to_owned(), None, PhantomData);
        ChoiceParameter { trial: self, name, values, default, kind }
    }

    /// `false` or `true`.
    pub fn bool(&self, name: &str) -> ChoiceParameter<'_, bool> {
        self.choice(name, [false, true])
    }

    /// A value that is not searched, but is recorded with the others.
    pub fn fixed<T: Choosable>(&self, name: &str, value: T) -> ChoiceParameter<'_, T> {
        self.choice(name, [value])
    }

    fn suggest(&self, name: &str, distribution: Distribution, default: Option<Value>) -> Result<Value, TrialError> {
        match self.ask(&Request::Suggest { name: name.to_owned(), distribution, default })? {
            Reply::Value { value } => Ok(value),
            reply => Err(unexpected(&reply)),
        }
    }
}

/// A whole number to be asked for; made by [`Trial::int`].
#[derive(Clone, Debug)]
#[must_use = "a parameter is asked for with .get()?"]
pub struct IntParameter<'a, T> {
    trial: &'a Trial,
    name: String,
    low: T,
    high: T,
    step: Option<T>,
    log: bool,
    default: Option<T>,
}

impl<T: Integer> IntParameter<'_, T> {
    /// Only `low, low + step, …`.
    pub fn step(mut self, step: T) -> Self {
        self.step = Some(step);
        self
    }

    /// Uniform in the logarithm.
    pub fn log(mut self) -> Self {
        self.log = true;
        self
    }

    /// The value of the first trial.
    pub fn default(mut self, value: T) -> Self {
        self.default = Some(value);
        self
    }

    /// The value in this trial.
    ///
    /// Fails where the range is empty or impossible, or differs from an earlier one of the same name.
    pub fn get(self) -> Result<T> {
        let wide = |value: T| {
            let error = TrialError::Value { name: self.name.clone(), value: value.to_string() };
            value.try_into().map_err(|_| error)
        };
        let step = self.step.map_or(Ok(1), wide)?;
        let distribution = Distribution::Int { low: wide(self.low)?, high: wide(self.high)?, step, log: self.log };
        let default = self.default.map(wide).transpose()?.map(Value::Int);
        let value = self.trial.suggest(&self.name, distribution, default)?;
        let narrow = match value {
            Value::Int(value) => T::try_from(value).ok(),
            _ => None,
        };
        narrow.ok_or_else(|| mismatch(self.name, &value))
    }
}

/// A real number to be asked for; made by [`Trial::float`].
#[derive(Clone, Debug)]
#[must_use = "a parameter is asked for with .get()?"]
pub struct FloatParameter<'a, T> {
    trial: &'a Trial,
    name: String,
    low: T,
    high: T,
    step: Option<T>,
    log: bool,
    default: Option<T>,
}

impl<T: Real> FloatParameter<'_, T> {
    /// Only `low, low + step, …`.
    pub fn step(mut self, step: T) -> Self {
        self.step = Some(step);
        self
    }

    /// Uniform in the logarithm.
    pub fn log(mut self) -> Self {
        self.log = true;
        self
    }

    /// The value of the first trial.
    pub fn default(mut self, value: T) -> Self {
        self.default = Some(value);
        self
    }

    /// The value in this trial.
    ///
    /// Fails where the range is empty or impossible, or differs from an earlier one of the same name.
    pub fn get(self) -> Result<T> {
        let step = self.step.map(Into::into);
        let distribution = Distribution::Float { low: self.low.into(), high: self.high.into(), step, log: self.log };
        let default = self.default.map(|value| Value::Float(value.into()));
        match self.trial.suggest(&self.name, distribution, default)? {
            Value::Float(value) => Ok(T::from_f64(value)),
            value => Err(mismatch(self.name, &value)),
        }
    }
}

/// One of a list, to be asked for; made by [`Trial::choice`], [`Trial::bool`] and [`Trial::fixed`].
#[derive(Clone, Debug)]
#[must_use = "a parameter is asked for with .get()?"]
pub struct ChoiceParameter<'a, T> {
    trial: &'a Trial,
    name: String,
    values: Vec<Value>,
    default: Option<Value>,
    kind: PhantomData<fn() -> T>,
}

impl<T: Choosable> ChoiceParameter<'_, T> {
    /// The value of the first trial.
    pub fn default(mut self, value: T) -> Self {
        self.default = Some(value.to_value());
        self
    }

    fn ask<V>(self, read: impl FnOnce(&Value) -> Option<V>) -> Result<V> {
        let distribution = Distribution::Choice { values: self.values };
        let value = self.trial.suggest(&self.name, distribution, self.default)?;
        read(&value).ok_or_else(|| mismatch(self.name, &value))
    }
}

impl<T: Plain> ChoiceParameter<'_, T> {
    /// The value in this trial.
    ///
    /// Fails where the list is empty, or a parameter of this name was something else before.
    pub fn get(self) -> Result<T> {
        self.ask(T::from_value)
    }
}

fn mismatch(name: String, value: &Value) -> Box<dyn std::error::Error + Send + Sync> {
    TrialError::Value { name, value: value.to_string() }.into()
}

/// The integer types that [`Trial::int`] takes.
#[diagnostic::on_unimplemented(message = "`{Self}` is not a whole-number type that trial.int takes")]
pub trait Integer: Copy + fmt::Debug + fmt::Display + TryInto<i64> + TryFrom<i64> {}

/// The real types that [`Trial::float`] takes.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a real-number type that trial.float takes",
    note = "write the bounds with a point, e.g. `0.0..=1.0`, or use trial.int"
)]
pub trait Real: Copy + fmt::Debug + Into<f64> {
    /// The nearest value of this type.
    fn from_f64(value: f64) -> Self;
}

impl Real for f64 {
    fn from_f64(value: f64) -> f64 {
        value
    }
}

impl Real for f32 {
    fn from_f64(value: f64) -> f32 {
        value as f32
    }
}

/// What [`Trial::choice`] takes: numbers, bools and strings.
#[diagnostic::on_unimplemented(
    message = "trial.choice cannot offer values of type `{Self}`",
    note = "offer strings, numbers or bools, and match on the one that was chosen"
)]
pub trait Choosable {
    /// As it travels to the supervisor.
    fn to_value(&self) -> Value;
}

/// What [`Trial::choice`] takes and hands out as it is: numbers and bools.
pub trait Plain: Choosable + Sized {
    /// As it comes back; `None` if it is of another type.
    fn from_value(value: &Value) -> Option<Self>;
}

impl Choosable for &str {
    fn to_value(&self) -> Value {
        Value::Text((*self).to_owned())
    }
}

impl Choosable for String {
    fn to_value(&self) -> Value {
        self.as_str().to_value()
    }
}

impl Choosable for bool {
    fn to_value(&self) -> Value {
        Value::Bool(*self)
    }
}

impl Plain for bool {
    fn from_value(value: &Value) -> Option<bool> {
        match value {
            Value::Bool(value) => Some(*value),
            _ => None,
        }
    }
}

/// A choice of any kind of string gives a `String`.
macro_rules! strings {
    ($($kind:ty),*) => {$(
        impl ChoiceParameter<'_, $kind> {
            /// The value in this trial.
            ///
            /// Fails where the list is empty, or a parameter of this name was something else before.
            pub fn get(self) -> Result<String> {
                self.ask(|value| match value {
                    Value::Text(text) => Some(text.clone()),
                    _ => None,
                })
            }
        }
    )*};
}

macro_rules! integers {
    ($($kind:ty),*) => {$(
        impl Integer for $kind {}

        impl Choosable for $kind {
            fn to_value(&self) -> Value {
                // Numbers beyond i64 cannot be stored as such; as floats they at least keep their order.
                i64::try_from(*self).map_or_else(|_| Value::Float(*self as f64), Value::Int)
            }
        }

        impl Plain for $kind {
            fn from_value(value: &Value) -> Option<$kind> {
                match value {
                    Value::Int(value) => <$kind>::try_from(*value).ok(),
                    _ => None,
                }
            }
        }
    )*};
}

macro_rules! reals {
    ($($kind:ty),*) => {$(
        impl Choosable for $kind {
            fn to_value(&self) -> Value {
                Value::Float((*self).into())
            }
        }

        impl Plain for $kind {
            fn from_value(value: &Value) -> Option<$kind> {
                match value {
                    Value::Float(value) => Some(<$kind>::from_f64(*value)),
                    _ => None,
                }
            }
        }
    )*};
}

strings!(&str, String);
integers!(i8, i16, i32, i64, isize, u8, u16, u32, u64, usize);
reals!(f32, f64);
