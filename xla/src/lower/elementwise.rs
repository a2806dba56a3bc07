//! Functions of one or two arrays, element by element, and conversions with the rules of Rust's `as`.

use super::{no_lowering, widened};
use crate::element::{bounds, is_float, is_short_float, is_unsigned, saturated};
use crate::graph::{Array as _, Binary, Compare, Node, Unary};
use candle_core::{Result, bail};
use ferrotune_devices::pjrt::Element;
use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_PI};
use std::sync::Arc;

/// The function `x * mul + add`. For floats, the numbers are arguments of the program, so that another learning rate needs no other
/// program.
pub(super) fn affine(x: &Arc<Node>, mul: f64, add: f64) -> Arc<Node> {
    let product = if mul == 1.0 { x.clone() } else { x.binary(Binary::Multiply, &number(x, mul)) };
    if add == 0.0 { product } else { product.binary(Binary::Add, &number(x, add)) }
}

/// An array like `x` with a number in each element; a float may be another one in the next run.
fn number(x: &Arc<Node>, number: f64) -> Arc<Node> {
    if is_float(x.element) { Node::number(number, &x.dims, x.element) } else { x.like(saturated(number, x.element)) }
}

pub(super) fn powf(x: &Arc<Node>, exponent: f64) -> Result<Arc<Node>> {
    match is_float(x.element) {
        true if exponent == 2.0 => Ok(x.binary(Binary::Multiply, x)),
        true => Ok(x.binary_number(Binary::Power, exponent)),
        false => no_lowering("powf", x.element),
    }
}

pub(super) fn elu(x: &Arc<Node>, alpha: f64) -> Result<Arc<Node>> {
    if !is_float(x.element) {
        return no_lowering("elu", x.element);
    }
    let below = x.unary(Unary::ExponentialMinusOne).binary_number(Binary::Multiply, alpha);
    Ok(is_positive(x).select(x, &below))
}

fn is_positive(x: &Arc<Node>) -> Arc<Node> {
    x.compare(Compare::Greater, &x.like(0.0))
}

/// The unary function with this name in candle.
pub(super) fn unary(x: &Arc<Node>, name: &str) -> Result<Arc<Node>> {
    let result = if is_float(x.element) { of_floats(x, name)? } else { of_integers(x, name)? };
    match result {
        Some(result) => Ok(result),
        None => bail!("{name} has no lowering to XLA; compute it on the CPU with to_device"),
    }
}

fn of_floats(x: &Arc<Node>, name: &str) -> Result<Option<Arc<Node>>> {
    if let Some(unary) = direct(name) {
        return Ok(Some(x.unary(unary)));
    }
    Ok(Some(match name {
        "recip" => x.like(1.0).binary(Binary::Divide, x),
        "sqr" => x.binary(Binary::Multiply, x),
        // A comparison with a NaN is false, so a NaN stays.
        "relu" => x.compare(Compare::LessOrEqual, &x.like(0.0)).select(&x.like(0.0), x),
        "sign" => x.unary(Unary::Sign),
        "silu" => widened(x, |x| x.binary(Binary::Multiply, &x.unary(Unary::Logistic))),
        "gelu" => widened(x, gelu),
        "gelu_erf" => widened(x, gelu_erf),
        "erf" => widened(x, |x| x.unary(Unary::Erf)),
        _ => return Ok(None),
    }))
}

/// The StableHLO function with the same definition, if there is one.
fn direct(name: &str) -> Option<Unary> {
    Some(match name {
        "exp" => Unary::Exponential,
        "log" => Unary::Log,
        "sin" => Unary::Sine,
        "cos" => Unary::Cosine,
        "tanh" => Unary::Tanh,
        "abs" => Unary::Abs,
        "neg" => Unary::Negate,
        "sqrt" => Unary::Sqrt,
        "floor" => Unary::Floor,
        "ceil" => Unary::Ceil,
        "round" => Unary::RoundNearestEven,
        _ => return None,
    })
}

/// The approximate GELU, `x / 2 * (1 + tanh(sqrt(2 / π) * x * (1 + 0.044715 * x * x)))`.
fn gelu(x: &Arc<Node>) -> Arc<Node> {
    let cubic =
        x.binary(Binary::Multiply, x).binary_number(Binary::Multiply, 0.044_715).binary_number(Binary::Add, 1.0);
    let inner = x.binary_number(Binary::Multiply, FRAC_2_PI.sqrt()).binary(Binary::Multiply, &cubic);
    let gate = inner.unary(Unary::Tanh).binary_number(Binary::Add, 1.0);
    x.binary_number(Binary::Multiply, 0.5).binary(Binary::Multiply, &gate)
}

