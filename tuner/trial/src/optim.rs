//! Optimisers whose state can be saved in a checkpoint, clipping of gradients, and schedules of the learning rate. On the CPU an
//! optimiser updates each variable in place, in one pass over its memory. On other devices it uses candle's operations and keeps
//! the learning rate and the number of steps on the device, so that a compiled step can contain it. Computes no gradients: candle's
//! `backward` does.
//!
//! ```
//! use candle_core::{Device, Var};
//! use candle_nn::Optimizer;
//! use ferrotune_trial::optim::{AdamW, ParamsAdamW, Schedule, clip_grad_norm};
//! let x = Var::new(&[3_f32, -2.0], &Device::Cpu)?;
//! let mut optimiser = AdamW::new(vec![x.clone()], ParamsAdamW::default())?;
//! let schedule = Schedule::cosine(0.1, 200).warm_up(10);
//! for step in 0..200 {
//!     let mut grads = x.as_tensor().sqr()?.sum_all()?.backward()?;
//!     clip_grad_norm(&mut grads, &[x.clone()], 1.0)?;
//!     optimiser.set_learning_rate(schedule.at(step));
//!     optimiser.step(&grads)?;
//! }
//! assert!(x.to_vec1::<f32>()?.iter().all(|x| x.abs() < 0.1));
//! # Ok::<(), candle_core::Error>(())
//! ```

mod adamw;
mod ask;
mod clip;
mod config;
mod decay;
mod in_place;
mod lion;
mod schedule;
mod sgd;
mod state;

pub use adamw::AdamW;
pub use ask::ask;
pub use candle_nn::ParamsAdamW;
pub use clip::{clip_grad_norm, clip_grad_value};
#[doc(hidden)]
pub use config::OptimizerSettings;
pub use config::{AnyOptimizer, Config};
pub use decay::{Decay, constant, cosine, linear};
pub use lion::{Lion, ParamsLion};
pub use schedule::Schedule;
pub use sgd::{ParamsSGD, SGD};

use candle_core::{Result, Tensor, Var};
use num_traits::Float;

/// The rule by which one step changes a variable and the variable's `N` moments.
trait Rule<const N: usize>: Sync {
    /// The numbers that a step computes once for all variables: of type `f64`, or tensors without dimensions.
    type Scalars<T: Sync>: Sync;

    /// The numbers of the step with the number `steps`, counted from 1.
    fn scalars(&self, lr: f64, steps: u32) -> Self::Scalars<f64>;

    /// The new value and moments of one element.
    fn element<F: Float>(&self, scalars: &Self::Scalars<f64>, value: F, gradient: F, moments: [F; N]) -> (F, [F; N]);

    /// The numbers of [`Rule::scalars`], computed on a device without a read of their values.
    fn device_scalars(&self, lr: &Tensor, steps: &Tensor) -> Result<Self::Scalars<Tensor>>;

    /// The update of [`Rule::element`] for whole tensors, on a device for which Ferrotune has no kernel.
    fn tensor(
        &self,
        scalars: &Self::Scalars<Tensor>,
        value: &Tensor,
        gradient: &Tensor,
        moments: [&Tensor; N],
    ) -> Result<(Tensor, [Tensor; N])>;
}

/// Converts a coefficient to the precision of the elements.
#[inline]
fn of<F: Float>(coefficient: f64) -> F {
    F::from(coefficient).expect("each f64 has a nearest f32")
}

/// Returns the variables that an optimiser changes, in the order in which they were made.
///
/// A `VarMap` returns its variables in another order in each process, and restored moments must match theirs.
fn in_order(vars: Vec<Var>) -> Vec<Var> {
    let mut vars: Vec<Var> = vars.into_iter().filter(|var| var.dtype().is_float()).collect();
    // candle numbers tensors when they are made, and only the debug text shows the number.
    vars.sort_by_cached_key(|var| {
        let id = format!("{:?}", var.id());
        (id.len(), id)
    });
    vars
}

#[cfg(test)]
mod tests {
    use super::state::State;
    use super::*;
    use candle_core::{DType, Device};
    use candle_nn::Optimizer;

    /// Compares three steps of the device's code and of the CPU's code, with the same start, gradients and learning rates.
    fn check<const N: usize>(rule: &impl Rule<N>, dtype: DType, length: usize, tolerance: f64) -> Result<()> {
        let wave = |shift: f64| -> Result<Tensor> {
            let angles = (0..length * 2).map(|index| (index as f64 * 0.37 + shift).sin()).collect::<Vec<_>>();
            Tensor::new(angles, &Device::Cpu)?.reshape((length, 2))?.to_dtype(dtype)
        };
        let vars = [Var::from_tensor(&wave(0.0)?)?, Var::from_tensor(&wave(0.0)?)?];
        let mut host = State::new(vec![vars[0].clone()], ["moment"; N], 0.1)?;
        let mut device = State::on_device(vec![vars[1].clone()], ["moment"; N], 0.1)?;
        for step in 0..3 {
            // Every second gradient is not contiguous.
            let gradient = wave(f64::from(step))?;
            let gradient = if step % 2 == 0 { gradient } else { gradient.t()?.contiguous()?.t()? };
            let mut grads = (vars[0].sum_all()? + vars[1].sum_all()?)?.backward()?;
            vars.iter().for_each(|var| drop(grads.insert(var, gradient.clone())));
            host.update(&grads, rule)?;
            device.update(&grads, rule)?;
            host.set_learning_rate(0.05);
            device.set_learning_rate(0.05);
        }
        let difference = (vars[0].as_tensor() - vars[1].as_tensor())?;
        let difference = difference.abs()?.max_all()?.to_dtype(DType::F64)?.to_scalar::<f64>()?;
        assert!(difference <= tolerance, "{dtype:?} × {length}: {difference}");
        Ok(())
    }

