//! Options and attributes: named values.
#![expect(unsafe_code, reason = "reads the plugin's arrays")]

use super::abi::NamedValue;
use super::api::{slice_of, text_of};
use serde::{Deserialize, Deserializer, Serialize};
use std::fmt;
use std::ptr::null_mut;

/// The value of an option or an attribute.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Value {
    /// A string.
    Text(String),
    /// A whole number.
    Integer(i64),
    /// Whole numbers.
    Integers(Vec<i64>),
    /// A floating-point number.
    Float(#[serde(deserialize_with = "undefined_or")] f32),
    /// A Boolean value.
    Flag(bool),
}

/// Reads a floating-point number, and NaN for null, since JSON has no NaN and no infinity and null is written for them.
fn undefined_or<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f32, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or(f32::NAN))
}

/// An attribute: a name and a value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Named {
    /// The attribute's name.
    pub name: String,
    /// The attribute's value.
    pub value: Value,
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Text(text) => f.write_str(text),
            Value::Integer(value) => write!(f, "{value}"),
            Value::Integers(values) => write!(f, "{values:?}"),
            Value::Float(value) => write!(f, "{value}"),
            Value::Flag(value) => write!(f, "{value}"),
        }
    }
}

/// Copies an array of attributes from the plugin. Values of types that this version does not know are left out.
///
/// # Safety
/// `values` is null, or has `length` elements as PJRT defines them.
pub(super) unsafe fn read(values: *const NamedValue, length: usize) -> Vec<Named> {
    // SAFETY: the caller guarantees the pointer and the length.
    let values = unsafe { slice_of(values, length) };
    values
        .iter()
        .filter_map(|named| {
            let pointer = named.value as usize;
            // SAFETY: name and value are as long as the element says, as the caller guarantees.
            unsafe {
                let value = match named.kind {
                    0 => Value::Text(text_of(pointer as *const u8, named.value_length)),
                    1 => Value::Integer(named.value.cast_signed()),
                    2 => Value::Integers(slice_of(pointer as *const i64, named.value_length).to_vec()),
                    3 => Value::Float(f32::from_bits(lowest(named.value))),
                    4 => Value::Flag(lowest(named.value) & 0xff != 0),
                    _ => return None,
                };
                Some(Named { name: text_of(named.name, named.name_length), value })
            }
        })
        .collect()
}

/// The first four bytes of an eight-byte union.
fn lowest(word: u64) -> u32 {
    let bytes = word.to_ne_bytes();
    u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

/// An array of options for the plugin. The array borrows names and values.
pub(super) struct Options<'a> {
    values: Vec<NamedValue>,
    _options: &'a [(&'a str, Value)],
}

impl<'a> Options<'a> {
    pub(super) fn new(options: &'a [(&'a str, Value)]) -> Options<'a> {
        let values = options.iter().map(|(name, value)| {
            let word = |bytes: [u8; 4]| u64::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3], 0, 0, 0, 0]);
            let (kind, value, value_length) = match value {
                Value::Text(text) => (0, text.as_ptr() as u64, text.len()),
                Value::Integer(value) => (1, value.cast_unsigned(), 1),
                Value::Integers(values) => (2, values.as_ptr() as u64, values.len()),
                Value::Float(value) => (3, word(value.to_ne_bytes()), 1),
                Value::Flag(value) => (4, word([u8::from(*value), 0, 0, 0]), 1),
            };
            let (size, extension) = (size_of::<NamedValue>(), null_mut());
            NamedValue { size, extension, name: name.as_ptr(), name_length: name.len(), kind, value, value_length }
        });
        Options { values: values.collect(), _options: options }
    }

    /// The pointer to the array, and its length.
    pub(super) fn parts(&self) -> (*const NamedValue, usize) {
        (self.values.as_ptr(), self.values.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_value_comes_back_as_it_went() {
        let options = [
            ("text", Value::Text("v5e:2x2".into())),
            ("integer", Value::Integer(-3)),
            ("integers", Value::Integers(vec![2, 2, 1])),
            ("float", Value::Float(0.25)),
            ("yes", Value::Flag(true)),
            ("no", Value::Flag(false)),
        ];
        let array = Options::new(&options);
        let (values, length) = array.parts();
        // SAFETY: the array is alive and has the given length.
        let back = unsafe { read(values, length) };
        let expected = options.iter().map(|(name, value)| Named { name: (*name).into(), value: value.clone() });
        assert_eq!(back, expected.collect::<Vec<_>>());
    }
}
