//! The history of a training: the metrics of each epoch, and how it ended. A cell shows it as curves and a table.

mod curves;

use ferrotune_display::{Bundle, Show, table};
use ferrotune_trial::ObjectiveValue;
use std::collections::BTreeMap;

/// The metrics of an epoch by name.
pub type Logs = BTreeMap<String, f64>;

/// Whether a name stands for the loss or for validation data, so that no metric has it.
pub(crate) fn is_reserved(name: &str) -> bool {
    name == "loss" || of_training(name) != name
}

/// The name of a metric without the `val_` of validation data.
pub(crate) fn of_training(name: &str) -> &str {
    name.strip_prefix("val_").unwrap_or(name)
}

/// An epoch of a training.
#[derive(Clone, Debug, PartialEq)]
pub struct Epoch {
    /// The metrics: `loss`, and the others by name.
    pub logs: Logs,
    /// The learning rate at the end of the epoch.
    pub learning_rate: f64,
    /// The seconds that the epoch took, validation included.
    pub seconds: f64,
}

/// How a training has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// All epochs have run.
    Finished,
    /// The metric of early stopping has not become better, or a callback has asked for the end.
    Early,
    /// The user has interrupted the cell.
    Interrupted,
}

/// The metrics of each epoch of a training.
#[derive(Clone, Debug, PartialEq)]
pub struct History {
    /// The epochs in their order.
    pub epochs: Vec<Epoch>,
    /// How the training has ended.
    pub ended: Ended,
    /// The epoch, counted from 0, whose weights the model has; none if it has those of the last step.
    pub best_epoch: Option<usize>,
}

impl History {
    /// The number of epochs.
    pub fn len(&self) -> usize {
        self.epochs.len()
    }

    /// Whether no epoch has run to its end.
    pub fn is_empty(&self) -> bool {
        self.epochs.is_empty()
    }

    /// The values of a metric, such as `val_loss`, one for each epoch; none if there is no such metric.
    pub fn get(&self, metric: &str) -> Vec<f64> {
        self.epochs.iter().filter_map(|epoch| epoch.logs.get(metric).copied()).collect()
    }

    /// The value of a metric in the epoch whose weights the model has.
    pub fn value(&self, metric: &str) -> Option<f64> {
        let epoch = self.best_epoch.map_or_else(|| self.epochs.last(), |best| self.epochs.get(best))?;
        epoch.logs.get(metric).copied()
    }

    /// The names of the metrics.
    pub fn names(&self) -> Vec<&str> {
        self.epochs.first().map_or_else(Vec::new, |epoch| epoch.logs.keys().map(String::as_str).collect())
    }

    /// A sentence: how many epochs ran, why the training ended, and whose weights the model has.
    pub fn sentence(&self) -> String {
        let epochs = match self.len() {
            1 => "1 epoch".to_owned(),
            count => format!("{count} epochs"),
        };
        let ended = match self.ended {
            Ended::Finished => "",
            Ended::Early => ", stopped early",
            Ended::Interrupted => ", interrupted",
        };
        let best = self.best_epoch.map(|best| format!("; the model has the weights of epoch {best}"));
        format!("{epochs}{ended}{}", best.unwrap_or_default())
    }
}

/// The value of an objective: the trial's reports have it.
impl ObjectiveValue for History {
    fn values(self) -> Vec<Option<f64>> {
        ().values()
    }
}

impl Show for History {
    fn bundle(&self) -> Bundle {
        let mut header = vec!["epoch"];
        header.extend(self.names());
        let rows: Vec<Vec<String>> = self
            .epochs
            .iter()
            .enumerate()
            .map(|(number, epoch)| {
                let values = self.names().into_iter().map(|name| epoch.logs.get(name).map_or_else(String::new, short));
                std::iter::once(number.to_string()).chain(values).collect()
            })
            .collect();
        let (rows, sentence) = (few(rows), self.sentence());
        let listed = table(&header, &rows);
        let text = format!("{}\n{sentence}", listed.text_of("text/plain"));
        let html = format!("{}<div>{sentence}</div>{}", curves::svg(self), listed.text_of("text/html"));
        Bundle::text(text).with("text/html", html)
    }
}

/// A number with four digits.
fn short(value: &f64) -> String {
    if value.abs() >= 1e-3 && value.abs() < 1e4 || *value == 0.0 {
        format!("{value:.4}")
    } else {
        format!("{value:.3e}")
    }
}

/// The first and last rows of many.
fn few(mut rows: Vec<Vec<String>>) -> Vec<Vec<String>> {
    const ENDS: usize = 5;
    if rows.len() > 2 * ENDS + 1 {
        let width = rows[0].len();
        let last = rows.split_off(rows.len() - ENDS);
        rows.truncate(ENDS);
        rows.push(vec!["…".to_owned(); width]);
        rows.extend(last);
    }
    rows
}
