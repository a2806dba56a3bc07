//! The pruner `forecast`: ends a trial whose learning curve promises less than a new trial for the same epochs. Chooses no
//! values of parameters.

use super::curve;
use super::gp::Gp;
use super::history::{History, Proposed};
use super::settings::Settings;
use crate::pruner::WHOLE;
use ferrotune_space::record::TrialRecord;

/// A Gaussian process over parameters and epochs, which forecasts the losses of complete trainings.
#[derive(Debug)]
pub(super) struct Forecast {
    gp: Gp,
    history: History,
}

impl Forecast {
    pub(super) fn new(settings: &Settings) -> Forecast {
        Forecast { gp: Gp::default(), history: History::new(settings.clone()) }
    }

    /// Whether to end a trial that has just reached a stage of its training. It ends if it promises less improvement for each
    /// epoch that is left than `share` of what the best new trial promises for each epoch of a complete training.
    ///
    /// This is expected improvement per cost (Snoek et al. 2012, section 3.2), for a process over parameters and epochs
    /// (Kandasamy et al. 2017).
    pub(super) fn ends(&mut self, trial: &TrialRecord, share: f64, trials: &[TrialRecord]) -> bool {
        let Some(total) = trial.epochs else { return false };
        let done = trial.epochs_done();
        if trial.number.is_multiple_of(WHOLE) || !curve::stages(total).any(|stage| stage == done) {
            return false;
        }
        self.history.update(trials, u64::MAX, &Proposed::new());
        let left = (total - done) as f64 / total as f64;
        self.gp.compare(&self.history, trial.number).is_some_and(|log_ratio| log_ratio < (share * left).ln())
    }
}
