//! Random numbers: random bits from a key, converted to floats.

use super::elementwise::affine;
use super::{Wanted, no_lowering};
use crate::element::is_float;
use crate::graph::{Array as _, Binary, Node, Op, Unary};
use crate::random::Keys;
use candle_core::Result;
use ferrotune_devices::pjrt::Element;
use std::f64::consts::TAU;
use std::sync::Arc;

/// Uniform random numbers from `low` on and below `high`; `high` itself occurs only by rounding.
pub(super) fn uniform(keys: Keys<'_>, low: f64, high: f64, wanted: Wanted<'_>) -> Result<Arc<Node>> {
    if !is_float(wanted.element) {
        return no_lowering("rand_uniform", wanted.element);
    }
    Ok(affine(&unit(keys, wanted), high - low, low))
}

/// Normal random numbers: the first of the pair that [Box and Muller](https://doi.org/10.1214/aoms/1177706645) make of two uniform numbers.
pub(super) fn normal(keys: Keys<'_>, mean: f64, deviation: f64, wanted: Wanted<'_>) -> Result<Arc<Node>> {
    if !is_float(wanted.element) {
        return no_lowering("rand_normal", wanted.element);
    }
    let wide = Wanted { element: computed(wanted.element), ..wanted };
    let (length, angle) = (unit(keys, wide), unit(keys, wide));
    // The logarithm never gets a 0, because a unit number is below 1.
    let logarithm = length.like(1.0).binary(Binary::Subtract, &length).unary(Unary::Log);
    let radius = logarithm.binary_number(Binary::Multiply, -2.0).unary(Unary::Sqrt);
    let cosine = angle.binary_number(Binary::Multiply, TAU).unary(Unary::Cosine);
    Ok(affine(&radius.binary(Binary::Multiply, &cosine), deviation, mean).convert(wanted.element))
}

/// The type in which random numbers of another type are drawn.
fn computed(element: Element) -> Element {
    if element == Element::F64 { Element::F64 } else { Element::F32 }
}

/// Uniform random numbers from 0 on and below 1, with as many random bits as the type has digits.
fn unit(keys: Keys<'_>, wanted: Wanted<'_>) -> Arc<Node> {
    let (bits, digits) = match wanted.element {
        Element::F64 => (Element::U64, 53),
        Element::F16 => (Element::U32, 11),
        Element::Bf16 => (Element::U32, 8),
        _ => (Element::U32, 24),
    };
    let spare = 8 * bits.bytes() as i32 - digits;
    let random = Node::new(Op::Bits, vec![keys()], wanted.dims, bits);
    let whole = random.binary_number(Binary::ShiftRightLogical, f64::from(spare)).convert(computed(wanted.element));
    whole.binary_number(Binary::Multiply, 2_f64.powi(-digits)).convert(wanted.element)
}