/// The exact GELU, `x / 2 * (1 + erf(x / sqrt(2)))`.
fn gelu_erf(x: &Arc<Node>) -> Arc<Node> {
    let gate = x.binary_number(Binary::Multiply, FRAC_1_SQRT_2).unary(Unary::Erf).binary_number(Binary::Add, 1.0);
    // XLA's error function differs from -1 by a rounding there, and a large number times that difference is large.
    let last = if x.element == Element::F64 { -10.0 } else { -6.0 };
    let gate = x.compare(Compare::Less, &x.like(last)).select(&x.like(0.0), &gate);
    x.binary_number(Binary::Multiply, 0.5).binary(Binary::Multiply, &gate)
}

fn of_integers(x: &Arc<Node>, name: &str) -> Result<Option<Arc<Node>>> {
    Ok(Some(match name {
        "floor" | "ceil" | "round" => x.clone(),
        "abs" | "relu" if is_unsigned(x.element) => x.clone(),
        "abs" => x.unary(Unary::Abs),
        "relu" => x.binary_number(Binary::Maximum, 0.0),
        "sign" if is_unsigned(x.element) => x.binary_number(Binary::Minimum, 1.0),
        "sign" => x.unary(Unary::Sign),
        "gelu" | "gelu_erf" | "erf" | "silu" | "recip" => return no_lowering(name, x.element),
        name if direct(name).is_some() => return no_lowering(name, x.element),
        _ => return Ok(None),
    }))
}

/// The binary function with this name in candle.
pub(super) fn binary(x: &Arc<Node>, y: &Arc<Node>, name: &str) -> Result<Arc<Node>> {
    let direct = |binary| Ok(x.binary(binary, y));
    match name {
        "add" => direct(Binary::Add),
        "sub" => direct(Binary::Subtract),
        "mul" => direct(Binary::Multiply),
        "div" => direct(Binary::Divide),
        "maximum" => direct(Binary::Maximum),
        "minimum" => direct(Binary::Minimum),
        _ => bail!("{name} has no lowering to XLA; compute it on the CPU with to_device"),
    }
}

/// Converts elements: floats are truncated to integers and saturate, with 0 for a NaN; integers wrap; floats are rounded to the
/// nearest, ties to even.
pub(super) fn cast(x: &Arc<Node>, to: Element) -> Arc<Node> {
    if is_float(x.element) && !is_float(to) {
        return saturating(x, to);
    }
    if !is_float(x.element) && is_short_float(to) {
        // candle also converts through `f32`, and rounds twice.
        return x.convert(Element::F32).convert(to);
    }
    x.convert(to)
}

/// Converts floats to integers with saturation, because StableHLO does not define floats outside the integer type's range.
fn saturating(x: &Arc<Node>, to: Element) -> Arc<Node> {
    let (least, above) = bounds(to);
    let constant = |number: f64| Node::constant(number, &x.dims, to);
    let is_above = x.compare(Compare::GreaterOrEqual, &x.like(above));
    let is_below = x.compare(Compare::LessOrEqual, &x.like(least));
    let is_nan = x.compare(Compare::NotEqual, x);
    // The number above the greatest `i64` saturates to the greatest one.
    let greatest = if to == Element::S64 { above } else { above - 1.0 };
    let bounded = is_below.select(&constant(least), &x.convert(to));
    is_nan.select(&constant(0.0), &is_above.select(&constant(greatest), &bounded))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_affine_function_of_integers_saturates_its_numbers_as_candle_does() {
        let x = Node::iota(0, &[3], Element::U8);
        let product = affine(&x, -1.0, 300.0);
        let numbers: Vec<_> = product.inputs()[1..].iter().map(|node| format!("{:?}", node.op)).collect();
        assert_eq!(numbers, ["Constant(255)"]);
    }

    #[test]
    fn a_factor_of_one_and_a_summand_of_zero_are_left_out() {
        let x = Node::iota(0, &[3], Element::F32);
        assert!(Arc::ptr_eq(&affine(&x, 1.0, 0.0), &x));
    }
}
