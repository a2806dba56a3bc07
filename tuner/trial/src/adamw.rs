//! AdamW with a state that can be saved. Computes the same as candle's AdamW, whose moments are private.

use crate::shared::{Pack, ShareError, Shared};
use crate::trial::{Restore, Save};
use candle_core::backprop::GradStore;
use candle_core::{Result, Tensor, Var};
use candle_nn::{Optimizer, ParamsAdamW};

/// Adam with decoupled weight decay (Loshchilov and Hutter 2019, arXiv:1711.05101), the same as `candle_nn::AdamW`,
/// except that a checkpoint can save its moments, so a resumed trial trains as if it had never stopped.
///
/// ```
/// use candle_core::{Device, Tensor, Var};
/// use candle_nn::{Optimizer, ParamsAdamW};
/// use ferrotune_trial::AdamW;
/// let x = Var::new(3_f64, &Device::Cpu)?;
/// let mut optimiser = AdamW::new(vec![x.clone()], ParamsAdamW { lr: 0.1, ..Default::default() })?;
/// for _ in 0..200 {
///     optimiser.backward_step(&x.as_tensor().sqr()?)?;
/// }
/// assert!(x.to_scalar::<f64>()?.abs() < 0.01);
/// # Ok::<(), candle_core::Error>(())
/// ```
#[derive(Debug)]
pub struct AdamW {
    vars: Vec<Moments>,
    steps: u32,
    params: ParamsAdamW,
}

/// A variable and the running means of its gradient and of the gradient's square.
#[derive(Debug)]
struct Moments {
    var: Var,
    first: Tensor,
    second: Tensor,
}

impl Optimizer for AdamW {
    type Config = ParamsAdamW;

    fn new(vars: Vec<Var>, params: ParamsAdamW) -> Result<AdamW> {
        let mut vars: Vec<Var> = vars.into_iter().filter(|var| var.dtype().is_float()).collect();
        // A `VarMap` returns its variables in another order in each process, and restored moments must match theirs.
        // candle numbers tensors when they are made, and only the debug text has the number.
        vars.sort_by_cached_key(|var| {
            let id = format!("{:?}", var.id());
            (id.len(), id)
        });
        let vars = vars.into_iter().map(|var| Ok(Moments { first: var.zeros_like()?, second: var.zeros_like()?, var }));
        Ok(AdamW { vars: vars.collect::<Result<_>>()?, steps: 0, params })
    }

    fn step(&mut self, grads: &GradStore) -> Result<()> {
        self.steps = self.steps.saturating_add(1);
        let ParamsAdamW { lr, beta1, beta2, eps, weight_decay } = self.params;
        // Both means begin at 0, which biases the first ones.
        let exponent = i32::try_from(self.steps).unwrap_or(i32::MAX);
        let (first_scale, second_scale) = (1.0 / (1.0 - beta1.powi(exponent)), 1.0 / (1.0 - beta2.powi(exponent)));
        for Moments { var, first, second } in &mut self.vars {
            let Some(grad) = grads.get(var) else { continue };
            *first = ((&*first * beta1)? + (grad * (1.0 - beta1))?)?.detach();
            *second = ((&*second * beta2)? + (grad.sqr()? * (1.0 - beta2))?)?.detach();
            let change = ((&*first * first_scale)? / ((&*second * second_scale)?.sqrt()? + eps)?)?;
            var.set(&((var.as_tensor() * (1.0 - lr * weight_decay))? - (change * lr)?)?)?;
        }
        Ok(())
    }

    fn learning_rate(&self) -> f64 {
        self.params.lr
    }

    fn set_learning_rate(&mut self, lr: f64) {
        self.params.lr = lr;
    }
}

impl Save for &AdamW {
    fn save(&self, name: &str, pack: &mut Pack) -> std::result::Result<(), ShareError> {
        pack.text(&format!("{name}ferrotune:steps"), self.steps.to_string());
        for (index, Moments { first, second, .. }) in self.vars.iter().enumerate() {
            pack.tensor(&first_name(name, index), first)?;
            pack.tensor(&second_name(name, index), second)?;
        }
        Ok(())
    }
}

