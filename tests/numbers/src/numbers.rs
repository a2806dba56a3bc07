//! The numbers of a case: what an operation takes beside tensors. A number that is missing or of another kind is a mistake of the suite and panics.

use anyhow::{Result, bail};
use candle_core::DType;
use serde::Deserialize;
use serde_json::Value;

/// The numbers of a case, in the operation's order.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub(crate) struct Numbers(Vec<Value>);

impl Numbers {
    /// A float. JSON has neither NaN nor infinity, which are texts.
    pub(crate) fn float(&self, place: usize) -> f64 {
        match self.value(place) {
            Value::String(text) => text.parse().unwrap_or_else(|_| panic!("{text} is no float")),
            value => value.as_f64().unwrap_or_else(|| panic!("{value} is no float")),
        }
    }

    pub(crate) fn size(&self, place: usize) -> usize {
        self.int(place).try_into().unwrap_or_else(|_| panic!("number {place} is negative"))
    }

    pub(crate) fn int(&self, place: usize) -> i64 {
        self.value(place).as_i64().unwrap_or_else(|| panic!("number {place} is no integer"))
    }

    pub(crate) fn flag(&self, place: usize) -> bool {
        self.value(place).as_bool().unwrap_or_else(|| panic!("number {place} is no flag"))
    }

    pub(crate) fn sizes(&self, place: usize) -> Vec<usize> {
        let sizes = self.value(place).as_array().unwrap_or_else(|| panic!("number {place} is no list"));
        sizes.iter().map(|size| size.as_u64().unwrap_or_else(|| panic!("{size} is no size")) as usize).collect()
    }

    pub(crate) fn dtype(&self, place: usize) -> DType {
        let name = self.text(place);
        dtype(name).unwrap_or_else(|error| panic!("{error}"))
    }

    pub(crate) fn text(&self, place: usize) -> &str {
        self.value(place).as_str().unwrap_or_else(|| panic!("number {place} is no text"))
    }

    fn value(&self, place: usize) -> &Value {
        self.0.get(place).unwrap_or_else(|| panic!("the case has no number {place}"))
    }
}

/// candle's type by the suite's name for it.
pub(crate) fn dtype(name: &str) -> Result<DType> {
    Ok(match name {
        "u8" => DType::U8,
        "u32" => DType::U32,
        "i16" => DType::I16,
        "i32" => DType::I32,
        "i64" => DType::I64,
        "bf16" => DType::BF16,
        "f16" => DType::F16,
        "f32" => DType::F32,
        "f64" => DType::F64,
        _ => bail!("{name} is no type of the suite"),
    })
}
