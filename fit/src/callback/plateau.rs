//! A learning rate that becomes smaller when a metric stays as it is.

use super::{Callback, Control, again};
use crate::history::{Epoch, Logs};
use ferrotune_state::Result;

/// Multiplies the learning rate by a factor when a metric has not become better for some epochs, as Keras' `ReduceLROnPlateau` does.
#[derive(Clone, Debug)]
pub struct ReduceOnPlateau {
    /// The metric.
    pub metric: String,
    /// The factor, such as 0.1.
    pub factor: f64,
    /// The number of epochs in a row without a better value.
    pub patience: usize,
    best: f64,
    waited: usize,
}

impl ReduceOnPlateau {
    /// Multiplies the rate by `factor` after `patience` epochs in which this metric, such as `val_loss`, has not become better.
    pub fn new(metric: impl Into<String>, factor: f64, patience: usize) -> ReduceOnPlateau {
        ReduceOnPlateau { metric: metric.into(), factor, patience, best: f64::NEG_INFINITY, waited: 0 }
    }
}

impl Callback for ReduceOnPlateau {
    fn on_resume(&mut self, epochs: &[Epoch], control: &Control) -> Result<()> {
        again(self, epochs, control)
    }

    fn on_epoch_end(&mut self, _epoch: usize, logs: &Logs, control: &mut Control) -> Result<()> {
        let value = control.watched("ReduceOnPlateau", &self.metric, logs)?;
        if value > self.best {
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
