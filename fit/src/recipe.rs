//! What a checkpoint says of the training that made it: how to build its model, and how to train it again.

use crate::check::precision_of;
use crate::fit::Fit;
use ferrotune_data::Prep;
use ferrotune_nn as nn;
use ferrotune_nn::loss::LossSettings;
use ferrotune_state::Result;
use ferrotune_trial::optim::{Decay, OptimizerSettings};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The version that this program writes, and the latest that it reads.
const VERSION: u32 = 1;

/// A model and its training as a checkpoint has them.
#[derive(Serialize, Deserialize)]
pub(crate) struct Recipe {
    version: u32,
    /// The description of the model, as `model.save` writes it beside a file.
    pub(crate) model: Value,
    pub(crate) prep: Option<Prep>,
    /// The loss; none if it is a closure.
    pub(crate) loss: Option<LossSettings>,
    /// The optimisers with the prefixes of their variables; without settings if they are of the user's own.
    pub(crate) optimizers: Vec<(String, Option<OptimizerSettings>)>,
    pub(crate) decay: Decay,
    /// The number of epochs that were planned, over which the rate decays.
    pub(crate) planned: usize,
    pub(crate) shuffle: Option<usize>,
    pub(crate) batch: usize,
    pub(crate) accumulated: usize,
    pub(crate) clip_norm: Option<f64>,
    /// `f32`, or `bf16` for mixed precision.
    pub(crate) precision: String,
}

/// The name of the number of epochs in a checkpoint.
pub(crate) fn epochs_name(name: &str) -> String {
    format!("{name}ferrotune:fit:epochs")
}

/// The name of the text in a checkpoint.
pub(crate) fn recipe_name(name: &str) -> String {
    format!("{name}ferrotune:fit:recipe")
}

impl Recipe {
    pub(crate) fn of(fit: &Fit<'_>) -> Result<Recipe> {
        let settings = |(prefix, config): &(String, Box<dyn ferrotune_trial::optim::Config + '_>)| {
            (prefix.clone(), config.settings())
        };
        Ok(Recipe {
            version: VERSION,
            model: nn::description(fit.model)?,
            prep: fit.prep.cloned(),
            loss: fit.criterion.settings(),
            optimizers: fit.optimizers.iter().map(settings).collect(),
            decay: fit.decay,
            planned: fit.planned.unwrap_or(fit.epochs),
            shuffle: fit.shuffle,
            batch: fit.batch,
            accumulated: fit.accumulated,
            clip_norm: fit.clip_norm,
            precision: precision_of(fit).as_str().to_owned(),
        })
    }

    pub(crate) fn to_json(&self) -> Result<String> {
        Ok(serde_json::to_string(self)?)
    }

    /// Reads what [`Recipe::to_json`] wrote.
    ///
    /// # Errors
    /// If the text is damaged or of a later version.
    pub(crate) fn of_json(text: &str) -> Result<Recipe> {
        #[derive(Deserialize)]
        struct Version {
            version: u32,
        }
        let Version { version } = serde_json::from_str(text)?;
        if version > VERSION {
            Err(format!(
                "its training has version {version}, and this program reads up to {VERSION}; update ferrotune"
            ))?;
        }
        Ok(serde_json::from_str(text)?)
    }
}