    #[test]
    fn a_device_takes_the_steps_of_the_cpu() -> Result<()> {
        let sgd = ParamsSGD { lr: 0.1, momentum: 0.9, nesterov: true, weight_decay: 0.01 };
        let lion = ParamsLion { lr: 0.1, weight_decay: 0.01, ..ParamsLion::default() };
        let adamw = ParamsAdamW { lr: 0.1, weight_decay: 0.01, ..ParamsAdamW::default() };
        for (dtype, tolerance) in [(DType::F64, 1e-14), (DType::F32, 1e-6), (DType::F16, 4e-3), (DType::BF16, 3e-2)] {
            for length in [1, 8191, 8192, 8193, 40_000] {
                check::<0>(&sgd, dtype, length, tolerance)?;
                check::<1>(&sgd, dtype, length, tolerance)?;
                check::<2>(&adamw, dtype, length, tolerance)?;
            }
            check::<1>(&ParamsSGD { nesterov: false, ..sgd.clone() }, dtype, 100, tolerance)?;
        }
        // A sign may turn where the mean of gradients is a rounding away from 0, so only in double precision.
        check(&lion, DType::F64, 40_000, 1e-14)
    }

    /// Four steps on a parabola whose gradient equals the position.
    fn descend<O: Optimizer>(config: O::Config) -> Result<Vec<f64>> {
        let x = Var::new(1_f64, &Device::Cpu)?;
        let mut optimiser = O::new(vec![x.clone()], config)?;
        let mut visited = Vec::new();
        for _ in 0..4 {
            optimiser.backward_step(&(x.as_tensor().sqr()? * 0.5)?)?;
            visited.push((x.to_scalar::<f64>()? * 1e9).round() / 1e9);
        }
        Ok(visited)
    }

    /// The expected values are computed by hand from the definitions, with a learning rate of 0.5.
    #[test]
    fn steps_are_those_of_the_definitions() -> Result<()> {
        let sgd = ParamsSGD { lr: 0.5, ..ParamsSGD::default() };
        assert_eq!(descend::<SGD>(sgd.clone())?, [0.5, 0.25, 0.125, 0.0625]);
        let momentum = ParamsSGD { momentum: 0.5, ..sgd.clone() };
        assert_eq!(descend::<SGD>(momentum.clone())?, [0.5, 0.0, -0.25, -0.25]);
        assert_eq!(descend::<SGD>(ParamsSGD { nesterov: true, ..momentum })?, [0.25, -0.0625, -0.109375, -0.06640625]);
        assert_eq!(descend::<SGD>(ParamsSGD { weight_decay: 1.0, ..sgd })?, [0.0; 4]);
        let lion = ParamsLion { lr: 0.5, ..ParamsLion::default() };
        assert_eq!(descend::<Lion>(lion.clone())?, [0.5, 0.0, -0.5, -0.0]);
        assert_eq!(descend::<Lion>(ParamsLion { weight_decay: 1.0, ..lion })?, [0.0, -0.5, 0.25, -0.375]);
        Ok(())
    }

    /// On a device the step count is a number, and powers near 1 or 0 must not lose digits.
    #[test]
    fn bias_corrections_have_the_digits_of_the_cpu() -> Result<()> {
        let params = ParamsAdamW::default();
        for steps in [1_u32, 2, 3, 10, 100, 1_000, 30_000, 10_000_000] {
            let host = params.scalars(1e-3, steps);
            let number = |number: f64| Tensor::new(number as f32, &Device::Cpu);
            let device = params.device_scalars(&number(1e-3)?, &number(f64::from(steps))?)?;
            for (host, device) in [(host.first_scale, device.first_scale), (host.second_scale, device.second_scale)] {
                let relative = f64::from(device.to_scalar::<f32>()?) / host - 1.0;
                assert!(relative.abs() < 5e-7, "step {steps}: {relative}");
            }
        }
        Ok(())
    }

    #[test]
    fn integers_are_left_alone() -> Result<()> {
        let vars = vec![Var::new(&[1_u32], &Device::Cpu)?, Var::new(&[1_f32], &Device::Cpu)?];
        assert_eq!(in_order(vars).len(), 1);
        Ok(())
    }
}
