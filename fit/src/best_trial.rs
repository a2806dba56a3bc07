//! The best trial of a study, as a trial of given values: its model with its weights, and its training for more data.

use crate::fit::Fit;
use crate::recipe::{Recipe, epochs_name, recipe_name};
use candle_core::DType;
use ferrotune_data::Prep;
use ferrotune_nn::{self as nn, Model, Sequential};
use ferrotune_state::{Error, Restore, Result, located};
use ferrotune_trial::{FixedTrial, FixedValues, Trial};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Deref;
use std::path::PathBuf;

/// The best trial of a study, as [`Trial::of`] makes it, with what it has reached.
///
/// Where [`Fit::run_in`] trained the trial, [`BestTrial::model`] builds its model with the weights of its best epoch. A model with
/// layers of your own is built by your function, and [`BestTrial::restore`] loads its weights.
pub struct BestTrial {
    /// The number of the trial in its study.
    pub trial: u64,
    /// The value of the study's first objective; none if the trial has no value of its own.
    pub value: Option<f64>,
    /// The metrics that it reported for the step of its checkpoint, or for its last step; NaN stands for those that were not finite.
    pub metrics: BTreeMap<String, f64>,
    /// The file with its weights, if it has saved any.
    pub checkpoint: Option<PathBuf>,
    /// A note if these are not the weights that gave the value.
    pub note: Option<String>,
    fixed: FixedTrial,
}

/// What the program prints.
#[derive(Deserialize)]
struct Printed {
    trial: u64,
    value: Option<f64>,
    values: FixedValues,
    metrics: Option<BTreeMap<String, Option<f64>>>,
    checkpoint: Option<PathBuf>,
    note: Option<String>,
}

impl BestTrial {
    /// Reads what `ferrotune best` prints.
    #[doc(hidden)]
    pub fn of_json(json: &[u8]) -> serde_json::Result<BestTrial> {
        let Printed { trial, value, values, metrics, checkpoint, note } = serde_json::from_slice(json)?;
        let fixed = Trial::of(values);
        let fixed = match &checkpoint {
            Some(checkpoint) => fixed.with_checkpoint(checkpoint),
            None => fixed,
        };
        let numbers = metrics.unwrap_or_default().into_iter().map(|(name, value)| (name, value.unwrap_or(f64::NAN)));
        Ok(BestTrial { trial, value, metrics: numbers.collect(), checkpoint, note, fixed })
    }

    /// Loads the weights of the trial, or all that its objective saved, as [`Trial::restore`] does.
    ///
    /// # Errors
    /// If the trial has no checkpoint, and the errors of [`Trial::restore`].
    #[track_caller]
    pub fn restore(&self, state: impl Restore) -> Result<()> {
        if self.checkpoint.is_none() {
            return located(Err(self.without_checkpoint()));
        }
        self.fixed.restore(state).map(drop)
    }

    /// The trial's model with the weights of its checkpoint, on the connected device.
    ///
    /// ```ignore
    /// let best = ferrotune::best("digits")?;
    /// let scores = best.model()?.predict(&rows)?;
    /// ```
    ///
    /// # Errors
    /// If the trial has no checkpoint or was not trained by [`Fit::run_in`], and if the model has layers of your own: build it then
    /// with the objective's function, and call [`BestTrial::restore`].
    #[track_caller]
    pub fn model(&self) -> Result<Sequential> {
        let model = self.new_model()?;
        self.restore(model.vars())?;
        Ok(model)
    }

    /// A model like the trial's with new first weights, on the connected device.
    ///
    /// # Errors
    /// Those of [`BestTrial::model`].
    #[track_caller]
    pub fn new_model(&self) -> Result<Sequential> {
        located(self.built().map_err(Error::into_source))
    }

    fn built(&self) -> Result<Sequential> {
        let Recipe { model, .. } = self.training()?.0;
        if let Some(architecture) = model.get("architecture") {
            return Ok(nn::build(&architecture.to_string(), &self.device()?)?);
        }
        Err(format!(
            "the model of trial {} cannot be built from its checkpoint: {}; build it with the objective's function, and call \
             best.restore(model.vars())?",
            self.trial,
            model["not_described"].as_str().unwrap_or("its description has no layers")
        ))?
    }

    /// The preparation of tables that was given to [`Fit::prep`].
    ///
    /// # Errors
    /// If there was none, and those of [`BestTrial::model`].
    #[track_caller]
    pub fn prep(&self) -> Result<Prep> {
        let Recipe { prep, .. } = located(self.training().map_err(Error::into_source))?.0;
        located(prep.ok_or_else(|| {
            format!(
                "trial {} has saved no Prep; call `.prep(&prep)` of `Fit` in the objective before `.run_in`",
                self.trial
            )
        }))
    }

