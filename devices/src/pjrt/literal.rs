//! Arrays in the host's memory, which are copied to and from devices: dense and in row-major order.

use super::error::PjrtError;
use crate::memory::Bytes;
use serde::{Deserialize, Serialize};

/// The type of an array's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the names are StableHLO's")]
pub enum Element {
    Pred,
    S8,
    S16,
    S32,
    S64,
    U8,
    U16,
    U32,
    U64,
    F16,
    F32,
    F64,
    Bf16,
    C64,
    C128,
    F8E5M2,
    F8E4M3FN,
    F8E4M3B11FNUZ,
    F8E5M2FNUZ,
    F8E4M3FNUZ,
    /// Four bits; on the host each element takes a byte.
    S4,
    /// Four bits; on the host each element takes a byte.
    U4,
}

impl Element {
    /// All types, in the order of PJRT's numbers, which begin at 1.
    pub const ALL: [Element; 22] = [
        Element::Pred,
        Element::S8,
        Element::S16,
        Element::S32,
        Element::S64,
        Element::U8,
        Element::U16,
        Element::U32,
        Element::U64,
        Element::F16,
        Element::F32,
        Element::F64,
        Element::Bf16,
        Element::C64,
        Element::C128,
        Element::F8E5M2,
        Element::F8E4M3FN,
        Element::F8E4M3B11FNUZ,
        Element::F8E5M2FNUZ,
        Element::F8E4M3FNUZ,
        Element::S4,
        Element::U4,
    ];

    /// The number of bytes of one element on the host.
    pub const fn bytes(self) -> usize {
        match self {
            Element::S16 | Element::U16 | Element::F16 | Element::Bf16 => 2,
            Element::S32 | Element::U32 | Element::F32 => 4,
            Element::S64 | Element::U64 | Element::F64 | Element::C64 => 8,
            Element::C128 => 16,
            _ => 1,
        }
    }

    pub(super) fn number(self) -> i32 {
        self as i32 + 1
    }

    pub(super) fn of_number(number: i32) -> Result<Element, PjrtError> {
        let index = usize::try_from(number).ok().and_then(|number| number.checked_sub(1));
        index.and_then(|index| Element::ALL.get(index)).copied().ok_or_else(|| PjrtError::Mismatch {
            what: format!("the plugin has an array of element type {number}, which is unknown here"),
        })
    }
}

/// A dense array in the host's memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Literal {
    element: Element,
    dims: Vec<i64>,
    bytes: Bytes,
}

impl Literal {
    /// An array of bytes in the machine's byte order.
    ///
    /// # Errors
    /// If the number of bytes does not match the dimensions.
    pub fn new(element: Element, dims: &[i64], bytes: Vec<u8>) -> Result<Literal, PjrtError> {
        Literal::of(element, dims, Bytes::Own(bytes))
    }

    /// An array of bytes in the machine's byte order, which may be in a memory file.
    ///
    /// # Errors
    /// If the number of bytes does not match the dimensions.
    pub(crate) fn of(element: Element, dims: &[i64], bytes: Bytes) -> Result<Literal, PjrtError> {
        check_length(element, dims, &bytes)?;
        Ok(Literal { element, dims: dims.to_vec(), bytes })
    }

    /// An array of single-precision values.
    ///
    /// # Errors
    /// If the number of values does not match the dimensions.
    pub fn f32(dims: &[i64], values: &[f32]) -> Result<Literal, PjrtError> {
        Literal::new(Element::F32, dims, values.iter().flat_map(|value| value.to_ne_bytes()).collect())
    }

    /// An array of single-precision values that are rounded to `bf16`, ties to even.
    ///
    /// # Errors
    /// If the number of values does not match the dimensions.
    pub fn bf16(dims: &[i64], values: &[f32]) -> Result<Literal, PjrtError> {
        let bytes = values.iter().flat_map(|value| to_bf16(*value).to_ne_bytes()).collect();
        Literal::new(Element::Bf16, dims, bytes)
    }

    /// The element type of the array.
    pub fn element(&self) -> Element {
        self.element
    }

    /// The dimensions of the array; none for a scalar.
    pub fn dims(&self) -> &[i64] {
        &self.dims
    }

    /// The bytes of the elements, in the machine's byte order.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The values of an array of `f32` or `bf16`.
    ///
    /// # Errors
    /// If the array has another element type.
    pub fn to_f32(&self) -> Result<Vec<f32>, PjrtError> {
        match self.element {
            Element::F32 => Ok(self.bytes.as_chunks().0.iter().map(|bytes| f32::from_ne_bytes(*bytes)).collect()),
            Element::Bf16 => Ok(self.bytes.as_chunks().0.iter().map(|bytes| of_bf16(*bytes)).collect()),
            element => Err(PjrtError::Mismatch { what: format!("{element:?} is not read as f32") }),
        }
    }
}

/// The number of bytes of an array; none where the number overflows.
pub(super) fn byte_count(element: Element, dims: &[i64]) -> Option<usize> {
    dims.iter().try_fold(element.bytes(), |count, dim| count.checked_mul(usize::try_from(*dim).ok()?))
}

/// Fails if an array of these dimensions does not have these bytes.
pub(crate) fn check_length(element: Element, dims: &[i64], bytes: &[u8]) -> Result<(), PjrtError> {
    if byte_count(element, dims) == Some(bytes.len()) {
        return Ok(());
    }
    let what = format!("an array {dims:?} of {element:?} does not have {} bytes", bytes.len());
    Err(PjrtError::Mismatch { what })
}

fn to_bf16(value: f32) -> u16 {
    let bits = value.to_bits();
    if value.is_nan() {
        // Rounding could turn a NaN into an infinity, so the quiet bit is set instead.
        return (bits >> 16) as u16 | 0x40;
    }
    let is_odd = bits >> 16 & 1;
    (bits.wrapping_add(0x7fff + is_odd) >> 16) as u16
}

fn of_bf16(bytes: [u8; 2]) -> f32 {
    f32::from_bits(u32::from(u16::from_ne_bytes(bytes)) << 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bf16_rounds_to_the_nearest_and_ties_to_even() {
        for (value, expected) in [
            (1.0, 1.0),
            (1.0 + 1.0 / 256.0, 1.0),
            (1.0 + 3.0 / 256.0, 1.0 + 1.0 / 64.0),
            (-1.005, -1.0078125),
            (f32::MAX, f32::INFINITY),
            (f32::INFINITY, f32::INFINITY),
            (0.0, 0.0),
        ] {
            assert_eq!(of_bf16(to_bf16(value).to_ne_bytes()), expected, "{value}");
        }
        assert!(of_bf16(to_bf16(f32::from_bits(0x7f80_0001)).to_ne_bytes()).is_nan());
    }

    #[test]
    fn bytes_and_dimensions_must_agree() {
        assert!(Literal::f32(&[2, 3], &[0.0; 6]).is_ok());
        assert!(Literal::f32(&[], &[0.0]).is_ok());
        for (dims, length) in [(&[2, 3][..], 5), (&[-1], 1), (&[i64::MAX, 2], 1), (&[0], 1)] {
            assert!(Literal::f32(dims, &vec![0.0; length]).is_err(), "{dims:?}");
        }
    }

    #[test]
    fn numbers_and_elements_are_one_to_one() {
        for element in Element::ALL {
            assert_eq!(Element::of_number(element.number()), Ok(element));
        }
        assert_eq!((Element::Bf16.number(), Element::U4.number()), (13, 22));
        assert!(Element::of_number(0).is_err() && Element::of_number(23).is_err() && Element::of_number(-1).is_err());
    }
}
