//! Early stopping: the best epoch so far, and how long it was ago.

use crate::history::Epoch;
use ferrotune_nn::metrics::Metric;

/// The rule of [`Fit::early_stop`](crate::Fit::early_stop).
#[derive(Clone, Debug)]
pub(crate) struct EarlyStop {
    pub(crate) metric: String,
    pub(crate) patience: usize,
}

impl EarlyStop {
    /// The index of the best epoch: the first of those with the best value. NaN is never the best.
    pub(crate) fn best(&self, epochs: &[Epoch], metrics: &[(String, Box<dyn Metric>)]) -> Option<usize> {
        let sign = if is_smaller_better(&self.metric, metrics) { -1.0 } else { 1.0 };
        let mut best: Option<(usize, f64)> = None;
        for (index, epoch) in epochs.iter().enumerate() {
            let value = epoch.logs.get(&self.metric).copied().unwrap_or(f64::NAN);
            let value = value * sign;
            if !value.is_nan() && best.is_none_or(|(_, best)| value > best) {
                best = Some((index, value));
            }
        }
        best.map(|(index, _)| index)
    }

    /// Whether the training ends after `count` epochs, of which the best one had this index.
    pub(crate) fn ends(&self, best: Option<usize>, count: usize) -> bool {
        count.saturating_sub(best.map_or(0, |best| best + 1)) >= self.patience.max(1)
    }
}

/// Whether a smaller value of a metric is better: of losses, of metrics that are errors, and of what a step logs.
fn is_smaller_better(name: &str, metrics: &[(String, Box<dyn Metric>)]) -> bool {
    let name = name.strip_prefix("val_").unwrap_or(name);
    !metrics.iter().any(|(other, metric)| other == name && !metric.is_error())
}
