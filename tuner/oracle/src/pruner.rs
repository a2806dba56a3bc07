//! The pruners, which decide whether a running trial ends before its last step. Pruners see only trial records, and
//! end no trial themselves.
//!
//! A pruner is written as `NAME` or `NAME:SETTING=NUMBER,…`, for example `percentile:keep=25,warmup=3`.

mod forecast;
mod percentile;
mod signed_rank;
mod text;

pub use text::PrunerError;

use crate::oracle::Settings;
use ferrotune_space::objective::{Direction, Objective};
use ferrotune_space::record::TrialRecord;
use serde::{Deserialize, Serialize};
use signed_rank::SignedRank;

/// How a trial ends before its objective returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EarlyEnd {
    /// It does too badly to go on.
    Pruned,
    /// It improves no more: its reports so far are its result.
    Finished,
}

/// Judges a trial after each of its reports.
///
/// The rules and their defaults are Optuna's, so both programs prune a search in the same way.
///
/// ```
/// use ferrotune_oracle::pruner::Pruner;
/// let pruner: Pruner = "percentile:keep=25,warmup=3".parse()?;
/// assert_eq!(pruner.to_string(), "percentile:keep=25,startup=5,warmup=3,interval=1,least=1");
/// # Ok::<(), ferrotune_oracle::pruner::PrunerError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Pruner {
    /// `median` (keeps 50 %) and `percentile`: ends a trial whose best value so far is not among the best of the
    /// finished trials' values at the same step.
    Percentile {
        /// The percentage of the trials that continue, from 0 to 100.
        keep: f64,
        /// The number of finished trials before the first trial is pruned.
        startup: u64,
        /// The steps at which a trial is judged.
        checks: Checks,
        /// The number of trials that must have reported at the step.
        least: u64,
    },
    /// `wilcoxon`: ends a trial whose steps are worse than the best trial's by the signed-rank test. Each step must be
    /// the same problem for all trials (a fold, an instance). A trial's value must be the mean of its steps.
    Wilcoxon {
        /// The probability of such a difference by chance below which a trial is pruned.
        p: f64,
        /// The number of steps before a trial is judged, at least 2.
        startup: u64,
    },
    /// `patience`: ends a trial whose best value has not improved for `steps` reports, if the pruner `around` would end it, too,
    /// as in Optuna's `PatientPruner`. Without another pruner the trial is finished, not pruned, as in Keras' `EarlyStopping`.
    Patience {
        /// Number of reports without an improvement that a trial may have.
        steps: u64,
        /// The smallest improvement.
        delta: f64,
        /// The other pruner, if there is one.
        around: Option<Box<Pruner>>,
    },
    /// `forecast`: ends a trial that has little chance of a better final loss than the best trial, by a regression over the
    /// finished trials on the loss at the same epoch. It judges a trial after a third of a complete training, a third of that, and
    /// so on, four times at most; never if a trial does not announce the epochs of a complete training, and never one trial in six.
    Forecast {
        /// The chance that keeps a trial going.
        chance: f64,
    },
    /// `threshold`: ends a trial whose last value is outside the bounds or NaN.
    Threshold {
        /// Smallest value of a trial that continues.
        lower: f64,
        /// Largest value of a trial that continues.
        upper: f64,
        /// The steps at which a trial is judged.
        checks: Checks,
    },
}

/// The steps at which a trial is judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checks {
    /// The first step at which the trial may be pruned.
    pub warmup: u64,
    /// The number of steps between two judgements, at least 1.
    pub interval: u64,
}

impl Pruner {
    /// The way in which the last report of `trial` and the records of the other trials end the trial; `None` if it continues.
    /// `patience` without another pruner compares a trial only with itself, as Keras' `EarlyStopping`: the trial is finished.
    ///
    /// The arguments are those of [`Pruner::prunes`].
    pub fn ends(&self, trial: &TrialRecord, trials: &[TrialRecord], settings: &Settings) -> Option<EarlyEnd> {
        let end =
            if matches!(self, Pruner::Patience { around: None, .. }) { EarlyEnd::Finished } else { EarlyEnd::Pruned };
        self.prunes(trial, trials, settings).then_some(end)
    }

    /// Whether the last report of `trial` and the records of the other trials end the trial.
    ///
    /// `trials` may contain `trial` itself. A trial without a report is never ended.
    pub fn prunes(&self, trial: &TrialRecord, trials: &[TrialRecord], settings: &Settings) -> bool {
        let objective = settings.objective();
        let values = Values::of(trial, objective);
        let Some((last_step, last_value)) = values.0.last().copied() else { return false };
        match self {
            Pruner::Percentile { keep, startup, checks, least } => {
                checks.are_due(&values)
                    && percentile::prunes(*keep, *startup, *least, (&values, last_step), trials, objective)
            }
            Pruner::Wilcoxon { p, startup } => {
                SignedRank { p: *p, startup: *startup, objective }.prunes(&values, trials)
            }
            Pruner::Patience { steps, delta, around } => {
                let agrees = || around.as_ref().is_none_or(|pruner| pruner.prunes(trial, trials, settings));
                has_stalled(*steps, *delta, &values, objective.direction) && agrees()
            }
            Pruner::Forecast { chance } => forecast::prunes(*chance, trial, trials, settings),
            Pruner::Threshold { lower, upper, checks } => {
                checks.are_due(&values) && !(*lower..=*upper).contains(&last_value)
            }
        }
    }
}

impl Checks {
    /// Whether the last report is the first one after a step at which the trial is judged.
    fn are_due(&self, values: &Values) -> bool {
        let Some((last, earlier)) = values.0.split_last().filter(|((step, _), _)| *step >= self.warmup) else {
            return false;
        };
        let due = (last.0 - self.warmup) / self.interval * self.interval + self.warmup;
        earlier.last().is_none_or(|(step, _)| *step < due)
    }
}

/// A trial's values of the objective by step; NaN for a report that is not a number.
struct Values(Vec<(u64, f64)>);

impl Values {
    fn of(trial: &TrialRecord, objective: &Objective) -> Values {
        let reported = |(step, metrics): (&u64, &std::collections::BTreeMap<String, Option<f64>>)| {
            metrics.get(&objective.metric).map(|value| (*step, value.unwrap_or(f64::NAN)))
        };
        Values(trial.metrics.iter().filter_map(reported).collect())
    }

    fn are_finite(&self) -> bool {
        self.0.iter().all(|(_, value)| value.is_finite())
    }
}

/// Whether a trial no longer improves: whether the best of the last `steps + 1` reports is worse by more than `delta` than the best report before them.
fn has_stalled(steps: u64, delta: f64, values: &Values, direction: Direction) -> bool {
    let recent = usize::try_from(steps).unwrap_or(usize::MAX).saturating_add(1);
    let Some(earlier) = values.0.len().checked_sub(recent).filter(|count| *count > 0) else {
        return false;
    };
    let best = |values: &[(u64, f64)]| {
        values.iter().map(|(_, value)| direction.loss(*value)).filter(|loss| !loss.is_nan()).reduce(f64::min)
    };
    match (best(&values.0[..earlier]), best(&values.0[earlier..])) {
        (Some(before), Some(after)) => before + delta < after,
        (Some(_), None) => true,
        (None, _) => false,
    }
}
