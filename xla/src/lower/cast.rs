//! Conversions with the rules of Rust's `as`.

use crate::element::{bounds, is_float, is_short_float};
use crate::graph::{Array as _, Compare, Node};
use ferrotune_devices::pjrt::Element;
use std::sync::Arc;

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
