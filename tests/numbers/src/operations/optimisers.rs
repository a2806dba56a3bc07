//! Optimisers, clipping and schedules, of candle-nn and of ferrotune.

use super::{Operation, operations};
use candle_core::backprop::GradStore;
use candle_core::{Device, Result, Tensor, Var};
use candle_nn::{Optimizer, ParamsAdamW};
use ferrotune_trial::optim::{self, ParamsLion, ParamsSGD, Schedule, clip_grad_norm, clip_grad_value};

pub(super) fn all() -> Vec<Operation> {
    [steps(), clipped(), schedules()].into_iter().flatten().collect()
}

fn steps() -> Vec<Operation> {
    operations! {
        "candle_nn::optim::SGD::step" => |x, n| stepped::<candle_nn::SGD>(x, n.float(0), n.float(0));
        "candle_nn::optim::AdamW::step" => |x, n| {
            stepped::<candle_nn::AdamW>(x, adamw(n.float(0), n.float(1), n.float(2), n.float(3), n.float(4)), n.float(0))
        };
        "ferrotune_trial::optim::AdamW::step" => |x, n| {
            stepped::<optim::AdamW>(x, adamw(n.float(0), n.float(1), n.float(2), n.float(3), n.float(4)), n.float(0))
        };
        "ferrotune_trial::optim::SGD::step" => |x, n| {
            stepped::<optim::SGD>(
                x,
                ParamsSGD { lr: n.float(0), momentum: n.float(1), nesterov: n.flag(2), weight_decay: n.float(3) },
                n.float(0),
            )
        };
        "ferrotune_trial::optim::Lion::step" => |x, n| {
            stepped::<optim::Lion>(
                x,
                ParamsLion { lr: n.float(0), beta1: n.float(1), beta2: n.float(2), weight_decay: n.float(3) },
                n.float(0),
            )
        };
    }
}

fn clipped() -> Vec<Operation> {
    operations! {
        "ferrotune_trial::optim::clip_grad_norm" => |x, n| {
            after(x, |grads, vars| Ok(vec![clip_grad_norm(grads, vars, n.float(0))?]))
        };
        "ferrotune_trial::optim::clip_grad_value" => |x, n| {
            after(x, |grads, vars| clip_grad_value(grads, vars, n.float(0)).map(|()| Vec::new()))
        };
    }
}

fn schedules() -> Vec<Operation> {
    operations! {
        "ferrotune_trial::optim::Schedule::constant" => |x, n| rates(&Schedule::constant(n.float(0)));
        "ferrotune_trial::optim::Schedule::linear" => |x, n| rates(&Schedule::linear(n.float(0), n.size(1) as u64));
        "ferrotune_trial::optim::Schedule::cosine" => |x, n| rates(&Schedule::cosine(n.float(0), n.size(1) as u64));
        "ferrotune_trial::optim::Schedule::step" => |x, n| rates(&Schedule::step(n.float(0), n.size(1) as u64, n.float(2)));
        "ferrotune_trial::optim::Schedule::warm_up" => |x, n| {
            rates(&Schedule::cosine(n.float(0), n.size(1) as u64).warm_up(n.size(2) as u64))
        };
    }
}

fn adamw(lr: f64, beta1: f64, beta2: f64, eps: f64, weight_decay: f64) -> ParamsAdamW {
    ParamsAdamW { lr, beta1, beta2, eps, weight_decay }
}

/// The first tensor after a step with each of the others as its gradient, the last one with half of the learning rate.
fn stepped<O: Optimizer>(x: &[Tensor], config: O::Config, lr: f64) -> Result<Tensor> {
    let var = Var::from_tensor(&x[0])?;
    let mut optimiser = O::new(vec![var.clone()], config)?;
    for (step, gradient) in x[1..].iter().enumerate() {
        if step + 2 == x.len() {
            optimiser.set_learning_rate(lr / 2.0);
        }
        let mut grads = var.as_tensor().sum_all()?.backward()?;
        grads.insert(&var, gradient.clone());
        optimiser.step(&grads)?;
    }
    var.as_tensor().copy()
}

/// What `clip` returns, and the gradients after it, which are the tensors.
fn after(x: &[Tensor], clip: impl FnOnce(&mut GradStore, &[Var]) -> Result<Vec<Tensor>>) -> Result<Vec<Tensor>> {
    let vars = x
        .iter()
        .map(|tensor| Var::zeros(tensor.shape(), tensor.dtype(), tensor.device()))
        .collect::<Result<Vec<_>>>()?;
    let mut grads = vars[0].as_tensor().sum_all()?.backward()?;
    for (var, gradient) in vars.iter().zip(x) {
        grads.insert(var, gradient.clone());
    }
    let mut results = clip(&mut grads, &vars)?;
    results.extend(vars.iter().filter_map(|var| grads.get(var).cloned()));
    Ok(results)
}

/// The rates of forty steps.
fn rates(schedule: &Schedule) -> Result<Tensor> {
    Tensor::new((0..40).map(|step| schedule.at(step)).collect::<Vec<f64>>(), &Device::Cpu)
}
