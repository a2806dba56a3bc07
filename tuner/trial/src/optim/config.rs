//! The settings of an optimiser, of which a training makes the optimiser when it knows the variables.

use super::{AdamW, Lion, ParamsAdamW, ParamsLion, ParamsSGD, SGD};
use candle_core::backprop::GradStore;
use candle_core::{Result, Var};
use candle_nn::Optimizer;
use ferrotune_state::{Pack, Restore, Save, ShareError, Shared};
use serde::{Deserialize, Serialize};

/// The settings of an optimiser: [`AdamW::lr`], [`SGD::lr`], [`Lion::lr`], or the settings with more than the learning rate, such as
/// `ParamsAdamW { lr: 1e-3, weight_decay: 0.1, ..Default::default() }`.
///
/// ```
/// use candle_core::{Device, Var};
/// use ferrotune_trial::optim::{AdamW, Config as _, ParamsSGD};
/// let x = Var::new(&[3_f32, -2.0], &Device::Cpu)?;
/// let mut optimiser = AdamW::lr(1e-3).build(vec![x.clone()])?;
/// optimiser.step(&x.as_tensor().sqr()?.sum_all()?.backward()?)?;
/// let settings = ParamsSGD { momentum: 0.9, ..ParamsSGD::default() };
/// assert_eq!(settings.build(vec![x])?.learning_rate(), settings.lr);
/// # Ok::<(), candle_core::Error>(())
/// ```
pub trait Config {
    /// Makes the optimiser of these variables.
    ///
    /// # Errors
    /// The errors of [`Optimizer::new`].
    fn build(&self, vars: Vec<Var>) -> Result<Box<dyn AnyOptimizer>>;

    /// The settings for a file; none of an optimiser of one's own.
    #[doc(hidden)]
    fn settings(&self) -> Option<OptimizerSettings> {
        None
    }
}

/// The settings of a known optimiser, as files have them.
#[doc(hidden)]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "optimizer", rename_all = "lowercase")]
pub enum OptimizerSettings {
    /// AdamW.
    AdamW {
        /// The learning rate.
        lr: f64,
        /// The share of the first moment that is kept.
        beta1: f64,
        /// The share of the second moment that is kept.
        beta2: f64,
        /// The number that is added to the root of the second moment.
        eps: f64,
        /// The weight decay.
        weight_decay: f64,
    },
    /// SGD.
    SGD(ParamsSGD),
    /// Lion.
    Lion(ParamsLion),
}

impl Config for OptimizerSettings {
    fn build(&self, vars: Vec<Var>) -> Result<Box<dyn AnyOptimizer>> {
        match self.clone() {
            OptimizerSettings::AdamW { lr, beta1, beta2, eps, weight_decay } => {
                ParamsAdamW { lr, beta1, beta2, eps, weight_decay }.build(vars)
            }
            OptimizerSettings::SGD(params) => params.build(vars),
            OptimizerSettings::Lion(params) => params.build(vars),
        }
    }

    fn settings(&self) -> Option<OptimizerSettings> {
        Some(self.clone())
    }
}

impl From<ParamsAdamW> for OptimizerSettings {
    fn from(ParamsAdamW { lr, beta1, beta2, eps, weight_decay }: ParamsAdamW) -> OptimizerSettings {
        OptimizerSettings::AdamW { lr, beta1, beta2, eps, weight_decay }
    }
}

impl From<ParamsSGD> for OptimizerSettings {
    fn from(params: ParamsSGD) -> OptimizerSettings {
        OptimizerSettings::SGD(params)
    }
}

impl From<ParamsLion> for OptimizerSettings {
    fn from(params: ParamsLion) -> OptimizerSettings {
        OptimizerSettings::Lion(params)
    }
}

/// An optimiser of any kind, whose state a checkpoint can save.
pub trait AnyOptimizer {
    /// Changes the variables by one step.
    ///
    /// # Errors
    /// If a gradient does not fit, and the errors of the device.
    fn step(&mut self, grads: &GradStore) -> Result<()>;

    /// The present learning rate.
    fn learning_rate(&self) -> f64;

    /// Sets the learning rate of the next steps.
    fn set_learning_rate(&mut self, lr: f64);

    /// Saves the state under this name.
    ///
    /// # Errors
    /// The errors of the device and of the file.
    fn save(&self, name: &str, pack: &mut Pack) -> std::result::Result<(), ShareError>;

    /// Loads the state with this name.
    ///
    /// # Errors
    /// If the state is of another optimiser or model, and the errors of the device and of the file.
    fn restore(&mut self, name: &str, saved: &Shared) -> std::result::Result<(), ShareError>;
}

impl<O> AnyOptimizer for O
where
    O: Optimizer,
    for<'a> &'a O: Save,
    for<'a> &'a mut O: Restore,
{
    fn step(&mut self, grads: &GradStore) -> Result<()> {
        Optimizer::step(self, grads)
    }

    fn learning_rate(&self) -> f64 {
        Optimizer::learning_rate(self)
    }

    fn set_learning_rate(&mut self, lr: f64) {
        Optimizer::set_learning_rate(self, lr);
    }

    fn save(&self, name: &str, pack: &mut Pack) -> std::result::Result<(), ShareError> {
        Save::save(&self, name, pack)
    }

    fn restore(&mut self, name: &str, saved: &Shared) -> std::result::Result<(), ShareError> {
        Restore::restore(self, name, saved)
    }
}

macro_rules! configs {
    ($($params:ident of $optimizer:ident)*) => {$(
        impl Config for $params {
            fn build(&self, vars: Vec<Var>) -> Result<Box<dyn AnyOptimizer>> {
                Ok(Box::new($optimizer::new(vars, self.clone())?))
            }

            fn settings(&self) -> Option<OptimizerSettings> {
                Some(self.clone().into())
            }
        }

        impl $optimizer {
            /// The settings with this learning rate, and defaults for the rest.
            pub fn lr(lr: f64) -> $params {
                $params { lr, ..$params::default() }
            }
        }
    )*};
}

configs! {
    ParamsAdamW of AdamW
    ParamsSGD of SGD
    ParamsLion of Lion
}

impl Config for Box<dyn Config> {
    fn build(&self, vars: Vec<Var>) -> Result<Box<dyn AnyOptimizer>> {
        (**self).build(vars)
    }

    fn settings(&self) -> Option<OptimizerSettings> {
        (**self).settings()
    }
}
