//! Callbacks: what happens at the moments of a training, with the names of Keras.

mod checkpoint;
mod closure;
mod csv;
mod plateau;
mod tensorboard;

use crate::history::{Epoch, Logs};
use crate::stop::Directions;
use crate::totals::loss_of;
use candle_core::Tensor;
pub use checkpoint::ModelCheckpoint;
pub(crate) use closure::{OnBatch, OnEpoch};
pub use csv::CsvLog;
use ferrotune_state::Result;
pub use plateau::ReduceOnPlateau;
pub use tensorboard::TensorBoard;

/// What a callback may change, and what it can ask.
#[derive(Clone, Debug)]
pub struct Control {
    /// The factor by which the learning rate is multiplied, beside the schedule.
    pub rate: f64,
    /// Whether the training ends after this epoch.
    pub stop: bool,
    directions: Directions,
}

impl Control {
    pub(crate) fn new(rate: f64, stop: bool, directions: Directions) -> Control {
        Control { rate, stop, directions }
    }

    /// The value of a metric that a callback of this name watches, as a number that is greater if it is better.
    ///
    /// # Errors
    /// If the metric is not among the logs, or nothing says whether its smaller or its greater values are better.
    pub fn watched(&self, callback: &str, metric: &str, logs: &Logs) -> Result<f64> {
        let missing = || {
            let known: Vec<&str> = logs.keys().map(String::as_str).collect();
            format!("{callback} watches `{metric}`, which is not measured; measured are {}", known.join(", "))
        };
        let value = *logs.get(metric).ok_or_else(missing)?;
        Ok(self.directions.score(metric, value).ok_or_else(|| self.directions.unknown(callback, metric))?)
    }
}

/// A step of training that has ended: of one batch, or of several with [`Fit::accumulate`](crate::Fit::accumulate).
pub struct BatchEnd<'b> {
    /// The epoch, counted from 0.
    pub epoch: usize,
    /// The step, counted from 0 in each epoch.
    pub number: usize,
    measured: &'b [Tensor],
}

impl<'b> BatchEnd<'b> {
    pub(crate) fn new(epoch: usize, number: usize, measured: &'b [Tensor]) -> BatchEnd<'b> {
        BatchEnd { epoch, number, measured }
    }

    /// The loss of the step's rows; of several replicas, of this one's rows, and NaN if it has none. On a device that computes later this
    /// waits for it, which costs time in each step.
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
    fn on_resume(&mut self, _epochs: &[Epoch], _control: &Control) -> Result<()> {
        Ok(())
    }

    /// Is called before each epoch.
    ///
    /// # Errors
    /// An error ends the training.
    fn on_epoch_begin(&mut self, _epoch: usize) -> Result<()> {
        Ok(())
    }

    /// Is called after each step of training, of one batch or of several with `accumulate`. Its loss may still be on the device.
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

/// Calls a callback for epochs of an earlier process. What it wants of the training was done then.
fn again(callback: &mut impl Callback, epochs: &[Epoch], control: &Control) -> Result<()> {
    let mut done = control.clone();
    epochs.iter().enumerate().try_for_each(|(number, epoch)| callback.on_epoch_end(number, &epoch.logs, &mut done))
}
