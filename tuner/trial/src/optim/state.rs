//! What an optimiser keeps: the variables, their moments, and the number of steps. Saves and restores it.

use super::{Rule, in_order, in_place};
use crate::shared::{Pack, ShareError, Shared};
use candle_core::backprop::GradStore;
use candle_core::{Result, Tensor, Var};

/// The variables of an optimiser, each with `N` moments of its shape and dtype.
#[derive(Debug)]
pub(super) struct State<const N: usize> {
    slots: Vec<Slot<N>>,
    /// Steps taken so far.
    pub(super) steps: u32,
    /// The moments' names in a checkpoint.
    names: [&'static str; N],
}

#[derive(Debug)]
struct Slot<const N: usize> {
    var: Var,
    moments: [Tensor; N],
}

impl<const N: usize> State<N> {
    pub(super) fn new(vars: Vec<Var>, names: [&'static str; N]) -> Result<State<N>> {
        let slot = |var: Var| {
            let moments: Vec<Tensor> = names.iter().map(|_| var.zeros_like()).collect::<Result<_>>()?;
            Ok(Slot { var, moments: moments.try_into().expect("one moment for each name") })
        };
        Ok(State { slots: in_order(vars).into_iter().map(slot).collect::<Result<_>>()?, steps: 0, names })
    }

    /// Applies `rule` to each variable that has a gradient.
    pub(super) fn update(&mut self, grads: &GradStore, rule: &impl Rule<N>) -> Result<()> {
        for Slot { var, moments } in &mut self.slots {
            let Some(gradient) = grads.get(var) else { continue };
            if in_place::takes(var, moments) {
                in_place::update(var, &gradient.contiguous()?, moments, rule)?;
                continue;
            }
            let (value, new) = rule.tensor(var, gradient, moments.each_ref())?;
            *moments = new.map(|moment| moment.detach());
            var.set(&value)?;
        }
        Ok(())
    }

    pub(super) fn save(&self, name: &str, pack: &mut Pack) -> std::result::Result<(), ShareError> {
        pack.text(&format!("{name}ferrotune:steps"), self.steps.to_string());
        for (index, slot) in self.slots.iter().enumerate() {
            for (kind, moment) in self.names.iter().zip(&slot.moments) {
                pack.tensor(&moment_name(name, kind, index), moment)?;
            }
        }
        Ok(())
    }

    /// Takes over what [`State::save`] wrote.
    ///
    /// # Errors
    /// Nothing is changed where `saved` is of another optimiser or of another model.
    pub(super) fn restore(&mut self, name: &str, saved: &Shared) -> std::result::Result<(), ShareError> {
        let steps = saved.text(&format!("{name}ferrotune:steps"))?;
        let unreadable = || ShareError::Fit { mismatch: format!("the optimiser's steps are '{steps}'") };
        let steps = steps.parse().map_err(|_| unreadable())?;
        for (index, Slot { var, .. }) in self.slots.iter().enumerate() {
            for kind in self.names {
                let name = moment_name(name, kind, index);
                if saved.describe(&name)? != (var.dtype(), var.dims()) {
                    let mismatch = format!("the optimiser's `{name}` is for another model");
                    return Err(ShareError::Fit { mismatch });
                }
            }
        }
        // Replaces one moment after the other, because there may be too little memory for a second copy of all.
        for (index, Slot { var, moments }) in self.slots.iter_mut().enumerate() {
            for (kind, moment) in self.names.iter().zip(moments) {
                let name = moment_name(name, kind, index);
                let loaded = saved.tensor(&name)?.to_device(var.device());
                *moment = loaded.map_err(|source| ShareError::Tensor { name, source })?;
            }
        }
        self.steps = steps;
        Ok(())
    }
}

fn moment_name(name: &str, kind: &str, index: usize) -> String {
    format!("{name}ferrotune:{kind}.{index}")
}
