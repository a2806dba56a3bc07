//! Gradients of candle-nn's fused layer norm and RMS norm, and the epsilon that these keep to themselves.
use crate::{bail, CpuStorage, CustomOp2, CustomOp3, Layout, Result, Tensor, D};

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

/// The epsilon of the RMS norm `op`, exactly as it was given.
pub fn rms_norm_epsilon(op: &dyn CustomOp2) -> Result<f32> {
    epsilon(op.name(), |rows, layout| {
        let width = layout.dims()[1];
        let weight = CpuStorage::F32(vec![1.; width]);
        let vector = Layout::contiguous(width);
        Ok(op.cpu_fwd(rows, layout, &weight, &vector)?.0)
    })
}

/// The epsilon of the layer norm `op`, exactly as it was given.
pub fn layer_norm_epsilon(op: &dyn CustomOp3) -> Result<f32> {
    epsilon(op.name(), |rows, layout| {
        let width = layout.dims()[1];
        let weight = CpuStorage::F32(vec![1.; width]);
        let bias = CpuStorage::F32(vec![0.; width]);
        let vector = Layout::contiguous(width);
        Ok(op
            .cpu_fwd(rows, layout, &weight, &vector, &bias, &vector)?
            .0)
    })
}

/// How many multiples of epsilon's last place are added to it. More are not needed: a step between two neighbours among
/// the results of `inverse_root` is at most five last places of the argument wide, ten where that has half the places.
const STEPS: usize = 16;

/// An element whose square underflows to zero, so that a norm multiplies it by `1 / sqrt(variance + epsilon)` and the
/// variance is that of the other elements.
const PROBE: f32 = 1. / (1u128 << 80) as f32;

/// Finds the epsilon of `norm`, which normalises the rows that it is given.
///
/// A norm of zeros shows `1 / sqrt(epsilon)`, rounded, which several numbers have in common. So rows with a variance of
/// some last places of epsilon are added: only one number explains where the rounded results step. All sums in these rows
/// are exact.
fn epsilon(name: &str, norm: impl Fn(&CpuStorage, &Layout) -> Result<CpuStorage>) -> Result<f32> {
    let estimate = factors(&norm, &[0.], 64)?[0].recip().powi(2);
    if estimate == 0. {
        return Ok(0.);
    }
    if !(1e-30..1e10).contains(&estimate) {
        bail!("the gradient of {name} needs an epsilon from 1e-30 to 1e10, but got about {estimate:e}")
    }
    let place = last_place(estimate);
    let width = if square_root(32. * place).is_some() {
        64
    } else {
        128
    };
    let variances: Vec<f32> = (0..=STEPS).map(|step| step as f32 * place).collect();
    let factors = factors(&norm, &variances, width)?;
    let explains = |epsilon: &f32| {
        let inverse_root = |variance: &f32| (variance + epsilon).sqrt().recip();
        variances
            .iter()
            .map(inverse_root)
            .eq(factors.iter().copied())
    };
    let near = estimate.to_bits() - 16..=estimate.to_bits() + 16;
    let candidates: Vec<f32> = near.map(f32::from_bits).filter(explains).collect();
    match candidates.as_slice() {
        [epsilon] => Ok(*epsilon),
        _ => bail!("the gradient of {name} is not known, because it does not normalise rows as candle-nn's does"),
    }
}

/// By what `norm` multiplies the elements of rows with these variances.
fn factors(
    norm: impl Fn(&CpuStorage, &Layout) -> Result<CpuStorage>,
    variances: &[f32],
    width: usize,
) -> Result<Vec<f32>> {
    let place = variances.get(1).copied().unwrap_or(0.);
    let element = square_root(place * (width / 2) as f32).unwrap_or(0.);
    let mut rows = vec![0f32; variances.len() * width];
    for (step, row) in rows.chunks_mut(width).enumerate() {
        for pair in row.chunks_mut(2).take(step) {
            pair.copy_from_slice(&[element, -element]);
        }
        row[width - 2..].copy_from_slice(&[PROBE, -PROBE]);
    }
    let layout = Layout::contiguous((variances.len(), width));
    match norm(&CpuStorage::F32(rows), &layout)? {
        CpuStorage::F32(rows) => Ok(rows
            .chunks(width)
            .map(|row| row[width - 2] / PROBE)
            .collect()),
        _ => bail!("a norm of f32 is not f32"),
    }
}

/// The distance to the next smaller number, at numbers just below `x`.
fn last_place(x: f32) -> f32 {
    let below = f32::from_bits(x.to_bits() - 16);
    below - f32::from_bits(below.to_bits() - 1)
}

/// The square root of `x`, if it is exact.
fn square_root(x: f32) -> Option<f32> {
    let root = x.sqrt();
    (root * root == x).then_some(root)
}
