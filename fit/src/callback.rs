//! Callbacks: what happens at the moments of a training, with the names of Keras.

use crate::history::{Epoch, Logs};
use ferrotune_state::Result;
use std::fs::File;
use std::io::Write as _;
use std::path::PathBuf;

/// What a callback may change.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Control {
    /// The factor by which the learning rate is multiplied, beside the schedule.
    pub rate: f64,
    /// Whether the training ends after this epoch.
    pub stop: bool,
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

    /// Is called after each batch of training. Its loss is still on the device.
    ///
    /// # Errors
    /// An error ends the training.
    fn on_batch_end(&mut self, _batch: usize) -> Result<()> {
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

/// Writes a line of each epoch's metrics into a CSV file, as Keras' `CSVLogger` does. The file is made anew, and each line is on disk
/// before the next epoch begins.
#[derive(Debug)]
pub struct CsvLog {
    path: PathBuf,
    file: Option<File>,
}

impl CsvLog {
    /// A log in this file.
    pub fn new(path: impl Into<PathBuf>) -> CsvLog {
        CsvLog { path: path.into(), file: None }
    }
}

impl Callback for CsvLog {
    fn on_resume(&mut self, epochs: &[Epoch]) -> Result<()> {
        again(self, epochs)
    }

    fn on_epoch_end(&mut self, epoch: usize, logs: &Logs, _control: &mut Control) -> Result<()> {
        let failed = |error: std::io::Error| format!("cannot write {}: {error}", self.path.display());
        let mut line = String::new();
        if self.file.is_none() {
            let names: Vec<&str> = logs.keys().map(String::as_str).collect();
            line = format!("epoch,{}\n", names.join(","));
        }
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(File::create(&self.path).map_err(failed)?),
        };
        let values: Vec<String> = logs.values().map(f64::to_string).collect();
        line += &format!("{epoch},{}\n", values.join(","));
        file.write_all(line.as_bytes()).and_then(|()| file.sync_data()).map_err(failed)?;
        Ok(())
    }
}

/// Multiplies the learning rate by a factor when a metric has not become better for some epochs, as Keras' `ReduceLROnPlateau` does.
#[derive(Clone, Debug)]
pub struct ReduceOnPlateau {
    /// The metric.
    pub metric: String,
    /// Whether greater values are better, as of an accuracy.
    pub greater_is_better: bool,
    /// The factor, such as 0.1.
    pub factor: f64,
    /// The number of epochs in a row without a better value.
    pub patience: usize,
    best: f64,
    waited: usize,
}

impl ReduceOnPlateau {
    /// Multiplies the rate by `factor` after `patience` epochs in which this metric, such as `val_loss`, has not become smaller.
    pub fn new(metric: impl Into<String>, factor: f64, patience: usize) -> ReduceOnPlateau {
        ReduceOnPlateau {
            metric: metric.into(),
            greater_is_better: false,
            factor,
            patience,
            best: f64::INFINITY,
            waited: 0,
        }
    }

    /// Watches a metric whose greater values are better, such as `val_accuracy`.
    #[must_use]
    pub fn greater_is_better(self) -> ReduceOnPlateau {
        ReduceOnPlateau { greater_is_better: true, ..self }
    }
}

impl Callback for ReduceOnPlateau {
    fn on_resume(&mut self, epochs: &[Epoch]) -> Result<()> {
        again(self, epochs)
    }

    fn on_epoch_end(&mut self, _epoch: usize, logs: &Logs, control: &mut Control) -> Result<()> {
        let metric = &self.metric;
        let missing = || format!("ReduceOnPlateau watches `{metric}`, which is not measured");
        let value = *logs.get(metric).ok_or_else(missing)?;
        let value = if self.greater_is_better { -value } else { value };
        if value < self.best {
            (self.best, self.waited) = (value, 0);
            return Ok(());
        }
        self.waited += 1;
        if self.waited >= self.patience.max(1) {
            control.rate *= self.factor;
            self.waited = 0;
        }
        Ok(())
    }
}

/// Calls a callback for epochs of an earlier process. What it wants of the training was done then.
fn again(callback: &mut impl Callback, epochs: &[Epoch]) -> Result<()> {
    let mut done = Control { rate: 1.0, stop: false };
    epochs.iter().enumerate().try_for_each(|(number, epoch)| callback.on_epoch_end(number, &epoch.logs, &mut done))
}
