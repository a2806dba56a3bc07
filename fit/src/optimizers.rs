//! The optimisers of a training: each has the variables whose names begin with its prefix.

use candle_core::backprop::GradStore;
use candle_core::{Result, Tensor, TensorId, Var, bail};
use ferrotune_nn::Model;
use ferrotune_state::{Pack, ShareError, Shared, variables};
use ferrotune_trial::optim::{AnyOptimizer, Config, clip_grad_norm};
use std::cell::RefCell;
use std::collections::HashMap;

/// The settings of an optimiser with the prefix of its variables' names; the first one's is empty.
pub(crate) type Configs<'a> = Vec<(String, Box<dyn Config + 'a>)>;

/// The optimisers of a training.
pub(crate) struct Optimizers {
    groups: RefCell<Vec<Group>>,
    /// The variables of all groups.
    vars: Vec<Var>,
    clip_norm: Option<f64>,
}

struct Group {
    prefix: String,
    optimizer: Box<dyn AnyOptimizer>,
    vars: Vec<Var>,
    /// The learning rate of its settings.
    rate: f64,
}

impl Optimizers {
    /// The optimisers of these settings for a model's trainable variables: each has those whose longest prefix is its own.
    ///
    /// # Errors
    /// If nothing is trainable, no variable has a prefix, or a learning rate is no number above 0.
    pub(crate) fn of(
        model: &dyn Model,
        configs: &Configs<'_>,
        clip_norm: Option<f64>,
    ) -> ferrotune_state::Result<Optimizers> {
        let all = model.trainable();
        if all.is_empty() {
            Err("the model has no variables to train; add a layer with weights, or call `unfreeze()`")?;
        }
        let names: HashMap<TensorId, String> =
            variables(model.vars()).into_iter().map(|(name, var)| (var.as_tensor().id(), name)).collect();
        let name_of = |var: &Var| names.get(&var.as_tensor().id()).map_or("", String::as_str);
        let prefix_of = |var: &Var| {
            let prefixes = configs.iter().map(|(prefix, _)| prefix.as_str());
            prefixes.filter(|prefix| name_of(var).starts_with(prefix)).max_by_key(|prefix| prefix.len())
        };
        let mut groups = Vec::new();
        for (prefix, config) in configs {
            let vars: Vec<Var> = all.iter().filter(|var| prefix_of(var) == Some(prefix)).cloned().collect();
            if vars.is_empty() {
                if prefix.is_empty() {
                    continue;
                }
                let known: Vec<&str> = all.iter().map(name_of).collect();
                Err(format!(
                    "no trainable variable is left for the optimiser of `{prefix}`; the variables are {}",
                    known.join(", ")
                ))?;
            }
            let optimizer = (**config).build(vars.clone())?;
            let rate = optimizer.learning_rate();
            if !(rate.is_finite() && rate > 0.0) {
                Err(format!("the learning rate is {rate}; choose a number above 0, such as `AdamW::lr(1e-3)`"))?;
            }
            groups.push(Group { prefix: prefix.clone(), optimizer, vars, rate });
        }
        let vars = groups.iter().flat_map(|group: &Group| group.vars.clone()).collect();
        Ok(Optimizers { groups: RefCell::new(groups), vars, clip_norm })
    }

    /// Changes all variables by a step.
    ///
    /// # Errors
    /// If the loss depends on none of the variables, and the errors of the device.
    pub(crate) fn step(&self, grads: &mut GradStore) -> Result<()> {
        check_gradients(grads, &self.vars)?;
        self.clip(grads, &self.vars)?;
        self.groups.borrow_mut().iter_mut().try_for_each(|group| group.optimizer.step(grads))
    }

    /// Changes the variables of the optimiser with this prefix.
    ///
    /// # Errors
    /// If there is none, and the errors of the device.
    pub(crate) fn step_one(&self, prefix: &str, grads: &mut GradStore) -> Result<()> {
        let mut groups = self.groups.borrow_mut();
        let Some(place) = groups.iter().position(|group| group.prefix == prefix) else {
            let known: Vec<String> = groups.iter().map(|group| format!("{:?}", group.prefix)).collect();
            bail!("there is no optimiser of {prefix:?}; set it with `.optimizer_of`; there are {}", known.join(", "))
        };
        check_gradients(grads, &groups[place].vars)?;
        self.clip(grads, &groups[place].vars)?;
        groups[place].optimizer.step(grads)
    }

    fn clip(&self, grads: &mut GradStore, vars: &[Var]) -> Result<()> {
        if let Some(max_norm) = self.clip_norm {
            clip_grad_norm(grads, vars, max_norm)?;
        }
        Ok(())
    }

    /// All variables that are trained.
    pub(crate) fn vars(&self) -> &[Var] {
        &self.vars
    }

    /// Multiplies the learning rates of the settings by this factor.
    pub(crate) fn set_rates(&self, factor: f64) {
        for Group { optimizer, rate, .. } in self.groups.borrow_mut().iter_mut() {
            let rate = *rate * factor;
            // A rate on a device costs a transfer.
            if optimizer.learning_rate() != rate {
                optimizer.set_learning_rate(rate);
            }
        }
    }

    /// The learning rate of the first optimiser.
    pub(crate) fn learning_rate(&self) -> f64 {
        self.groups.borrow().first().map_or(0.0, |group| group.optimizer.learning_rate())
    }

    pub(crate) fn save(&self, name: &str, pack: &mut Pack) -> std::result::Result<(), ShareError> {
        self.groups.borrow().iter().try_for_each(|group| group.optimizer.save(&group.saved_as(name), pack))
    }

    pub(crate) fn restore(&self, name: &str, saved: &Shared) -> std::result::Result<(), ShareError> {
        let mut groups = self.groups.borrow_mut();
        groups.iter_mut().try_for_each(|group| group.optimizer.restore(&group.saved_as(name), saved))
    }
}

impl Group {
    fn saved_as(&self, name: &str) -> String {
        let Group { prefix, .. } = self;
        if prefix.is_empty() { name.to_owned() } else { format!("{name}ferrotune:optimizer:{prefix}:") }
    }
}

/// Fails if no variable has a gradient.
pub(crate) fn check_gradients(grads: &GradStore, vars: &[Var]) -> Result<()> {
    if vars.iter().all(|var| grads.get(var).is_none()) {
        bail!(
            "the loss depends on none of the variables to train; compute it from the model's outputs, without `detach`"
        )
    }
    Ok(())
}

/// The sums of gradients.
pub(crate) fn add(total: &mut GradStore, other: &GradStore, vars: &[Var]) -> Result<()> {
    for var in vars {
        let sum = match (total.get(var), other.get(var)) {
            (Some(one), Some(other)) => (one + other)?,
            (None, Some(other)) => other.clone(),
            (_, None) => continue,
        };
        total.insert(var, sum);
    }
    Ok(())
}

/// Divides gradients by a tensor without dimensions.
pub(crate) fn divide(grads: &mut GradStore, divisor: &Tensor, vars: &[Var]) -> Result<()> {
    for var in vars {
        if let Some(grad) = grads.get(var) {
            let quotient = grad.broadcast_div(&divisor.to_dtype(grad.dtype())?)?;
            grads.insert(var, quotient);
        }
    }
    Ok(())
}
