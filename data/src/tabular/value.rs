//! A single value, such as one of a row to predict.

use serde::{Deserialize, Serialize};

/// A value of one row and column. Numbers, texts, bools and options of them become values with `.into()`; `None` and NaN are gaps.
///
/// ```
/// use ferrotune_data::Value;
/// let values: [Value; 4] = [3.into(), "Oslo".into(), true.into(), None::<f64>.into()];
/// assert_eq!(values[3], Value::Gap);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Value {
    /// No value.
    Gap,
    /// A number.
    Number(f64),
    /// Yes (true) or no.
    YesNo(bool),
    /// A text: a category, a date of ISO 8601, or a word for yes or no.
    Text(String),
}

impl Value {
    /// The value as it is written in messages.
    pub(crate) fn shown(&self) -> String {
        match self {
            Value::Gap => "a gap".to_owned(),
            Value::Number(number) => format!("the number {number}"),
            Value::YesNo(bit) => format!("`{bit}`"),
            Value::Text(text) => format!("the text `{}`", text.escape_debug()),
        }
    }
}

macro_rules! numbers {
    ($($kind:ty),*) => {$(
        impl From<$kind> for Value {
            fn from(number: $kind) -> Value {
                Value::from(number as f64)
            }
        }
    )*};
}

numbers! { i8, i16, i32, i64, isize, u8, u16, u32, u64, usize, f32 }

impl From<f64> for Value {
    fn from(number: f64) -> Value {
        if number.is_nan() { Value::Gap } else { Value::Number(number) }
    }
}

impl From<bool> for Value {
    fn from(bit: bool) -> Value {
        Value::YesNo(bit)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::Text(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Value {
        Value::Text(text)
    }
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Value {
        value.map_or(Value::Gap, Into::into)
    }
}
