//! StableHLO's notation of types and numbers.

use crate::element::{bounds, is_float, is_unsigned};
use crate::graph::Reduction;
use ferrotune_devices::pjrt::Element;
use half::{bf16, f16};
use std::fmt::Display;

/// The name of an element type in StableHLO.
pub(super) fn name(element: Element) -> &'static str {
    match element {
        Element::Pred => "i1",
        Element::S8 => "i8",
        Element::S16 => "i16",
        Element::S32 => "i32",
        Element::S64 => "i64",
        Element::U8 => "ui8",
        Element::U16 => "ui16",
        Element::U32 => "ui32",
        Element::U64 => "ui64",
        Element::F16 => "f16",
        Element::F32 => "f32",
        Element::F64 => "f64",
        Element::Bf16 => "bf16",
        Element::C64 => "complex<f32>",
        Element::C128 => "complex<f64>",
        Element::F8E5M2 => "f8E5M2",
        Element::F8E4M3FN => "f8E4M3FN",
        Element::F8E4M3B11FNUZ => "f8E4M3B11FNUZ",
        Element::F8E5M2FNUZ => "f8E5M2FNUZ",
        Element::F8E4M3FNUZ => "f8E4M3FNUZ",
        Element::S4 => "i4",
        Element::U4 => "ui4",
    }
}

/// The type of an array in StableHLO.
pub(super) fn tensor(dims: &[usize], element: Element) -> String {
    let sizes: String = dims.iter().map(|dim| format!("{dim}x")).collect();
    format!("tensor<{sizes}{}>", name(element))
}

pub(super) fn list<T: Display>(items: impl IntoIterator<Item = T>) -> String {
    items.into_iter().map(|item| item.to_string()).collect::<Vec<_>>().join(", ")
}

/// A number from the bits of an `f64`, or of an `i64` for integers. Floats are written by their bits, so that they are not rounded.
pub(super) fn number(bits: u64, element: Element) -> String {
    let float = f64::from_bits(bits);
    match element {
        Element::F64 => format!("0x{bits:016X}"),
        Element::F32 => format!("0x{:08X}", (float as f32).to_bits()),
        Element::F16 => format!("0x{:04X}", f16::from_f64(float).to_bits()),
        Element::Bf16 => format!("0x{:04X}", bf16::from_f64(float).to_bits()),
        Element::Pred => (bits != 0).to_string(),
        unsigned if is_unsigned(unsigned) => bits.to_string(),
        _ => bits.cast_signed().to_string(),
    }
}

/// The initial value of a reduction.
pub(super) fn start(reduction: Reduction, element: Element) -> String {
    let (least, above) = bounds(element);
    let greatest = if element == Element::S64 { i64::MAX } else { above as i64 - 1 };
    let bits = match (reduction, is_float(element)) {
        (Reduction::Sum, _) => 0,
        (Reduction::Maximum, true) => f64::NEG_INFINITY.to_bits(),
        (Reduction::Minimum, true) => f64::INFINITY.to_bits(),
        (Reduction::Maximum, false) => (least as i64).cast_unsigned(),
        (Reduction::Minimum, false) => greatest.cast_unsigned(),
    };
    number(bits, element)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_are_written_by_their_bits() {
        let written = |number_: f64, element| number(number_.to_bits(), element);
        assert_eq!(written(1.0, Element::F32), "0x3F800000");
        assert_eq!(written(-2.5, Element::F64), "0xC004000000000000");
        assert_eq!(written(1.0, Element::Bf16), "0x3F80");
        assert_eq!(written(f64::INFINITY, Element::F16), "0x7C00");
    }

    #[test]
    fn integers_are_written_in_decimal() {
        assert_eq!(number((-3_i64).cast_unsigned(), Element::S64), "-3");
        assert_eq!(number(4_294_967_295, Element::U32), "4294967295");
        assert_eq!(number(1, Element::Pred), "true");
    }

    #[test]
    fn a_reduction_starts_with_what_changes_nothing() {
        assert_eq!(start(Reduction::Maximum, Element::S64), i64::MIN.to_string());
        assert_eq!(start(Reduction::Minimum, Element::S64), i64::MAX.to_string());
        assert_eq!(start(Reduction::Minimum, Element::U8), "255");
        assert_eq!(start(Reduction::Maximum, Element::F32), "0xFF800000");
    }
}
