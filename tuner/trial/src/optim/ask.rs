//! The choice of an optimiser as parameters of a search.

use super::{Config, ParamsAdamW, ParamsLion, ParamsSGD};
use crate::trial::Trial;
use ferrotune_state::Result;

/// The optimisers that [`ask`] knows, each with the range of its learning rate.
const KNOWN: [(&str, f64, f64); 3] = [("adamw", 1e-5, 1e-1), ("sgd", 1e-4, 1.0), ("lion", 1e-6, 1e-2)];

/// Asks a trial for an optimiser: which of these, its learning rate, and the momentum if it is SGD.
///
/// The parameters are `optimizer`, `adamw_lr` (1e-5 to 0.1), `sgd_lr` (1e-4 to 1), `sgd_momentum` (0 to 0.99) and `lion_lr` (1e-6 to 0.01),
/// of which a trial has those of its optimiser. Rates are searched on a logarithmic scale. Of a single optimiser there is no choice to ask.
///
/// ```
/// # use ferrotune_trial::{Trial, optim};
/// # use candle_core::{Device, Var};
/// # use ferrotune_trial::optim::Config as _;
/// let trial = Trial::of([("optimizer", "sgd".into()), ("sgd_lr", 0.1.into()), ("sgd_momentum", 0.9.into())]);
/// let optimizer = optim::ask(&trial, ["adamw", "sgd"])?;
/// assert_eq!(optimizer.build(vec![Var::new(1_f32, &Device::Cpu)?])?.learning_rate(), 0.1);
/// # Ok::<(), ferrotune_trial::Error>(())
/// ```
///
/// # Errors
/// If a name is not known or there is none, and the errors of the parameters.
#[track_caller]
pub fn ask<'n>(trial: &Trial, names: impl AsRef<[&'n str]>) -> Result<Box<dyn Config>> {
    let names = names.as_ref();
    let known = || KNOWN.map(|(name, ..)| name).join(", ");
    if let Some(other) = names.iter().find(|name| !KNOWN.iter().any(|(known, ..)| known == *name)) {
        Err(format!("there is no optimiser `{other}` to ask for; known are {}", known()))?;
    }
    let chosen = match names {
        [] => Err(format!("there is no optimiser to choose from; name some of {}", known()))?,
        [only] => (*only).to_owned(),
        several => {
            let several: Vec<String> = several.iter().map(|name| (*name).to_owned()).collect();
            trial.choice("optimizer", several).get()?
        }
    };
    let is_choice = names.len() > 1;
    let range = KNOWN.iter().find(|(name, ..)| *name == chosen);
    let (_, least, most) = *range.ok_or_else(|| format!("there is no optimiser `{chosen}`; known are {}", known()))?;
    let float = |name: &str, least: f64, most: f64| {
        let parameter = trial.float(&format!("{chosen}_{name}"), least..=most);
        if is_choice { parameter.when("optimizer", chosen.as_str()) } else { parameter }
    };
    let lr = float("lr", least, most).log().get()?;
    Ok(match chosen.as_str() {
        "sgd" => Box::new(ParamsSGD { lr, momentum: float("momentum", 0.0, 0.99).get()?, ..ParamsSGD::default() }),
        "lion" => Box::new(ParamsLion { lr, ..ParamsLion::default() }),
        _ => Box::new(ParamsAdamW { lr, ..ParamsAdamW::default() }),
    })
}
