//! The state of an optimiser: the variables, their moments, the learning rate and the number of steps. Saves and restores it.

use super::{Rule, in_order, in_place};
use crate::plugins::zeros_like;
use candle_core::backprop::GradStore;
use candle_core::{DType, Device, Result, Tensor, Var, bail};
use ferrotune_state::{Pack, ShareError, Shared};

/// The variables of an optimiser, each with `N` moments of its shape and dtype.
#[derive(Debug)]
pub(super) struct State<const N: usize> {
    vars: Vec<Var>,
    kept: Kept<N>,
    /// The moments' names in a checkpoint.
    names: [&'static str; N],
}

/// The storage of the moments, and of the numbers that change from step to step.
#[derive(Debug)]
enum Kept<const N: usize> {
    /// The storage on the CPU, where one pass over its memory updates a variable.
    Host { moments: Vec<[Tensor; N]>, lr: f64, steps: u32 },
    /// The storage on another device: variables of candle, so that a compiled step has them as inputs.
    Device { moments: Vec<[Var; N]>, numbers: Numbers },
}

/// An optimiser's numbers as variables on its device, without dimensions: `f64` if a variable of the model is `f64`, else `f32`.
#[derive(Debug)]
struct Numbers {
    lr: Var,
    steps: Var,
    /// The last learning rate that was set.
    known_lr: f64,
    /// The error of the last attempt to set the rate on the device.
    failure: Option<String>,
}

impl<const N: usize> State<N> {
    pub(super) fn new(vars: Vec<Var>, names: [&'static str; N], lr: f64) -> Result<State<N>> {
        let vars = in_order(vars);
        let Some(first) = vars.first() else { return State::on_host(vars, names, lr) };
        if let Some(other) = vars.iter().find(|var| !var.device().same_device(first.device())) {
            let [first, other] = [first, other].map(|var| var.device().location());
            bail!("variables on {first:?} and {other:?} cannot have one optimiser; make one for each device");
        }
        match first.device().is_cpu() {
            true => State::on_host(vars, names, lr),
            false => State::on_device(vars, names, lr),
        }
    }

    fn on_host(vars: Vec<Var>, names: [&'static str; N], lr: f64) -> Result<State<N>> {
        let moments = vars.iter().map(|var| array(|_| var.zeros_like())).collect::<Result<_>>()?;
        Ok(State { vars, kept: Kept::Host { moments, lr, steps: 0 }, names })
    }

    /// The state in the form for devices other than the CPU. This form also works on the CPU. `vars` is not empty.
    pub(super) fn on_device(vars: Vec<Var>, names: [&'static str; N], lr: f64) -> Result<State<N>> {
        let moments = vars.iter().map(|var| array(|_| Var::from_tensor(&zeros_like(var)?))).collect::<Result<_>>()?;
        let is_wide = vars.iter().any(|var| var.dtype() == DType::F64);
        let dtype = if is_wide { DType::F64 } else { DType::F32 };
        let number = |number| Var::from_tensor(&scalar(number, dtype, vars[0].device())?);
        let numbers = Numbers { lr: number(lr)?, steps: number(0.0)?, known_lr: lr, failure: None };
        Ok(State { vars, kept: Kept::Device { moments, numbers }, names })
    }

    pub(super) fn learning_rate(&self) -> f64 {
        match &self.kept {
            Kept::Host { lr, .. } => *lr,
            Kept::Device { numbers, .. } => numbers.known_lr,
        }
    }

    pub(super) fn set_learning_rate(&mut self, new: f64) {
        match &mut self.kept {
            Kept::Host { lr, .. } => *lr = new,
            Kept::Device { numbers, .. } => numbers.set_learning_rate(new),
        }
    }

    /// Applies `rule` to each variable that has a gradient.
    ///
    /// # Errors
    /// The errors of candle. On a device other than the CPU, also the error of the last [`State::set_learning_rate`].
    pub(super) fn update<R: Rule<N>>(&mut self, grads: &GradStore, rule: &R) -> Result<()> {
        match &mut self.kept {
            Kept::Host { moments, lr, steps } => {
                *steps = steps.saturating_add(1);
                let scalars = rule.scalars(*lr, *steps);
                for (var, moments) in self.vars.iter().zip(moments) {
                    let Some(gradient) = grads.get(var) else { continue };
                    in_place::update(var, &gradient.contiguous()?, moments, rule, &scalars)?;
                }
            }
            Kept::Device { moments, numbers } => {
                let scalars = rule.device_scalars(&numbers.lr()?, &numbers.next_step()?)?;
                for (var, moments) in self.vars.iter().zip(moments) {
                    let Some(gradient) = grads.get(var) else { continue };
                    update_on_device(var, gradient, moments, rule, &scalars)?;
                }
            }
        }
        Ok(())
    }

    pub(super) fn save(&self, name: &str, pack: &mut Pack) -> std::result::Result<(), ShareError> {
        let steps = match &self.kept {
            Kept::Host { steps, .. } => Ok(*steps),
            Kept::Device { numbers, .. } => numbers.steps(),
        };
        let steps_name = format!("{name}ferrotune:steps");
        let steps = steps.map_err(|source| ShareError::Tensor { name: steps_name.clone(), source })?;
        pack.text(&steps_name, steps.to_string());
        for index in 0..self.vars.len() {
            for (kind, moment) in self.names.iter().zip(self.moments(index)) {
                pack.tensor(&moment_name(name, kind, index), moment)?;
            }
        }
        Ok(())
    }

    fn moments(&self, index: usize) -> [&Tensor; N] {
        match &self.kept {
            Kept::Host { moments, .. } => moments[index].each_ref(),
            Kept::Device { moments, .. } => moments[index].each_ref().map(Var::as_tensor),
        }
    }

    /// Restores the state that [`State::save`] wrote.
    ///
    /// # Errors
    /// If `saved` is of another optimiser or of another model. Nothing is changed then.
    pub(super) fn restore(&mut self, name: &str, saved: &Shared) -> std::result::Result<(), ShareError> {
        let steps_name = format!("{name}ferrotune:steps");
        let text = saved.text(&steps_name)?;
        let unreadable = || ShareError::Fit { mismatch: format!("the optimiser's steps are '{text}'") };
        let saved_steps: u32 = text.parse().map_err(|_| unreadable())?;
        for (index, var) in self.vars.iter().enumerate() {
            for kind in self.names {
                let name = moment_name(name, kind, index);
                if saved.describe(&name)? != (var.dtype(), var.dims()) {
                    let mismatch = format!("the optimiser's `{name}` is for another model");
                    return Err(ShareError::Fit { mismatch });
                }
            }
        }
        // The moments are replaced one by one, because the memory may not suffice for a second copy of all of them.
        for index in 0..self.vars.len() {
            for (place, kind) in self.names.into_iter().enumerate() {
                let name = moment_name(name, kind, index);
                let loaded = saved.tensor(&name)?;
                self.set_moment(index, place, &loaded).map_err(|source| ShareError::Tensor { name, source })?;
            }
        }
        self.set_steps(saved_steps).map_err(|source| ShareError::Tensor { name: steps_name, source })
    }

    fn set_moment(&mut self, index: usize, place: usize, loaded: &Tensor) -> Result<()> {
        match &mut self.kept {
            Kept::Host { moments, .. } => moments[index][place] = loaded.clone(),
            Kept::Device { moments, .. } => moments[index][place].set(&loaded.to_device(self.vars[index].device())?)?,
        }
        Ok(())
    }

    fn set_steps(&mut self, number: u32) -> Result<()> {
        match &mut self.kept {
            Kept::Host { steps, .. } => *steps = number,
            Kept::Device { numbers, .. } => numbers.steps.set(&numbers.of(f64::from(number))?)?,
        }
        Ok(())
    }
}

impl Numbers {
    /// Sets the learning rate. candle's trait allows no error here, so the next step returns the error.
    fn set_learning_rate(&mut self, lr: f64) {
        self.known_lr = lr;
        self.failure = self.of(lr).and_then(|lr| self.lr.set(&lr)).err().map(|error| error.to_string());
    }

    fn lr(&self) -> Result<Tensor> {
        match &self.failure {
            Some(failure) => bail!("the learning rate is not on its device: {failure}"),
            None => Ok(self.lr.as_detached_tensor()),
        }
    }

    /// Adds 1 to the number of steps, and returns the sum.
    fn next_step(&self) -> Result<Tensor> {
        let steps = (self.steps.as_detached_tensor() + 1.0)?;
        self.steps.set(&steps)?;
        Ok(steps)
    }

    fn steps(&self) -> Result<u32> {
        Ok(self.steps.to_dtype(DType::F64)?.to_scalar::<f64>()? as u32)
    }

    fn of(&self, number: f64) -> Result<Tensor> {
        scalar(number, self.lr.dtype(), self.lr.device())
    }
}

/// Multiplies a tensor by a number of the optimiser, which is `f64` if any variable is.
pub(super) fn times(tensor: &Tensor, number: &Tensor) -> Result<Tensor> {
    tensor.broadcast_mul(&number.to_dtype(tensor.dtype())?)
}

/// A step of one variable by candle's operations, for compiled steps too. Numbers of 16 bits are computed in 32 bits.
fn update_on_device<const N: usize, R: Rule<N>>(
    var: &Var,
    gradient: &Tensor,
    moments: &[Var; N],
    rule: &R,
    scalars: &R::Scalars<Tensor>,
) -> Result<()> {
    let dtype = var.dtype();
    let wide = |tensor: &Tensor| match dtype {
        DType::F64 => Ok(tensor.detach()),
        _ => tensor.detach().to_dtype(DType::F32),
    };
    let old = array(|index| wide(&moments[index]))?;
    let (value, new) = rule.tensor(scalars, &wide(var)?, &wide(gradient)?, old.each_ref())?;
    for (moment, new) in moments.iter().zip(&new) {
        moment.set(&new.to_dtype(dtype)?)?;
    }
    var.set(&value.to_dtype(dtype)?)
}

fn scalar(number: f64, dtype: DType, device: &Device) -> Result<Tensor> {
    Tensor::new(number, &Device::Cpu)?.to_dtype(dtype)?.to_device(device)
}

fn array<const N: usize, T>(of: impl FnMut(usize) -> Result<T>) -> Result<[T; N]> {
    let made: Vec<T> = (0..N).map(of).collect::<Result<_>>()?;
    Ok(made.try_into().unwrap_or_else(|_| unreachable!("there are N")))
}

fn moment_name(name: &str, kind: &str, index: usize) -> String {
    format!("{name}ferrotune:{kind}.{index}")
}
