//! The numbers of scikit-learn and PyTorch that `tests/golden/golden.py` writes.

use candle_core::{DType, Device, Tensor};
use serde_json::Value;
use std::sync::LazyLock;

pub(crate) static GOLDEN: LazyLock<Value> =
    LazyLock::new(|| serde_json::from_str(include_str!("../golden/golden.json")).unwrap());

/// A number; NaN for null.
pub(crate) fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or(f64::NAN)
}

pub(crate) fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(number).collect()
}

/// A tensor of one or two dimensions, in `f64`.
pub(crate) fn tensor(value: &Value) -> Tensor {
    let rows = value.as_array().unwrap();
    match rows.first().and_then(Value::as_array) {
        Some(first) => {
            let flat: Vec<f64> = rows.iter().flat_map(numbers).collect();
            Tensor::from_vec(flat, (rows.len(), first.len()), &Device::Cpu).unwrap()
        }
        None => Tensor::new(numbers(value), &Device::Cpu).unwrap(),
    }
}

pub(crate) fn tensor_of(value: &Value, dtype: DType) -> Tensor {
    tensor(value).to_dtype(dtype).unwrap()
}

#[track_caller]
pub(crate) fn assert_near(name: &str, found: f64, expected: f64, tolerance: f64) {
    let is_near =
        (found - expected).abs() <= tolerance * expected.abs().max(1.0) || (found.is_nan() && expected.is_nan());
    assert!(is_near, "{name}: {found} instead of {expected}");
}
