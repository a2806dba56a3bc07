//! Properties of element types.

use candle_core::{DType, Result, bail};
use ferrotune_devices::pjrt::Element;
use half::{bf16, f16};

/// PJRT's element type for candle's `dtype`.
///
/// # Errors
/// If `dtype` is a floating-point type of 8 bits or fewer, with which XLA devices do not compute.
pub(crate) fn element_of(dtype: DType) -> Result<Element> {
    Ok(match dtype {
        DType::U8 => Element::U8,
        DType::U32 => Element::U32,
        DType::I16 => Element::S16,
        DType::I32 => Element::S32,
        DType::I64 => Element::S64,
        DType::BF16 => Element::Bf16,
        DType::F16 => Element::F16,
        DType::F32 => Element::F32,
        DType::F64 => Element::F64,
        other => bail!("{other:?} is not computed with on XLA devices; convert it with `to_dtype` on the CPU"),
    })
}

/// candle's type for PJRT's element type, if candle has it.
pub(crate) fn to_dtype(element: Element) -> Result<DType> {
    Ok(match element {
        Element::U8 => DType::U8,
        Element::U32 => DType::U32,
        Element::S16 => DType::I16,
        Element::S32 => DType::I32,
        Element::S64 => DType::I64,
        Element::Bf16 => DType::BF16,
        Element::F16 => DType::F16,
        Element::F32 => DType::F32,
        Element::F64 => DType::F64,
        other => bail!("candle has no elements of type {other:?}"),
    })
}

pub(crate) fn is_float(element: Element) -> bool {
    matches!(element, Element::F16 | Element::Bf16 | Element::F32 | Element::F64)
}

/// Whether an element type is a 16-bit float: sums of such elements are computed in `f32`, because they lose digits early.
pub(crate) fn is_short_float(element: Element) -> bool {
    is_float(element) && element.bytes() == 2
}

/// A number rounded once to a 16-bit float type; the number itself for every other type.
pub(crate) fn rounded(number: f64, element: Element) -> f64 {
    match element {
        Element::Bf16 => bf16::from_f64(number).to_f64(),
        Element::F16 => f16::from_f64(number).to_f64(),
        _ => number,
    }
}

pub(crate) fn is_unsigned(element: Element) -> bool {
    matches!(element, Element::Pred | Element::U8 | Element::U16 | Element::U32 | Element::U64)
}

/// The least number of an integer type, and the power of two above its greatest number.
pub(crate) fn bounds(element: Element) -> (f64, f64) {
    let bits = if element == Element::Pred { 1 } else { 8 * element.bytes() as i32 };
    if is_unsigned(element) { (0.0, 2_f64.powi(bits)) } else { (-2_f64.powi(bits - 1), 2_f64.powi(bits - 1)) }
}

/// A number converted to an integer type as with Rust's `as`: truncated, limited to the bounds, and 0 for a NaN.
pub(crate) fn saturated(number: f64, element: Element) -> f64 {
    match element {
        Element::U8 => f64::from(number as u8),
        Element::U32 => f64::from(number as u32),
        Element::S16 => f64::from(number as i16),
        Element::S32 => f64::from(number as i32),
        // The conversion of a constant to `i64` saturates at the bounds.
        _ => number.trunc(),
    }
}
