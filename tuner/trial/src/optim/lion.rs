//! The optimiser Lion, which keeps one moment and uses only the sign of the update.

use super::state::{State, times};
use super::{Rule, of};
use candle_core::backprop::GradStore;
use candle_core::{Result, Tensor, Var};
use candle_nn::Optimizer;
use ferrotune_state::{Pack, Restore, Save, ShareError, Shared};
use num_traits::Float;
use serde::{Deserialize, Serialize};

/// The settings of [`Lion`], with the paper's values as defaults.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ParamsLion {
    /// The learning rate. The paper finds the best one three to ten times smaller than that of AdamW.
    pub lr: f64,
    /// The weight of the moment in an update.
    pub beta1: f64,
    /// The share of the moment that is kept for the next step.
    pub beta2: f64,
    /// The weight decay: a step subtracts this share of a variable, multiplied by the learning rate.
    pub weight_decay: f64,
}

impl Default for ParamsLion {
    fn default() -> ParamsLion {
        ParamsLion { lr: 1e-4, beta1: 0.9, beta2: 0.99, weight_decay: 0.0 }
    }
}

/// The optimiser Lion (Chen et al. 2023, arXiv:2302.06675, algorithm 2). Each element moves by the learning rate, in the direction
/// of the sign of a mean of gradients. A checkpoint can save its state.
///
/// ```
/// use candle_core::{Device, Var};
/// use candle_nn::Optimizer;
/// use ferrotune_trial::optim::{Lion, ParamsLion};
/// let x = Var::new(1_f32, &Device::Cpu)?;
/// let mut optimiser = Lion::new(vec![x.clone()], ParamsLion { lr: 0.25, ..ParamsLion::default() })?;
/// optimiser.backward_step(&x.as_tensor().sqr()?)?;
/// assert_eq!(x.to_scalar::<f32>()?, 0.75);
/// # Ok::<(), candle_core::Error>(())
/// ```
#[derive(Debug)]
pub struct Lion {
    state: State<1>,
    params: ParamsLion,
}

impl Optimizer for Lion {
    type Config = ParamsLion;

    fn new(vars: Vec<Var>, params: ParamsLion) -> Result<Lion> {
        Ok(Lion { state: State::new(vars, ["moment"], params.lr)?, params })
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

/// The learning rate and the weight-decay factor of one step.
pub(super) struct Rates<T> {
    lr: T,
    /// The share of a variable that remains after weight decay.
    keep: T,
}

impl Rule<1> for ParamsLion {
    type Scalars<T: Sync> = Rates<T>;

    fn scalars(&self, lr: f64, _: u32) -> Rates<f64> {
        Rates { lr, keep: 1.0 - lr * self.weight_decay }
    }

    #[inline]
    fn element<F: Float>(&self, rates: &Rates<f64>, value: F, gradient: F, [moment]: [F; 1]) -> (F, [F; 1]) {
        let mean = |beta: f64| moment * of(beta) + gradient * of(1.0 - beta);
        let update = mean(self.beta1);
        // Rust's `signum` returns 1 for 0, but Lion needs 0.
        let sign = if update == F::zero() { F::zero() } else { update.signum() };
        (value * of(rates.keep) - sign * of(rates.lr), [mean(self.beta2)])
    }

    fn device_scalars(&self, lr: &Tensor, _: &Tensor) -> Result<Rates<Tensor>> {
        Ok(Rates { lr: lr.clone(), keep: ((lr * -self.weight_decay)? + 1.0)? })
    }

    fn tensor(
        &self,
        rates: &Rates<Tensor>,
        value: &Tensor,
        gradient: &Tensor,
        [moment]: [&Tensor; 1],
    ) -> Result<(Tensor, [Tensor; 1])> {
        let mean = |beta: f64| (moment * beta)? + (gradient * (1.0 - beta))?;
        let step = times(&mean(self.beta1)?.sign()?, &rates.lr)?;
        Ok(((times(value, &rates.keep)? - step)?, [mean(self.beta2)?]))
    }
}

impl Save for &Lion {
    fn save(&self, name: &str, pack: &mut Pack) -> std::result::Result<(), ShareError> {
        self.state.save(name, pack)
    }
}

impl Restore for &mut Lion {
    fn restore(self, name: &str, saved: &Shared) -> std::result::Result<(), ShareError> {
        self.state.restore(name, saved)
    }
}
