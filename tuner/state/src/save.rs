//! The states that a checkpoint can save, one or several at once: models, optimisers, and every value that can be shared with
//! a trial.

use crate::shared::{Pack, Share, ShareError, Shared, for_tuples};
use candle_core::Var;
use candle_nn::VarMap;
use std::collections::BTreeMap;
use std::sync::PoisonError;

/// State for `trial.checkpoint`: a reference to a `VarMap`, to an optimiser of `ferrotune::optim`, to any value that implements [`Share`], or a tuple of such references.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be saved in a checkpoint",
    note = "a checkpoint takes references: `&vars`, or several as `(&vars, &optimiser, &epoch)`",
    note = "tensors, numbers, bools, strings, and tuples, arrays, `Vec`s, `Option`s and maps of them can be saved",
    note = "for a struct of your own: `ferrotune::share_fields!(Name {{ field, other_field }});`",
    note = "candle's own AdamW hides its state; `ferrotune::AdamW` is used in the same way and can be saved"
)]
pub trait Save {
    /// Adds this state under `name`, which is empty for the only state or the first of several.
    fn save(&self, name: &str, pack: &mut Pack) -> Result<(), ShareError>;
}

/// State for `trial.restore`: `&vars` for a `VarMap`, and `&mut value` for all other types of
/// [`Save`]; a tuple has the order in which it was saved.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be restored from a checkpoint",
    note = "restore takes what checkpoint was given, to be changed: `(&vars, &mut optimiser, &mut epoch)`"
)]
pub trait Restore {
    /// Loads the state that was saved under `name`.
    fn restore(self, name: &str, saved: &Shared) -> Result<(), ShareError>;
}

impl Save for &VarMap {
    fn save(&self, name: &str, pack: &mut Pack) -> Result<(), ShareError> {
        variables(self).iter().try_for_each(|(variable, var)| pack.tensor(&format!("{name}{variable}"), var))
    }
}

impl Restore for &VarMap {
    fn restore(self, name: &str, saved: &Shared) -> Result<(), ShareError> {
        let variables = variables(self);
        for (variable, var) in &variables {
            let full = format!("{name}{variable}");
            let missing = |_| ShareError::Fit { mismatch: format!("it has no `{full}`") };
            let had = saved.describe(&full).map_err(missing)?;
            let has = (var.dtype(), var.dims());
            if had != has {
                let mismatch =
                    format!("`{full}` is {:?} {:?} in it and {:?} {:?} in the model", had.0, had.1, has.0, has.1);
                return Err(ShareError::Fit { mismatch });
            }
        }
        // With a name, the model's tensors have names that begin with it. Without one, the model has all tensors that no other state has.
        let names = saved.tensor_names(name).into_iter();
        if let Some(other) = names.filter(|other| !other.contains(':')).find(|other| !variables.contains_key(other)) {
            let mismatch = format!("the model has no `{other}`; build it before trial.restore");
            return Err(ShareError::Fit { mismatch });
        }
        variables.iter().try_for_each(|(variable, var)| saved.fill(&format!("{name}{variable}"), var))
    }
}

/// The variables of a map by their names.
#[doc(hidden)]
pub fn variables(vars: &VarMap) -> BTreeMap<String, Var> {
    // If a thread panics while it has the lock, the variables in the map are still whole.
    let data = vars.data().lock().unwrap_or_else(PoisonError::into_inner);
    data.iter().map(|(name, var)| (name.clone(), var.clone())).collect()
}

impl<T: Share> Save for &T {
    fn save(&self, name: &str, pack: &mut Pack) -> Result<(), ShareError> {
        self.pack(&value_name(name), pack)
    }
}

impl<T: Share> Restore for &mut T {
    fn restore(self, name: &str, saved: &Shared) -> Result<(), ShareError> {
        *self = T::unpack(&value_name(name), saved)?;
        Ok(())
    }
}

/// The name of a value in the file. Its colon separates it from the names of a model's variables.
fn value_name(name: &str) -> String {
    format!("{name}ferrotune:value")
}

macro_rules! tuples {
    ($(($($kind:ident $index:tt),+))*) => {$(
        impl<$($kind: Save),+> Save for ($($kind,)+) {
            fn save(&self, name: &str, pack: &mut Pack) -> Result<(), ShareError> {
                $(self.$index.save(&member(name, $index), pack)?;)+
                Ok(())
            }
        }

        impl<$($kind: Restore),+> Restore for ($($kind,)+) {
            fn restore(self, name: &str, saved: &Shared) -> Result<(), ShareError> {
                $(self.$index.restore(&member(name, $index), saved)?;)+
                Ok(())
            }
        }
    )*};
}

/// The name of a member of a tuple. The first member has the name of the tuple, so that the variables of a model that comes first
/// keep their own names, as all readers of safetensors expect.
fn member(name: &str, index: usize) -> String {
    if index == 0 { name.to_owned() } else { format!("{name}ferrotune:{index}.") }
}

for_tuples!(tuples);
