//! The numbers that replicas reduce, in their own type.

use super::StrategyError;
use std::ops::Range;

mod sealed {
    pub trait Sealed {}
    impl Sealed for f32 {}
    impl Sealed for f64 {}
}

/// A number that replicas can reduce: `f32` or `f64`.
pub trait Reduce: sealed::Sealed + Copy + Send + 'static {
    #[doc(hidden)]
    fn hold(values: &[Self]) -> Values;
    #[doc(hidden)]
    fn held(values: &Values) -> Option<&[Self]>;
}

impl Reduce for f32 {
    fn hold(values: &[f32]) -> Values {
        Values::F32(values.to_vec())
    }

    fn held(values: &Values) -> Option<&[f32]> {
        if let Values::F32(values) = values { Some(values) } else { None }
    }
}

impl Reduce for f64 {
    fn hold(values: &[f64]) -> Values {
        Values::F64(values.to_vec())
    }

    fn held(values: &Values) -> Option<&[f64]> {
        if let Values::F64(values) = values { Some(values) } else { None }
    }
}

/// Numbers of one of the two types.
#[derive(Clone, Debug, PartialEq)]
#[doc(hidden)]
pub enum Values {
    F32(Vec<f32>),
    F64(Vec<f64>),
}

impl Values {
    pub(super) fn len(&self) -> usize {
        match self {
            Values::F32(values) => values.len(),
            Values::F64(values) => values.len(),
        }
    }

    /// Bytes of each of them.
    pub(super) fn element_bytes(&self) -> usize {
        match self {
            Values::F32(_) => size_of::<f32>(),
            Values::F64(_) => size_of::<f64>(),
        }
    }

    /// The sum of all, divided by `divisor`. It is computed in the order of the list and in double precision, so that it does
    /// not depend on which replica was first.
    ///
    /// # Errors
    /// If one differs from the first in length or type.
    pub(super) fn combined(all: &[Values], divisor: f64) -> Result<Values, StrategyError> {
        let Some(first) = all.first() else { return Ok(Values::F32(Vec::new())) };
        if all.iter().any(|other| other.element_bytes() != first.element_bytes()) {
            return Err(StrategyError::Types);
        }
        if let Some(other) = all.iter().find(|other| other.len() != first.len()) {
            return Err(StrategyError::Lengths { first: first.len(), other: other.len() });
        }
        let mut sums = vec![0.0; first.len()];
        for values in all {
            match values {
                Values::F32(values) => sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += f64::from(*value)),
                Values::F64(values) => sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += value),
            }
        }
        Ok(match first {
            Values::F32(_) => Values::F32(sums.iter().map(|sum| (sum / divisor) as f32).collect()),
            Values::F64(_) => Values::F64(sums.iter().map(|sum| sum / divisor).collect()),
        })
    }

    /// Some of them as bytes in little-endian order, for other processes.
    pub(super) fn to_bytes(&self, range: Range<usize>) -> Vec<u8> {
        match self {
            Values::F32(values) => values[range].iter().flat_map(|value| value.to_le_bytes()).collect(),
            Values::F64(values) => values[range].iter().flat_map(|value| value.to_le_bytes()).collect(),
        }
    }

    /// Values of the same type as these, from bytes.
    pub(super) fn like(&self, bytes: &[u8]) -> Values {
        match self {
            Values::F32(_) => Values::F32(bytes.as_chunks().0.iter().map(|four| f32::from_le_bytes(*four)).collect()),
            Values::F64(_) => Values::F64(bytes.as_chunks().0.iter().map(|eight| f64::from_le_bytes(*eight)).collect()),
        }
    }
}