impl Restore for &mut AdamW {
    fn restore(self, name: &str, saved: &Shared) -> std::result::Result<(), ShareError> {
        let steps = saved.text(&format!("{name}ferrotune:steps"))?;
        let unreadable = || ShareError::Fit { mismatch: format!("the optimiser's steps are '{steps}'") };
        let steps = steps.parse().map_err(|_| unreadable())?;
        for (index, Moments { var, .. }) in self.vars.iter().enumerate() {
            for name in [first_name(name, index), second_name(name, index)] {
                if saved.describe(&name)? != (var.dtype(), var.dims()) {
                    let mismatch = format!("the optimiser's `{name}` is for another model");
                    return Err(ShareError::Fit { mismatch });
                }
            }
        }
        let load = |name: String, var: &Var| {
            let tensor = saved.tensor(&name)?.to_device(var.device());
            tensor.map_err(|source| ShareError::Tensor { name, source })
        };
        // Replaces one moment after the other, because there may be too little memory for a second copy of all.
        for (index, Moments { var, first, second }) in self.vars.iter_mut().enumerate() {
            *first = load(first_name(name, index), var)?;
            *second = load(second_name(name, index), var)?;
        }
        self.steps = steps;
        Ok(())
    }
}

fn first_name(name: &str, index: usize) -> String {
    format!("{name}ferrotune:first.{index}")
}

fn second_name(name: &str, index: usize) -> String {
    format!("{name}ferrotune:second.{index}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::Device;

    #[test]
    fn moments_find_their_variables_in_whatever_order_these_are_given() -> crate::Result<()> {
        let var = |length: usize| Var::zeros(length, candle_core::DType::F32, &Device::Cpu);
        let vars: Vec<Var> = (1..20).map(var).collect::<Result<_>>()?;
        let reversed = vars.iter().rev().cloned().collect();
        let mut pack = Pack::new();
        (&AdamW::new(vars, ParamsAdamW::default())?).save("", &mut pack)?;
        let file = std::fs::File::from(pack.into_memfd()?);
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
        let mut again = AdamW::new(reversed, ParamsAdamW::default())?;
        Ok((&mut again).restore("", &Shared::open(path.as_ref())?)?)
    }

    #[test]
    fn each_step_is_that_of_candle() -> Result<()> {
        let start = Tensor::new(&[0.5_f64, -2.0, 3.0], &Device::Cpu)?;
        let (ours, candles) = (Var::from_tensor(&start)?, Var::from_tensor(&start)?);
        let params = ParamsAdamW { lr: 0.05, ..ParamsAdamW::default() };
        let mut our_optimiser = AdamW::new(vec![ours.clone()], params.clone())?;
        let mut candles_optimiser = candle_nn::AdamW::new(vec![candles.clone()], params)?;
        for _ in 0..20 {
            our_optimiser.backward_step(&ours.as_tensor().powf(4.0)?.sum_all()?)?;
            candles_optimiser.backward_step(&candles.as_tensor().powf(4.0)?.sum_all()?)?;
            let difference = (ours.as_tensor() - candles.as_tensor())?.abs()?.max_all()?.to_scalar::<f64>()?;
            assert!(difference < 1e-12, "{difference}");
        }
        Ok(())
    }

    /// The variable after `steps` steps with a gradient that depends on where it is.
    fn train(var: &Var, optimiser: &mut AdamW, steps: usize) -> Result<Vec<f64>> {
        for _ in 0..steps {
            optimiser.backward_step(&var.as_tensor().powf(4.0)?.sum_all()?)?;
        }
        var.to_vec1()
    }

    #[test]
    fn saved_state_goes_on_as_if_it_had_never_stopped() -> crate::Result<()> {
        let params = ParamsAdamW { lr: 0.05, ..ParamsAdamW::default() };
        let var = Var::new(&[0.5_f64, -2.0, 3.0], &Device::Cpu)?;
        let mut optimiser = AdamW::new(vec![var.clone()], params.clone())?;
        let middle = train(&var, &mut optimiser, 7)?;
        let mut pack = Pack::new();
        (&0_u8, &optimiser).save("", &mut pack)?;
        let file = std::fs::File::from(pack.into_memfd()?);
        let whole = train(&var, &mut optimiser, 7)?;

        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
        let saved = Shared::open(path.as_ref())?;
        let var = Var::new(middle.as_slice(), &Device::Cpu)?;
        let mut fresh = AdamW::new(vec![var.clone()], params.clone())?;
        assert_ne!(train(&var, &mut fresh, 7)?, whole);
        var.set(&Tensor::new(middle.as_slice(), &Device::Cpu)?)?;
        let mut restored = AdamW::new(vec![var.clone()], params.clone())?;
        let mut number = 9_u8;
        (&mut number, &mut restored).restore("", &saved)?;
        assert_eq!((number, train(&var, &mut restored, 7)?), (0, whole));

        let other = Var::new(&[0.5_f64], &Device::Cpu)?;
        let error = (&mut number, &mut AdamW::new(vec![other], params)?)
            .restore("", &saved)
            .err()
            .map(|error| error.to_string());
        assert!(error.is_some_and(|error| error.ends_with("is for another model")));
        Ok(())
    }
}
