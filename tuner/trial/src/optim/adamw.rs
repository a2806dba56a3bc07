//! The optimiser AdamW, with a state that can be saved.

use super::state::{State, times};
use super::{Rule, of};
use candle_core::backprop::GradStore;
use candle_core::{Result, Tensor, Var};
use candle_nn::{Optimizer, ParamsAdamW};
use ferrotune_state::{Pack, Restore, Save, ShareError, Shared};
use num_traits::Float;

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
    state: State<2>,
    params: ParamsAdamW,
}

impl AdamW {
    /// An optimiser of these variables with a learning rate, and candle's defaults for the rest, as candle's own `AdamW::new_lr`.
    ///
    /// # Errors
    /// The errors of [`Optimizer::new`].
    pub fn new_lr(vars: Vec<Var>, learning_rate: f64) -> Result<AdamW> {
        Optimizer::new(vars, ParamsAdamW { lr: learning_rate, ..ParamsAdamW::default() })
    }
}

impl Optimizer for AdamW {
    type Config = ParamsAdamW;

    fn new(vars: Vec<Var>, params: ParamsAdamW) -> Result<AdamW> {
        Ok(AdamW { state: State::new(vars, ["first", "second"], params.lr)?, params })
    }

    fn step(&mut self, grads: &GradStore) -> Result<()> {
        self.state.update(grads, &self.params)
    }

    fn learning_rate(&self) -> f64 {
        self.state.learning_rate()
    }

    fn set_learning_rate(&mut self, lr: f64) {
        self.state.set_learning_rate(lr);
    }
}

/// The coefficients of one step.
pub(super) struct Coefficients<T> {
    pub(super) first_scale: T,
    pub(super) second_scale: T,
    /// The share of a variable that remains after weight decay.
    keep: T,
    lr: T,
}

impl Rule<2> for ParamsAdamW {
    type Scalars<T: Sync> = Coefficients<T>;

    /// The moments begin at 0, which biases the first steps. The scales correct that.
    fn scalars(&self, lr: f64, steps: u32) -> Coefficients<f64> {
        let exponent = i32::try_from(steps).unwrap_or(i32::MAX);
        let scale = |beta: f64| 1.0 / (1.0 - beta.powi(exponent));
        let keep = 1.0 - lr * self.weight_decay;
        Coefficients { first_scale: scale(self.beta1), second_scale: scale(self.beta2), keep, lr }
    }

    #[inline]
    fn element<F: Float>(
        &self,
        scalars: &Coefficients<f64>,
        value: F,
        gradient: F,
        [first, second]: [F; 2],
    ) -> (F, [F; 2]) {
        let first = first * of(self.beta1) + gradient * of(1.0 - self.beta1);
        let second = second * of(self.beta2) + gradient * gradient * of(1.0 - self.beta2);
        let change = first * of(scalars.first_scale) / ((second * of(scalars.second_scale)).sqrt() + of(self.eps));
        (value * of(scalars.keep) - change * of(scalars.lr), [first, second])
    }

    fn device_scalars(&self, lr: &Tensor, steps: &Tensor) -> Result<Coefficients<Tensor>> {
        let keep = ((lr * -self.weight_decay)? + 1.0)?;
        let (first_scale, second_scale) = (scale(self.beta1, steps)?, scale(self.beta2, steps)?);
        Ok(Coefficients { first_scale, second_scale, keep, lr: lr.clone() })
    }

    fn tensor(
        &self,
        scalars: &Coefficients<Tensor>,
        value: &Tensor,
        gradient: &Tensor,
        [first, second]: [&Tensor; 2],
    ) -> Result<(Tensor, [Tensor; 2])> {
        let first = ((first * self.beta1)? + (gradient * (1.0 - self.beta1))?)?;
        let second = ((second * self.beta2)? + (gradient.sqr()? * (1.0 - self.beta2))?)?;
        let size = (times(&second, &scalars.second_scale)?.sqrt()? + self.eps)?;
        let change = times(&first, &scalars.first_scale)?.div(&size)?;
        let value = (times(value, &scalars.keep)? - times(&change, &scalars.lr)?)?;
        Ok((value, [first, second]))
    }
}

/// The bias correction `1 / (1 - beta^steps)`, by `1 - e^x = -2 t / (1 - t)` with `t = tanh(x / 2)`. A plain difference loses all
/// digits of single precision where `beta` is near 1 and the steps are few.
fn scale(beta: f64, steps: &Tensor) -> Result<Tensor> {
    if beta == 0.0 {
        return steps.ones_like();
    }
    let tanh = (steps * (beta.ln() / 2.0))?.tanh()?;
    (1.0 - &tanh)?.div(&(&tanh * -2.0)?)
}

impl Save for &AdamW {
    fn save(&self, name: &str, pack: &mut Pack) -> std::result::Result<(), ShareError> {
        self.state.save(name, pack)
    }
}

impl Restore for &mut AdamW {
    fn restore(self, name: &str, saved: &Shared) -> std::result::Result<(), ShareError> {
        self.state.restore(name, saved)
    }
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
        let path = ferrotune_machine::own::path_of(&file);
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

    /// Trains the variable for `steps` steps with a gradient that depends on the variable's value.
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

        let path = ferrotune_machine::own::path_of(&file);
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
