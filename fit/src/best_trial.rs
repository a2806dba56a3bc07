//! The best trial of a study, as a trial of given values: its model with its weights, and its training for more data.

use crate::fit::Fit;
use crate::history::Epoch;
use crate::recipe::{Recipe, recipe_name};
use crate::trial::Progress;
use candle_core::DType;
use ferrotune_data::Prep;
use ferrotune_nn::{self as nn, Model, Sequential, metrics};
use ferrotune_state::{Restore, Result, ShareError, Shared, located};
use ferrotune_trial::{FixedTrial, FixedValues, Trial};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::ops::Deref;
use std::path::PathBuf;

/// The best trial of a study, as [`Trial::of`] makes it, with what it has reached.
///
/// Where [`Fit::run_in`] trained the trial, [`BestTrial::model`] builds its model with the weights of its best epoch. A model with
/// layers of your own is built by your function, and `restore` loads its weights.
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
struct Told {
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
        let Told { trial, value, values, metrics, checkpoint, note } = serde_json::from_slice(json)?;
        let fixed = Trial::of(values);
        let fixed = match &checkpoint {
            Some(checkpoint) => fixed.with_checkpoint(checkpoint),
            None => fixed,
        };
        let numbers = metrics.unwrap_or_default().into_iter().map(|(name, value)| (name, value.unwrap_or(f64::NAN)));
        Ok(BestTrial { trial, value, metrics: numbers.collect(), checkpoint, note, fixed })
    }
}

impl BestTrial {
    /// Loads the weights of the trial, or all that its objective saved, as [`Trial::restore`] does.
    ///
    /// # Errors
    /// If the trial has no checkpoint, and the errors of [`Trial::restore`].
    #[track_caller]
    pub fn restore(&self, state: impl Restore) -> Result<()> {
        if self.checkpoint.is_none() {
            let missing = format!(
                "trial {} has no checkpoint; save one in the objective with trial.checkpoint(&vars)?, or keep more with --keep-best",
                self.trial
            );
            return located(Err(missing));
        }
        self.fixed.restore(state).map(drop)
    }
}