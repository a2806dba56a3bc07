//! The types of parameters, and the conversion of their values.

use super::ChoiceParameter;
use ferrotune_space::Value;
use ferrotune_state::{Result, located};
use std::fmt;

/// The integer types of [`Trial::int`](crate::Trial::int).
#[diagnostic::on_unimplemented(message = "`{Self}` is not a whole-number type that trial.int takes")]
pub trait Integer: Copy + fmt::Debug + fmt::Display + TryInto<i64> + TryFrom<i64> {}

/// The real types of [`Trial::float`](crate::Trial::float).
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a real-number type that trial.float takes",
    note = "write the bounds with a point, e.g. `0.0..=1.0`, or use trial.int"
)]
pub trait Real: Copy + fmt::Debug {
    /// The nearest value of this type.
    fn from_f64(value: f64) -> Self;

    /// The `f64` with the same shortest decimal: 0.1 for the `f32` 0.1, which is 0.10000000149011612. Studies store the
    /// decimals that people write, for every type.
    fn to_f64(self) -> f64;
}

impl Real for f64 {
    fn to_f64(self) -> f64 {
        self
    }

    fn from_f64(value: f64) -> f64 {
        value
    }
}

impl Real for f32 {
    fn to_f64(self) -> f64 {
        self.to_string().parse().unwrap_or(f64::from(self))
    }

    fn from_f64(value: f64) -> f32 {
        value as f32
    }
}

/// The types of [`Trial::choice`](crate::Trial::choice): numbers, bools and strings.
#[diagnostic::on_unimplemented(
    message = "trial.choice cannot offer values of type `{Self}`",
    note = "offer strings, numbers or bools, and match on the one that was chosen"
)]
pub trait Choosable {
    /// The value for the supervisor.
    fn to_value(&self) -> Value;
}

/// The types that [`Trial::choice`](crate::Trial::choice) returns unchanged: numbers and bools.
pub trait Plain: Choosable + Sized {
    /// The value from the supervisor; `None` if it has another type.
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

/// A choice of any string type returns a `String`.
macro_rules! strings {
    ($($kind:ty),*) => {$(
        impl ChoiceParameter<'_, $kind> {
            /// Asks for the value in this trial.
            ///
            /// Fails if the list is empty, or if a parameter of this name had another kind before.
            #[track_caller]
            pub fn get(self) -> Result<String> {
                located(self.ask(|value| match value {
                    Value::Text(text) => Some(text.clone()),
                    _ => None,
                }))
            }
        }
    )*};
}

macro_rules! integers {
    ($($kind:ty),*) => {$(
        impl Integer for $kind {}

        impl Choosable for $kind {
            fn to_value(&self) -> Value {
                // Numbers beyond i64 cannot be stored as integers; floats at least keep their order.
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
                Value::Float(self.to_f64())
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

/// Removes the rounding error that a sum of decimals gives a bound of a lattice: 0.3 for 0.1 + 0.2, which is
/// 0.30000000000000004. Does not change other numbers.
pub(super) fn decimal(number: f64) -> f64 {
    let rounded = format!("{number:.14e}");
    let digits = rounded.split('e').next().unwrap_or_default().trim_end_matches('0').len();
    // Rounds only if the last two of 15 digits (three of a negative number) are zeros, unlike those of a third or a square root.
    if digits <= "-1.23456789012".len() { rounded.parse().unwrap_or(number) } else { number }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn single_precision_is_the_decimal_that_it_is_written_as_and_comes_back() {
        for (single, double) in
            [(0.1_f32, 0.1), (0.3, 0.3), (-0.7, -0.7), (1e-4, 1e-4), (1e-40, 1e-40), (16_777_216.0, 16_777_216.0)]
        {
            assert_eq!(single.to_f64(), double);
        }
        assert!(f32::NAN.to_f64().is_nan() && f32::INFINITY.to_f64() == f64::INFINITY);
        let mut bits = 1_u32;
        for _ in 0..200_000 {
            bits = bits.wrapping_mul(0x9e37_79b1).wrapping_add(0x7f4a_7c15);
            let number = f32::from_bits(bits);
            assert!(number.is_nan() || f32::from_f64(number.to_f64()) == number, "{number:e}");
        }
    }

    #[test]
    fn sums_of_decimals_lose_their_last_digits_and_other_numbers_none() {
        for (number, expected) in [
            (0.1 + 0.2, 0.3),
            (0.7 + 0.1, 0.8),
            (-0.1 - 0.2, -0.3),
            (1e-7 + 2e-7, 3e-7),
            (0.0, 0.0),
            (1.0 / 3.0, 1.0 / 3.0),
            (2.0_f64.sqrt(), 2.0_f64.sqrt()),
            (f64::from(0.1_f32), f64::from(0.1_f32)),
            (f64::MAX, f64::MAX),
            (f64::NEG_INFINITY, f64::NEG_INFINITY),
        ] {
            assert_eq!(decimal(number), expected);
        }
    }
}
