//! Clipping of gradients, by their norm or by their values.

use candle_core::backprop::GradStore;
use candle_core::{DType, Device, Result, Tensor, Var, bail};

/// Scales the gradients of `vars` down so that all of them together have a 2-norm of at most `max_norm` (Pascanu et al.
/// 2013, arXiv:1211.5063, algorithm 1). Returns the norm before the scaling, a tensor without dimensions: `f64` on the CPU and on
/// CUDA, and on other devices only if a gradient is `f64`. Variables without a gradient are skipped.
///
/// On a plugin's device no value is read, so that a compiled step can clip. There, a gradient that is not finite makes all
/// gradients NaN. In PyTorch an infinite gradient makes the others 0.
///
/// # Errors
/// On the CPU and on CUDA if the norm is NaN or infinite. No gradient is changed then.
///
/// ```
/// use candle_core::{Device, Var};
/// use ferrotune_trial::optim::clip_grad_norm;
/// let x = Var::new(&[3_f32, 4.0], &Device::Cpu)?;
/// let mut grads = (x.as_tensor().sqr()?.sum_all()? * 0.5)?.backward()?;
/// assert_eq!(clip_grad_norm(&mut grads, &[x.clone()], 1.0)?.to_scalar::<f64>()?, 5.0);
/// assert_eq!(clip_grad_norm(&mut grads, &[x.clone()], 1.0)?.to_scalar::<f64>()?.round(), 1.0);
/// # Ok::<(), candle_core::Error>(())
/// ```
pub fn clip_grad_norm(grads: &mut GradStore, vars: &[Var], max_norm: f64) -> Result<Tensor> {
    let gradients: Vec<&Tensor> = vars.iter().filter_map(|var| grads.get(var)).collect();
    let Some(first) = gradients.first() else { return Tensor::new(0_f64, &Device::Cpu) };
    // A compiled step cannot read the norm, and neither the CPU nor CUDA compiles steps.
    let is_read = first.device().is_cpu() || first.device().is_cuda();
    // A sum over all variables of a large model needs double precision, which a TPU does not have.
    let is_double = is_read || gradients.iter().any(|gradient| gradient.dtype() == DType::F64);
    let dtype = if is_double { DType::F64 } else { DType::F32 };
    let wide = gradients.iter().map(|gradient| gradient.detach().to_dtype(dtype)).collect::<Result<Vec<_>>>()?;
    if is_read {
        let norm = norm(&wide)?;
        scale(grads, vars, max_norm, norm.to_scalar()?)?;
        return Ok(norm);
    }
    // The squares of numbers above 1e19 overflow in single precision.
    let greatest = |gradient: &Tensor| gradient.abs()?.max_all();
    let unit = Tensor::stack(&wide.iter().map(greatest).collect::<Result<Vec<_>>>()?, 0)?.max_all()?;
    let is_unit = unit.gt(0.0)?.mul(&unit.lt(f64::INFINITY)?)?;
    let unit = is_unit.where_cond(&unit, &unit.ones_like()?)?;
    let scaled = wide.iter().map(|gradient| gradient.broadcast_div(&unit)).collect::<Result<Vec<_>>>()?;
    let norm = norm(&scaled)?;
    scale_on_device(grads, vars, max_norm, &unit, &norm)?;
    unit * norm
}

/// The 2-norm of all elements of the gradients.
fn norm(gradients: &[Tensor]) -> Result<Tensor> {
    let squares = gradients.iter().map(|gradient| gradient.sqr()?.sum_all()).collect::<Result<Vec<_>>>()?;
    Tensor::stack(&squares, 0)?.sum_all()?.sqrt()
}

fn scale(grads: &mut GradStore, vars: &[Var], max_norm: f64, norm: f64) -> Result<()> {
    if !norm.is_finite() {
        bail!("the gradients' norm is {norm}; lower the learning rate, or look for a division by 0 or a log of 0");
    }
    match norm > max_norm {
        true => change(grads, vars, |gradient| in_f32(gradient, |gradient| gradient * (max_norm / norm))),
        false => Ok(()),
    }
}

/// Scales gradients whose norm is `norm` times `unit`.
fn scale_on_device(grads: &mut GradStore, vars: &[Var], max_norm: f64, unit: &Tensor, norm: &Tensor) -> Result<()> {
    let is_larger = (unit * norm)?.gt(max_norm)?;
    let divisor = is_larger.where_cond(norm, &norm.ones_like()?)?;
    let factor = (divisor.recip()? * max_norm)?;
    // A comparison alone would hide that the norm is NaN. The product with 0 keeps NaN, and turns infinity into NaN.
    let nan = (norm * 0.0)?;
    let clipped = |gradient: &Tensor| {
        let like = |scalar: &Tensor| scalar.to_dtype(gradient.dtype());
        let clipped = gradient.broadcast_div(&like(unit)?)?.broadcast_mul(&like(&factor)?)?;
        let chosen = is_larger.broadcast_as(gradient.shape())?.where_cond(&clipped, gradient)?;
        chosen.broadcast_add(&like(&nan)?)
    };
    change(grads, vars, |gradient| in_f32(gradient, clipped))
}

