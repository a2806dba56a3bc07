//! Which values of a metric are better, and early stopping: the best epoch so far, and how long it was ago.

use crate::history::{Epoch, of_training};
use ferrotune_nn::metrics::Metric;
use ferrotune_trial::Direction;
use std::collections::BTreeMap;
use std::rc::Rc;

/// Whether smaller or greater values are better, by the name of the metric without `val_`.
#[derive(Clone, Debug)]
pub(crate) struct Directions(Rc<BTreeMap<String, Direction>>);

impl Directions {
    /// Those of metrics, and those that the user has said.
    pub(crate) fn new(metrics: &[(String, Box<dyn Metric>)], said: &[(String, Direction)]) -> Directions {
        let of = |metric: &dyn Metric| if metric.is_error() { Direction::Min } else { Direction::Max };
        let measured = metrics.iter().map(|(name, metric)| (name.clone(), of(&**metric)));
        let loss = [("loss".to_owned(), Direction::Min)];
        let said = said.iter().map(|(name, direction)| (of_training(name).to_owned(), *direction));
        Directions(Rc::new(measured.chain(loss).chain(said).collect()))
    }

    /// The direction of a metric, also with `val_`; none of what a step logs unless the user has said it.
    pub(crate) fn of(&self, metric: &str) -> Option<Direction> {
        self.0.get(of_training(metric)).copied()
    }

    /// A value of a metric as a number that is greater if it is better; none without a direction.
    pub(crate) fn score(&self, metric: &str, value: f64) -> Option<f64> {
        let sign = if self.of(metric)? == Direction::Max { 1.0 } else { -1.0 };
        Some(value * sign)
    }

    /// The error about a metric without a direction.
    pub(crate) fn unknown(&self, watcher: &str, metric: &str) -> String {
        let name = of_training(metric);
        format!(
            "{watcher} watches `{metric}`, and nothing says which of its values are better; call `.minimize(\"{name}\")` or \
             `.maximize(\"{name}\")` of `Fit`"
        )
    }
}

/// The rule of [`Fit::early_stop`](crate::Fit::early_stop).
#[derive(Clone, Debug)]
pub(crate) struct EarlyStop {
    pub(crate) metric: String,
    pub(crate) patience: usize,
}

impl EarlyStop {
    /// The index of the best epoch: the first of those with the best value. NaN is never the best.
    pub(crate) fn best(&self, epochs: &[Epoch], directions: &Directions) -> Option<usize> {
        let mut best: Option<(usize, f64)> = None;
        for (index, epoch) in epochs.iter().enumerate() {
            let value = epoch.logs.get(&self.metric).and_then(|value| directions.score(&self.metric, *value));
            let value = value.unwrap_or(f64::NAN);
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
