//! Callbacks: what happens at the moments of a training, with the names of Keras.

mod checkpoint;
mod csv;
mod plateau;
mod tensorboard;

use crate::history::{Epoch, Logs};
use crate::pass::loss_of;
use candle_core::Tensor;
pub use checkpoint::ModelCheckpoint;
pub use csv::CsvLog;
use ferrotune_state::Result;
pub use plateau::ReduceOnPlateau;
pub use tensorboard::TensorBoard;

/// What a callback may change.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Control {
    /// The factor by which the learning rate is multiplied, beside the schedule.
    pub rate: f64,
    /// Whether the training ends after this epoch.
    pub stop: bool,
}

/// A batch of training that has ended.
pub struct BatchEnd<'b> {
    /// The epoch, counted from 0.
    pub epoch: usize,
    /// The batch, counted from 0 in each epoch.
    pub number: usize,
    measured: &'b [Tensor],
}

impl<'b> BatchEnd<'b> {
    pub(crate) fn new(epoch: usize, number: usize, measured: &'b [Tensor]) -> BatchEnd<'b> {
        BatchEnd { epoch, number, measured }
    }

    /// The loss of the batch. On a device that computes later this waits for it, which costs time in each batch.
    ///
    /// # Errors
    /// The errors of the device.
    pub fn loss(&self) -> Result<f64> {
        Ok(loss_of(self.measured)?)
    }
}

/// What happens at the moments of a training. Epochs and batches are counted from 0.
pub trait Callback {
    /// Is called before the first epoch.
    ///
    /// # Errors
    /// An error ends the training.
    fn on_train_begin(&mut self) -> Result<()> {
        Ok(())
    }

    /// Is called before the first epoch of a trial that continues at a checkpoint, with the epochs before it. A callback with a state
    /// of its own makes it again from them.
    ///
    /// # Errors
    /// An error ends the training.
    fn on_resume(&mut self, _epochs: &[Epoch]) -> Result<()> {
        Ok(())
    }

    /// Is called before each epoch.
    ///
    /// # Errors
    /// An error ends the training.
    fn on_epoch_begin(&mut self, _epoch: usize) -> Result<()> {
        Ok(())
    }

    /// Is called after each batch of training. Its loss may still be on the device.
    ///
    /// # Errors
    /// An error ends the training.
    fn on_batch_end(&mut self, _batch: &BatchEnd<'_>) -> Result<()> {
        Ok(())
    }

    /// Is called after each epoch with its metrics.
    ///
    /// # Errors
    /// An error ends the training.
    fn on_epoch_end(&mut self, _epoch: usize, _logs: &Logs, _control: &mut Control) -> Result<()> {
        Ok(())
    }

    /// Is called after the last epoch.
    ///
    /// # Errors
    /// An error ends the training.
    fn on_train_end(&mut self) -> Result<()> {
        Ok(())
    }
}

/// The value of a metric that a callback watches, greater if it is better.
fn watched(callback: &str, metric: &str, greater_is_better: bool, logs: &Logs) -> Result<f64> {
    let missing = || format!("{callback} watches `{metric}`, which is not measured");
    let value = *logs.get(metric).ok_or_else(missing)?;
    Ok(if greater_is_better { value } else { -value })
}

/// Calls a callback for epochs of an earlier process. What it wants of the training was done then.
fn again(callback: &mut impl Callback, epochs: &[Epoch]) -> Result<()> {
    let mut done = Control { rate: 1.0, stop: false };
    epochs.iter().enumerate().try_for_each(|(number, epoch)| callback.on_epoch_end(number, &epoch.logs, &mut done))
}
