//! Keeps gradients from becoming too large.

use candle_core::backprop::GradStore;
use candle_core::{DType, Result, Tensor, Var, bail};

/// Scales the gradients of `vars` down so that all of them together have a 2-norm of `max_norm` at most (Pascanu et al.
/// 2013, arXiv:1211.5063, algorithm 1), and returns the norm that they had. Variables without a gradient are passed over.
///
/// # Errors
/// Where the norm is NaN or infinite, in which case no gradient is changed.
///
/// ```
/// use candle_core::{Device, Var};
/// use ferrotune_trial::optim::clip_grad_norm;
/// let x = Var::new(&[3_f32, 4.0], &Device::Cpu)?;
/// let mut grads = (x.as_tensor().sqr()?.sum_all()? * 0.5)?.backward()?;
/// assert_eq!(clip_grad_norm(&mut grads, &[x.clone()], 1.0)?, 5.0);
/// assert_eq!(clip_grad_norm(&mut grads, &[x.clone()], 1.0)?.round(), 1.0);
/// # Ok::<(), candle_core::Error>(())
/// ```
pub fn clip_grad_norm(grads: &mut GradStore, vars: &[Var], max_norm: f64) -> Result<f64> {
    let squares = vars.iter().filter_map(|var| grads.get(var)).map(square_sum);
    let norm = squares.sum::<Result<f64>>()?.sqrt();
    if !norm.is_finite() {
        bail!("the gradients' norm is {norm}; lower the learning rate, or look for a division by 0 or a log of 0");
    }
    if norm > max_norm {
        change(grads, vars, |gradient| gradient * (max_norm / norm))?;
    }
    Ok(norm)
}

/// Moves each element of the gradients of `vars` into `-max_value..=max_value`. NaN stays NaN.
///
/// # Errors
/// Where `max_value` is negative.
pub fn clip_grad_value(grads: &mut GradStore, vars: &[Var], max_value: f64) -> Result<()> {
    if max_value < 0.0 {
        bail!("gradients cannot be clipped to {max_value}; give a value of 0 or more");
    }
    change(grads, vars, |gradient| gradient.clamp(-max_value, max_value))
}

/// In double precision, as the sum over all variables of a large model needs it.
fn square_sum(gradient: &Tensor) -> Result<f64> {
    gradient.to_dtype(DType::F64)?.sqr()?.sum_all()?.to_scalar()
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
    use candle_core::Device;

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
        assert_eq!(clip_grad_norm(&mut scaled, &all, 10.0)?, 5.0);
        assert_eq!(scaled.get(&vars[0]).map(Tensor::to_vec1::<f32>).transpose()?, Some(vec![3.0, 0.0]));
        assert_eq!(clip_grad_norm(&mut scaled, &all, 2.5)?, 5.0);
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
