//! Normalisation over the last dimension. 16-bit floats are computed in `f32`.

use super::widened;
use crate::graph::{Array as _, Binary, Node, Reduction, Unary};
use candle_core::{Result, bail};
use std::sync::Arc;

/// The RMS norm, `x / sqrt(mean(x²) + epsilon) * scale`.
pub(super) fn rms(x: &Arc<Node>, scale: &Arc<Node>, epsilon: f64) -> Result<Arc<Node>> {
    let scale = along_last(x, scale)?;
    Ok(widened(x, |x| normal(x, epsilon).binary(Binary::Multiply, &scale.convert(x.element))))
}

/// The layer norm, `(x - mean(x)) / sqrt(var(x) + epsilon) * scale + shift`.
pub(super) fn layer(x: &Arc<Node>, scale: &Arc<Node>, shift: &Arc<Node>, epsilon: f64) -> Result<Arc<Node>> {
    let (scale, shift) = (along_last(x, scale)?, along_last(x, shift)?);
    Ok(widened(x, |x| {
        let centred = x.binary(Binary::Subtract, &mean(x));
        let scaled = normal(&centred, epsilon).binary(Binary::Multiply, &scale.convert(x.element));
        scaled.binary(Binary::Add, &shift.convert(x.element))
    }))
}

fn normal(x: &Arc<Node>, epsilon: f64) -> Arc<Node> {
    let square = mean(&x.binary(Binary::Multiply, x));
    x.binary(Binary::Multiply, &square.binary_number(Binary::Add, epsilon).unary(Unary::Rsqrt))
}

/// The mean of the last dimension, repeated along it.
fn mean(x: &Arc<Node>) -> Arc<Node> {
    let size = x.dims.last().copied().unwrap_or(1);
    x.over_last(Reduction::Sum).binary_number(Binary::Multiply, 1.0 / size as f64)
}

/// A scale or shift: one number for each index of the last dimension of `x`.
fn along_last(x: &Arc<Node>, numbers: &Arc<Node>) -> Result<Arc<Node>> {
    let last = x.dims.len().saturating_sub(1);
    let size = x.dims.get(last).copied().unwrap_or(1);
    if numbers.count() != size {
        bail!("a norm over {size} elements has weights for {}", numbers.count());
    }
    Ok(numbers.reshape(&[size]).broadcast(&[last], &x.dims))
}
