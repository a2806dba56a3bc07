//! The best trial of a study, as a trial of given values.

use super::{FixedTrial, FixedValues, Trial};
use ferrotune_space::Value;
use ferrotune_state::{Restore, Result, located};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::ops::Deref;
use std::path::PathBuf;

/// The best trial of a study, as [`Trial::of`] makes it, with what it has reached. `restore` loads its checkpoint.
#[derive(Debug)]
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
    values: BTreeMap<String, Value>,
    metrics: Option<BTreeMap<String, Option<f64>>>,
    checkpoint: Option<PathBuf>,
    note: Option<String>,
}

impl BestTrial {
    /// Reads what `ferrotune best` prints.
    #[doc(hidden)]
    pub fn of_json(json: &[u8]) -> serde_json::Result<BestTrial> {
        let Told { trial, value, values, metrics, checkpoint, note } = serde_json::from_slice(json)?;
        let fixed = Trial::of(FixedValues::of(values.into_iter().collect()));
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

impl Deref for BestTrial {
    type Target = Trial;

    fn deref(&self) -> &Trial {
        &self.fixed
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
        assert!(error.contains("trial 7 has no checkpoint; save one"), "{error}");
        Ok(())
    }
}
