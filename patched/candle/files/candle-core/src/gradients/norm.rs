//! Gradients of candle-nn's fused layer norm and RMS norm.
use crate::{Result, Tensor, D};

/// The gradients of `x / rms(x) * weight` with respect to `x` and `weight`, where `needed` says which. The root mean
/// square is taken over the last dimension.
pub(super) fn rms_norm(
    x: &Tensor,
    weight: &Tensor,
    grad: &Tensor,
    epsilon: f64,
    needed: &[bool],
) -> Result<Vec<Option<Tensor>>> {
    let inverse = inverse_root_mean_square(x, epsilon)?;
    let normed = x.broadcast_mul(&inverse)?;
    let x_grad = match needed[0] {
        true => {
            let inner = grad.broadcast_mul(weight)?;
            let along = inner.mul(&normed)?.mean_keepdim(D::Minus1)?;
            let across = inner.sub(&normed.broadcast_mul(&along)?)?;
            Some(across.broadcast_mul(&inverse)?)
        }
        false => None,
    };
    Ok(vec![x_grad, weight_grad(&normed, grad, needed[1])?])
}

/// The gradients of `(x - mean(x)) / deviation(x) * weight + bias` with respect to `x`, `weight` and `bias`, where `needed`
/// says which. Mean and standard deviation are taken over the last dimension.
pub(super) fn layer_norm(
    x: &Tensor,
    weight: &Tensor,
    grad: &Tensor,
    epsilon: f64,
    needed: &[bool],
) -> Result<Vec<Option<Tensor>>> {
    let centred = x.broadcast_sub(&x.mean_keepdim(D::Minus1)?)?;
    let mut gradients = rms_norm(&centred, weight, grad, epsilon, needed)?;
    if let Some(x_grad) = gradients[0].take() {
        gradients[0] = Some(x_grad.broadcast_sub(&x_grad.mean_keepdim(D::Minus1)?)?);
    }
    gradients.push(match needed[2] {
        true => Some(sum_rows(grad)?),
        false => None,
    });
    Ok(gradients)
}

fn inverse_root_mean_square(x: &Tensor, epsilon: f64) -> Result<Tensor> {
    (x.sqr()?.mean_keepdim(D::Minus1)? + epsilon)?
        .sqrt()?
        .recip()
}

fn weight_grad(normed: &Tensor, grad: &Tensor, needed: bool) -> Result<Option<Tensor>> {
    match needed {
        true => sum_rows(&normed.mul(grad)?).map(Some),
        false => Ok(None),
    }
}

fn sum_rows(x: &Tensor) -> Result<Tensor> {
    x.reshape(((), x.dim(D::Minus1)?))?.sum(0)
}
