//! Callbacks that are closures.

use super::{BatchEnd, Callback, Control};
use crate::history::Logs;
use ferrotune_state::Result;

/// The callback of [`Fit::on_epoch`](crate::Fit::on_epoch).
pub(crate) struct OnEpoch<F>(pub(crate) F);

impl<F: FnMut(usize, &Logs) -> Result<()>> Callback for OnEpoch<F> {
    fn on_epoch_end(&mut self, epoch: usize, logs: &Logs, _control: &mut Control) -> Result<()> {
        (self.0)(epoch, logs)
    }
}

/// The callback of [`Fit::on_batch`](crate::Fit::on_batch).
pub(crate) struct OnBatch<F>(pub(crate) F);

impl<F: FnMut(&BatchEnd<'_>) -> Result<()>> Callback for OnBatch<F> {
    fn on_batch_end(&mut self, batch: &BatchEnd<'_>) -> Result<()> {
        (self.0)(batch)
    }
}