/// Clamps each element of the gradients of `vars` to `-max_value..=max_value`. NaN stays NaN.
///
/// # Errors
/// If `max_value` is negative.
pub fn clip_grad_value(grads: &mut GradStore, vars: &[Var], max_value: f64) -> Result<()> {
    if max_value < 0.0 {
        bail!("gradients cannot be clipped to {max_value}; give a value of 0 or more");
    }
    change(grads, vars, |gradient| gradient.clamp(-max_value, max_value))
}

/// Computes on numbers of 16 bits in `f32`, and rounds the result once.
fn in_f32(gradient: &Tensor, compute: impl Fn(&Tensor) -> Result<Tensor>) -> Result<Tensor> {
    match gradient.dtype() {
        dtype @ (DType::BF16 | DType::F16) => compute(&gradient.to_dtype(DType::F32)?)?.to_dtype(dtype),
        _ => compute(gradient),
    }
}

fn change(grads: &mut GradStore, vars: &[Var], changed: impl Fn(&Tensor) -> Result<Tensor>) -> Result<()> {
    for var in vars {
        if let Some(gradient) = grads.get(var) {
            let gradient = changed(gradient)?;
            grads.insert(var, gradient);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gradients_are_scaled_together_and_clipped_one_by_one() -> Result<()> {
        let vars = [Var::new(&[3_f32, 0.0], &Device::Cpu)?, Var::new(&[[4_f64]], &Device::Cpu)?];
        let unused = Var::new(7_f32, &Device::Cpu)?;
        let grads = || {
            let halves = [vars[0].sqr()?.sum_all()?.to_dtype(DType::F64)?, vars[1].sqr()?.sum_all()?];
            ((&halves[0] + &halves[1])? * 0.5)?.backward()
        };
        let all = [vars[0].clone(), vars[1].clone(), unused];
        let mut scaled = grads()?;
        assert_eq!(clip_grad_norm(&mut scaled, &all, 10.0)?.to_scalar::<f64>()?, 5.0);
        assert_eq!(scaled.get(&vars[0]).map(Tensor::to_vec1::<f32>).transpose()?, Some(vec![3.0, 0.0]));
        assert_eq!(clip_grad_norm(&mut scaled, &all, 2.5)?.to_scalar::<f64>()?, 5.0);
        assert_eq!(scaled.get(&vars[0]).map(Tensor::to_vec1::<f32>).transpose()?, Some(vec![1.5, 0.0]));
        assert_eq!(scaled.get(&vars[1]).map(Tensor::to_vec2::<f64>).transpose()?, Some(vec![vec![2.0]]));
        let mut clipped = grads()?;
        clip_grad_value(&mut clipped, &all, 3.5)?;
        assert_eq!(clipped.get(&vars[0]).map(Tensor::to_vec1::<f32>).transpose()?, Some(vec![3.0, 0.0]));
        assert_eq!(clipped.get(&vars[1]).map(Tensor::to_vec2::<f64>).transpose()?, Some(vec![vec![3.5]]));
        assert!(clip_grad_value(&mut clipped, &all, -1.0).is_err());
        Ok(())
    }

    #[test]
    fn a_device_scales_like_the_cpu_and_keeps_nan() -> Result<()> {
        let var = Var::new(&[3_f64, 4.0], &Device::Cpu)?;
        for (max_norm, expected) in [(10.0, [3.0, 4.0]), (2.5, [1.5, 2.0])] {
            let mut grads = (var.sqr()?.sum_all()? * 0.5)?.backward()?;
            let (unit, norm) = (Tensor::new(2_f64, &Device::Cpu)?, Tensor::new(2.5_f64, &Device::Cpu)?);
            scale_on_device(&mut grads, std::slice::from_ref(&var), max_norm, &unit, &norm)?;
            assert_eq!(grads.get(&var).map(Tensor::to_vec1::<f64>).transpose()?, Some(expected.to_vec()));
        }
        for norm in [f64::NAN, f64::INFINITY] {
            let mut grads = (var.sqr()?.sum_all()? * 0.5)?.backward()?;
            let (unit, norm) = (Tensor::new(1_f64, &Device::Cpu)?, Tensor::new(norm, &Device::Cpu)?);
            scale_on_device(&mut grads, std::slice::from_ref(&var), 1.0, &unit, &norm)?;
            let values = grads.get(&var).map(Tensor::to_vec1::<f64>).transpose()?.unwrap_or_default();
            assert!(values.iter().all(|value| value.is_nan()), "{values:?}");
        }
        Ok(())
    }

    #[test]
    fn gradients_that_are_not_finite_are_an_error_and_stay() -> Result<()> {
        let var = Var::new(&[0_f32, 4.0], &Device::Cpu)?;
        let mut grads = var.log()?.sum_all()?.backward()?;
        let error =
            clip_grad_norm(&mut grads, std::slice::from_ref(&var), 1.0).expect_err("1/0 is infinite").to_string();
        assert!(error.starts_with("the gradients' norm is inf; lower the learning rate"), "{error}");
        assert_eq!(grads.get(&var).map(Tensor::to_vec1::<f32>).transpose()?, Some(vec![f32::INFINITY, 0.25]));
        Ok(())
    }
}
