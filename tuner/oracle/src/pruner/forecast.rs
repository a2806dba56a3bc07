//! The pruner `forecast`: ends a trial that has little chance of a better final loss than the best finished trial.

use crate::curve;
use crate::forecast::Regression;
use crate::oracle::Settings;
use ferrotune_space::record::TrialRecord;

/// The largest number of stages at which a trial is judged: a judgement costs the best trial a little of its chance.
const STAGES: usize = 4;

/// The interval at which a trial trains to its end whatever its chance, so that the regression has new complete trainings.
const WHOLE: u64 = 6;

/// Whether a trial that has just reached a stage of its training has less than this chance to beat the best finished trial.
pub(super) fn prunes(chance: f64, trial: &TrialRecord, trials: &[TrialRecord], settings: &Settings) -> bool {
    let Some(total) = trial.epochs.filter(|_| !trial.number.is_multiple_of(WHOLE)) else { return false };
    let done = trial.epochs_done();
    // A trial that reports every few epochs is judged at its first report from the stage on.
    let before = trial.metrics.keys().rev().nth(1).map_or(0, |step| step + 1);
    let is_reached = |stage: &u64| *stage <= done && before < *stage && done < total;
    let Some(stage) = curve::stages(total).take(STAGES).position(|stage| is_reached(&stage)) else { return false };
    let Some(early) = curve::of(trial, settings.objective())[stage] else { return false };
    let finished = |other: &TrialRecord| Some((curve::of(other, settings.objective()), settings.final_loss(other)?));
    let finished: Vec<(Vec<Option<f64>>, f64)> = trials.iter().filter_map(finished).collect();
    let best = finished.iter().map(|(_, last)| *last).fold(f64::INFINITY, f64::min);
    let regression = Regression::at(stage, finished.iter().map(|(curve, last)| (curve.as_slice(), *last)));
    regression.forecast(early).is_some_and(|forecast| forecast.chance_below(best) < chance)
}
