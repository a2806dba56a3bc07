//! Derivatives of activations, elementwise.
use super::compute_dtype;
use crate::{Result, Tensor};
use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI};

/// The derivative of gelu's approximation by tanh, `x/2 (1 + tanh(c x (1 + a x²)))`.
pub(crate) fn gelu(x: &Tensor) -> Result<Tensor> {
    const A: f64 = 0.044715;
    const C: f64 = FRAC_2_SQRT_PI * FRAC_1_SQRT_2;
    let wide = bounded(x)?;
    let square = wide.sqr()?;
    let tanh = square.affine(C * A, C)?.mul(&wide)?.tanh()?;
    let inner = square.affine(1.5 * C * A, 0.5 * C)?.mul(&wide)?;
    let slope = tanh.sqr()?.affine(-1., 1.)?.mul(&inner)?;
    tanh.affine(0.5, 0.5)?.add(&slope)?.to_dtype(x.dtype())
}

/// The derivative of gelu, `Φ(x) + x φ(x)` with the normal distribution `Φ` and its density `φ`.
pub(crate) fn gelu_erf(x: &Tensor) -> Result<Tensor> {
    let wide = bounded(x)?;
    let distribution = wide.affine(FRAC_1_SQRT_2, 0.)?.erf()?.affine(0.5, 0.5)?;
    let density = wide.sqr()?.affine(-0.5, 0.)?.exp()?;
    let slope = density
        .affine(0.5 * FRAC_2_SQRT_PI * FRAC_1_SQRT_2, 0.)?
        .mul(&wide)?;
    distribution.add(&slope)?.to_dtype(x.dtype())
}

/// The derivatives of both are 0 and 1 from here on, and squares further out are no numbers.
fn bounded(x: &Tensor) -> Result<Tensor> {
    x.to_dtype(compute_dtype(x.dtype()))?.clamp(-40f64, 40f64)
}

/// The derivative of silu, `σ(x) (1 + x (1 - σ(x)))`.
pub(crate) fn silu(x: &Tensor) -> Result<Tensor> {
    let wide = x.to_dtype(compute_dtype(x.dtype()))?;
    let sigmoid = wide.neg()?.exp()?.affine(1., 1.)?.recip()?;
    let rest = sigmoid.affine(-1., 1.)?.mul(&wide)?.affine(1., 1.)?;
    sigmoid.mul(&rest)?.to_dtype(x.dtype())
}

/// The derivative of `x^e`, which for `e = 0` is zero everywhere, at `x = 0` also.
pub(crate) fn powf(x: &Tensor, e: f64) -> Result<Tensor> {
    if e == 0. {
        x.zeros_like()
    } else if e == 2. {
        x.affine(2., 0.)
    } else {
        x.powf(e - 1.)?.affine(e, 0.)
    }
}
