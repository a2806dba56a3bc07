//! The optimiser SGD: gradient descent, with optional momentum.

use super::state::{State, times};
use super::{Rule, of};
use candle_core::backprop::GradStore;
use candle_core::{Result, Tensor, Var};
use candle_nn::Optimizer;
use ferrotune_state::{Pack, Restore, Save, ShareError, Shared};
use num_traits::Float;
use serde::{Deserialize, Serialize};

/// The settings of [`SGD`], with the same meaning as in PyTorch's `torch.optim.SGD`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ParamsSGD {
    /// The learning rate.
    pub lr: f64,
    /// The share of the last step's direction that is added to the gradient. With 0, no moment is kept.
    pub momentum: f64,
    /// Whether to use Nesterov's momentum: the gradient at the position to which the momentum leads (Sutskever et al. 2013, section 2.1).
    pub nesterov: bool,
    /// The share of a variable that is added to its gradient.
    pub weight_decay: f64,
}

impl Default for ParamsSGD {
    fn default() -> ParamsSGD {
        ParamsSGD { lr: 1e-3, momentum: 0.0, nesterov: false, weight_decay: 0.0 }
    }
}

/// The optimiser SGD, stochastic gradient descent. Unlike `candle_nn::SGD` it has momentum and weight decay, and a checkpoint can
/// save its state.
///
/// ```
/// use candle_core::{Device, Var};
/// use candle_nn::Optimizer;
/// use ferrotune_trial::optim::{ParamsSGD, SGD};
/// let x = Var::new(1_f32, &Device::Cpu)?;
/// let mut optimiser = SGD::new(vec![x.clone()], ParamsSGD { lr: 0.25, momentum: 0.5, ..ParamsSGD::default() })?;
/// optimiser.backward_step(&x.as_tensor().sqr()?)?;
/// assert_eq!(x.to_scalar::<f32>()?, 0.5);
/// # Ok::<(), candle_core::Error>(())
/// ```
#[derive(Debug)]
pub struct SGD {
    state: Moments,
    params: ParamsSGD,
}

#[derive(Debug)]
enum Moments {
    None(State<0>),
    Momentum(State<1>),
}

impl Optimizer for SGD {
    type Config = ParamsSGD;

    fn new(vars: Vec<Var>, params: ParamsSGD) -> Result<SGD> {
        let state = match params.momentum == 0.0 {
            true => Moments::None(State::new(vars, [], params.lr)?),
            false => Moments::Momentum(State::new(vars, ["momentum"], params.lr)?),
        };
        Ok(SGD { state, params })
    }

    fn step(&mut self, grads: &GradStore) -> Result<()> {
        match &mut self.state {
            Moments::None(state) => state.update(grads, &self.params),
            Moments::Momentum(state) => state.update(grads, &self.params),
        }
    }

    fn learning_rate(&self) -> f64 {
        match &self.state {
            Moments::None(state) => state.learning_rate(),
            Moments::Momentum(state) => state.learning_rate(),
        }
    }

    fn set_learning_rate(&mut self, lr: f64) {
        match &mut self.state {
            Moments::None(state) => state.set_learning_rate(lr),
            Moments::Momentum(state) => state.set_learning_rate(lr),
        }
    }
}

impl Rule<0> for ParamsSGD {
    /// The learning rate.
    type Scalars<T: Sync> = T;

    fn scalars(&self, lr: f64, _: u32) -> f64 {
        lr
    }

    fn device_scalars(&self, lr: &Tensor, _: &Tensor) -> Result<Tensor> {
        Ok(lr.clone())
    }

    #[inline]
    fn element<F: Float>(&self, lr: &f64, value: F, gradient: F, _: [F; 0]) -> (F, [F; 0]) {
        let gradient = gradient + value * of(self.weight_decay);
        (value - gradient * of(*lr), [])
    }

    fn tensor(&self, lr: &Tensor, value: &Tensor, gradient: &Tensor, _: [&Tensor; 0]) -> Result<(Tensor, [Tensor; 0])> {
        let gradient = (gradient + (value * self.weight_decay)?)?;
        Ok(((value - times(&gradient, lr)?)?, []))
    }
}

impl Rule<1> for ParamsSGD {
    /// The learning rate.
    type Scalars<T: Sync> = T;

    fn scalars(&self, lr: f64, _: u32) -> f64 {
        lr
    }

    fn device_scalars(&self, lr: &Tensor, _: &Tensor) -> Result<Tensor> {
        Ok(lr.clone())
    }

    #[inline]
    fn element<F: Float>(&self, lr: &f64, value: F, gradient: F, [moment]: [F; 1]) -> (F, [F; 1]) {
        let gradient = gradient + value * of(self.weight_decay);
        let moment = moment * of(self.momentum) + gradient;
        let direction = if self.nesterov { gradient + moment * of(self.momentum) } else { moment };
        (value - direction * of(*lr), [moment])
    }

    fn tensor(
        &self,
        lr: &Tensor,
        value: &Tensor,
        gradient: &Tensor,
        [moment]: [&Tensor; 1],
    ) -> Result<(Tensor, [Tensor; 1])> {
        let gradient = (gradient + (value * self.weight_decay)?)?;
        let moment = ((moment * self.momentum)? + &gradient)?;
        let direction = if self.nesterov { (gradient + (&moment * self.momentum)?)? } else { moment.clone() };
        Ok(((value - times(&direction, lr)?)?, [moment]))
    }
}

impl Save for &SGD {
    fn save(&self, name: &str, pack: &mut Pack) -> std::result::Result<(), ShareError> {
        match &self.state {
            Moments::None(state) => state.save(name, pack),
            Moments::Momentum(state) => state.save(name, pack),
        }
    }
}

impl Restore for &mut SGD {
    fn restore(self, name: &str, saved: &Shared) -> std::result::Result<(), ShareError> {
        match &mut self.state {
            Moments::None(state) => state.restore(name, saved),
            Moments::Momentum(state) => state.restore(name, saved),
        }
    }
}
