//! Files of the model while it trains.

use super::{Callback, Control};
use crate::history::{Epoch, Logs};
use ferrotune_nn::Model;
use ferrotune_state::Result;
use std::num::NonZeroUsize;

/// Saves the model's variables after epochs, as Keras' `ModelCheckpoint` does and as `model.save` writes them. Each file is on disk before
/// the next epoch begins, and a crash leaves the old file or the new one. A trial of a search needs no such file: `run_in` saves more.
///
/// ```
/// # use ferrotune_fit::{Fit, ModelCheckpoint};
/// # let folder = tempfile::tempdir()?;
/// # let path = |name: &str| folder.path().join(name).display().to_string();
/// # let [train, valid] = ferrotune_data::wine()?.split([0.8, 0.2], 7)?;
/// let model = ferrotune_nn::mlp(13, &[8], 3).build(&candle_core::Device::Cpu)?;
/// Fit::classifier(&model)
///     .epochs(4)
///     .callback(ModelCheckpoint::new(&model, path("wine-{epoch}.safetensors")).every(2))
///     .callback(ModelCheckpoint::new(&model, path("best.safetensors")).best("val_loss"))
///     .run(&train, &valid)?;
/// assert!(folder.path().join("wine-1.safetensors").exists() && folder.path().join("wine-3.safetensors").exists());
/// # assert!(!folder.path().join("wine-0.safetensors").exists() && folder.path().join("best.safetensors").exists());
/// # Ok::<(), ferrotune_state::Error>(())
/// ```
pub struct ModelCheckpoint<'a> {
    model: &'a dyn Model,
    path: String,
    every: NonZeroUsize,
    metric: Option<String>,
    best: f64,
}

impl<'a> ModelCheckpoint<'a> {
    /// Saves after each epoch in this file, in whose name `{epoch}` is the number of the epoch, counted from 0. A name without it is
    /// the same file each time.
    pub fn new(model: &'a impl Model, path: impl Into<String>) -> ModelCheckpoint<'a> {
        ModelCheckpoint { model, path: path.into(), every: NonZeroUsize::MIN, metric: None, best: f64::NEG_INFINITY }
    }

    /// Saves after each of so many epochs; 0 is taken as 1.
    #[must_use]
    pub fn every(self, epochs: usize) -> ModelCheckpoint<'a> {
        ModelCheckpoint { every: NonZeroUsize::new(epochs).unwrap_or(NonZeroUsize::MIN), ..self }
    }

    /// Saves only if this metric, such as `val_loss`, is better than after all epochs before that would have saved.
    #[must_use]
    pub fn best(self, metric: impl Into<String>) -> ModelCheckpoint<'a> {
        ModelCheckpoint { metric: Some(metric.into()), ..self }
    }

    /// Whether the model is saved after this epoch, whose value is then the best one.
    fn saves(&mut self, epoch: usize, logs: &Logs, control: &Control) -> Result<bool> {
        if !(epoch + 1).is_multiple_of(self.every.get()) {
            return Ok(false);
        }
        let Some(metric) = &self.metric else { return Ok(true) };
        let value = control.watched("ModelCheckpoint", metric, logs)?;
        let is_best = value > self.best;
        if is_best {
            self.best = value;
        }
        Ok(is_best)
    }
}

impl Callback for ModelCheckpoint<'_> {
    /// The files of the epochs before are there.
    fn on_resume(&mut self, epochs: &[Epoch], control: &Control) -> Result<()> {
        for (number, epoch) in epochs.iter().enumerate() {
            self.saves(number, &epoch.logs, control)?;
        }
        Ok(())
    }

    fn on_epoch_end(&mut self, epoch: usize, logs: &Logs, control: &mut Control) -> Result<()> {
        if self.saves(epoch, logs, control)? {
            (&self.model).save(self.path.replace("{epoch}", &epoch.to_string()))?;
        }
        Ok(())
    }
}
