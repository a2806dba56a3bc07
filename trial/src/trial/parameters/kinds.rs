//! The types of which parameters can be, and how their values travel.

use super::ChoiceParameter;
use crate::error::Result;
use ferrotune_tuner::space::Value;
use std::fmt;

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
