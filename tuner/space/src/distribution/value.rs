//! Conversions from the plain Rust types that people write into parameter values: `64.into()`, `1e-3.into()`, `"adam".into()`.

use super::Value;

impl From<bool> for Value {
    fn from(value: bool) -> Value {
        Value::Bool(value)
    }
}

impl From<f64> for Value {
    fn from(value: f64) -> Value {
        Value::Float(value)
    }
}

impl From<&str> for Value {
    fn from(value: &str) -> Value {
        Value::Text(value.to_owned())
    }
}

impl From<String> for Value {
    fn from(value: String) -> Value {
        Value::Text(value)
    }
}

macro_rules! integers {
    ($($kind:ty),*) => {$(
        impl From<$kind> for Value {
            /// Converts a number beyond `i64` to a float, which keeps the order of the numbers.
            fn from(value: $kind) -> Value {
                i64::try_from(value).map_or_else(|_| Value::Float(value as f64), Value::Int)
            }
        }
    )*};
}

integers!(i32, i64, u32, u64, usize);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_values_become_values_of_their_kind() {
        let values: [Value; 6] = [true.into(), 64.into(), (-3_i64).into(), 1e-3.into(), "adam".into(), 7_usize.into()];
        let text = Value::Text("adam".to_owned());
        let meant = [Value::Bool(true), Value::Int(64), Value::Int(-3), Value::Float(1e-3), text, Value::Int(7)];
        assert_eq!(values, meant);
        assert_eq!(Value::from(u64::MAX), Value::Float(u64::MAX as f64));
    }
}
