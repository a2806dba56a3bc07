//! The variables of the best epoch, which are put back at the end.

use candle_core::{Result, Tensor, Var};
use candle_nn::VarMap;
use ferrotune_state::variables;
use std::collections::BTreeMap;

/// The variables of the best epoch so far.
#[derive(Debug, Default)]
pub(crate) struct Best {
    /// The epoch, counted from 0; none without early stopping.
    pub(crate) epoch: Option<usize>,
    /// The values of its variables by name.
    pub(crate) values: BTreeMap<String, Tensor>,
}

impl Best {
    /// Copies all variables, if this epoch is the best one.
    pub(crate) fn keep(&mut self, vars: &VarMap, best: Option<usize>, epochs: usize) -> Result<()> {
        if best.is_none() || best != epochs.checked_sub(1) {
            return Ok(());
        }
        let vars = variables(vars);
        let copy = |(name, var): (&String, &Var)| Ok((name.clone(), var.as_detached_tensor().copy()?));
        self.values = vars.iter().map(copy).collect::<Result<_>>()?;
        self.epoch = best;
        // A copy on a device that computes later is made before a step changes the variable.
        vars.values().next().map_or(Ok(()), |var| var.device().synchronize())
    }

    /// Sets the variables to the values of the best epoch, if there is one.
    pub(crate) fn put_back(&self, vars: &VarMap) -> Result<()> {
        let vars = variables(vars);
        let pairs = self.values.iter().filter_map(|(name, value)| Some((vars.get(name)?, value)));
        pairs.into_iter().try_for_each(|(var, value)| var.set(&value.to_device(var.device())?))
    }
}