    /// The training of the trial for a model, such as one of [`BestTrial::new_model`] on all data: its optimisers, schedule, batches and
    /// loss, for as many epochs as its checkpoint had, without metrics, early stopping and callbacks. More calls change it. A loss that was
    /// a closure is chosen again.
    ///
    /// ```ignore
    /// let best = ferrotune::best("digits")?;
    /// let model = best.new_model()?;
    /// best.fit(&model)?.run(&all, None)?;
    /// ```
    ///
    /// # Errors
    /// If an optimiser is of your own, if the trial has no checkpoint or was not trained by [`Fit::run_in`].
    #[track_caller]
    pub fn fit<'a>(&self, model: &'a impl Model) -> Result<Fit<'a>> {
        located(self.trained(Fit::new(model)).map_err(Error::into_source))
    }

    fn trained<'a>(&self, fit: Fit<'a>) -> Result<Fit<'a>> {
        let (recipe, epochs) = self.training()?;
        let mut fit = fit
            .schedule(recipe.decay)
            .batch(recipe.batch)
            .accumulate(recipe.accumulated)
            .epochs(epochs)
            .precision(if recipe.precision == DType::BF16.as_str() { DType::BF16 } else { DType::F32 });
        // The rate decays as it did, also if the checkpoint is of an earlier epoch than the last one.
        fit.planned = Some(recipe.planned);
        fit.shuffle = recipe.shuffle;
        for (prefix, settings) in recipe.optimizers {
            let own = || format!("an optimiser of trial {} is of your own; write its training with `Fit`", self.trial);
            fit = fit.optimizer_of(&prefix, settings.ok_or_else(own)?);
        }
        if let Some(loss) = recipe.loss {
            fit = fit.criterion(loss);
        }
        if let Some(max_norm) = recipe.clip_norm {
            fit = fit.clip_norm(max_norm);
        }
        Ok(fit)
    }

    /// What the checkpoint says of the training, and the number of its epochs.
    fn training(&self) -> Result<(Recipe, usize)> {
        let saved = self.fixed.read_checkpoint()?.ok_or_else(|| self.without_checkpoint())?;
        let (Ok(recipe), Ok(epochs)) = (saved.text(&recipe_name("")), saved.text(&epochs_name(""))) else {
            return Err(format!(
                "the checkpoint of trial {} does not say how it was trained, as `Fit::run_in` of this version writes it; build the \
                 model with the objective's function, and call best.restore(model.vars())?",
                self.trial
            ))?;
        };
        let damaged = |error: &dyn fmt::Display| {
            format!("the checkpoint of trial {} is damaged where it says how it was trained: {error}", self.trial)
        };
        let epochs = epochs.parse().map_err(|error| damaged(&error))?;
        Ok((Recipe::of_json(recipe).map_err(|error| damaged(&error))?, epochs))
    }

    fn without_checkpoint(&self) -> String {
        format!(
            "trial {} has no checkpoint; train it with `Fit::run_in`, save one in the objective with trial.checkpoint(&vars)?, or keep \
             more with --keep-best",
            self.trial
        )
    }
}

impl Deref for BestTrial {
    type Target = Trial;

    fn deref(&self) -> &Trial {
        &self.fixed
    }
}

impl fmt::Debug for BestTrial {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let BestTrial { trial, value, metrics, checkpoint, note, .. } = self;
        let mut shown = formatter.debug_struct("BestTrial");
        shown.field("trial", trial).field("value", value).field("metrics", metrics).field("checkpoint", checkpoint);
        shown.field("note", note).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_trial_has_the_values_that_the_program_prints() -> Result<()> {
        let json =
            br#"{"trial": 7, "value": 0.5, "values": {"lr": 0.01, "units": 64}, "metrics": {"loss": 0.5, "nan": null},
            "checkpoint": null, "note": null}"#;
        let best = BestTrial::of_json(json)?;
        assert_eq!((best.trial, best.value, best.metrics["loss"]), (7, Some(0.5), 0.5));
        assert!(best.metrics["nan"].is_nan());
        assert_eq!(best.int("units", 1..=100).get()?, 64);
        assert_eq!(best.float("lr", 1e-3..=1.0).get()?, 0.01);
        let error = best.restore(&candle_nn::VarMap::new()).expect_err("it has no checkpoint").to_string();
        assert!(error.contains("trial 7 has no checkpoint; train it with"), "{error}");
        let error = best.model().expect_err("it has no checkpoint").to_string();
        assert!(error.contains("trial 7 has no checkpoint; train it with"), "{error}");
        Ok(())
    }
}
