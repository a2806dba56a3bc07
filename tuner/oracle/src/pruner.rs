//! The pruners, which decide that a running trial is not worth its remaining steps. They see only trial records, and
//! end no trial themselves.
//!
//! A pruner is written as `NAME` or `NAME:SETTING=NUMBER,…`, for example `percentile:keep=25,warmup=3`.

mod percentile;
mod signed_rank;
mod text;
mod trend;

pub use text::PrunerError;

use ferrotune_space::objective::Objective;
use ferrotune_space::record::TrialRecord;
use serde::{Deserialize, Serialize};
use signed_rank::SignedRank;

/// One trial in this many trains to its end under a pruner that learns from whole trainings, so that it stays right about them.
pub(crate) const WHOLE: u64 = 6;

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
        /// Per cent of the trials that continue, from 0 to 100.
        keep: f64,
        /// Finished trials before the first one is pruned.
        startup: u64,
        /// The steps at which a trial is judged.
        checks: Checks,
        /// Trials that must have reported at the step.
        least: u64,
    },
    /// `wilcoxon`: ends a trial whose steps are worse than the best trial's by the signed-rank test. Each step must be
    /// the same problem for all trials (a fold, an instance). A trial's value must be the mean of its steps.
    Wilcoxon {
        /// A trial is pruned if the probability of such a difference by chance is lower.
        p: f64,
        /// Steps before a trial is judged, at least 2.
        startup: u64,
        /// For learning curves, whose steps are not alike: trials are pruned only while the test would have pruned the better
        /// trial of at most this share of the pairs of finished trials. One trial in six is never pruned then.
        wrong: Option<f64>,
    },
    /// `patience`: ends a trial that has not improved on itself for so many steps, if another pruner would end it, too,
    /// where there is one: Optuna's `PatientPruner`. Without another one it is Keras' `EarlyStopping`, and the trial is
    /// finished.
    Patience {
        /// Number of reports without an improvement that a trial may have.
        steps: u64,
        /// A smaller improvement does not count.
        delta: f64,
        /// The other pruner.
        around: Option<Box<Pruner>>,
    },
    /// `forecast`: ends a trial that a Gaussian process over the parameters and the epochs gives little chance. It is judged
    /// after a third of a whole training, a third of that, and so on, four times at most; never where a trial does not say
    /// how many epochs a whole training has.
    Forecast {
        /// A trial goes on if the improvement that it promises for each of its epochs that are left is at least this share
        /// of what a new trial promises.
        share: f64,
    },
    /// `threshold`: ends a trial whose last value is outside the bounds or NaN.
    Threshold {
        /// Smallest value of a trial that continues.
        lower: f64,
        /// Largest value of a trial that continues.
        upper: f64,
        /// When in its steps a trial is judged.
        checks: Checks,
    },
}

/// When in its steps a trial is judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checks {
    /// The first step at which it may be pruned.
    pub warmup: u64,
    /// Steps between two judgements, at least 1.
    pub interval: u64,
}

impl Pruner {
    /// How the last report of `trial` and the records of the other trials end it, if they do. `patience` alone compares a
    /// trial with itself only, as Keras' `EarlyStopping`: the trial is finished.
    ///
    /// The arguments are those of [`Pruner::prunes`].
    pub fn ends(
        &self,
        trial: &TrialRecord,
        trials: &[TrialRecord],
        objective: &Objective,
        forecast: impl FnOnce(f64) -> bool,
    ) -> Option<EarlyEnd> {
        let end =
            if matches!(self, Pruner::Patience { around: None, .. }) { EarlyEnd::Finished } else { EarlyEnd::Pruned };
        self.prunes(trial, trials, objective, forecast).then_some(end)
    }

    /// Whether the last report of `trial` and the records of the other trials end it.
    ///
    /// `trials` may contain `trial` itself. A trial without a report is never ended. `forecast` says whether the model of
    /// the search ends it, given the share of [`Pruner::Forecast`].
    pub fn prunes(
        &self,
        trial: &TrialRecord,
        trials: &[TrialRecord],
        objective: &Objective,
        forecast: impl FnOnce(f64) -> bool,
    ) -> bool {
        let values = Values::of(trial, objective);
        let Some((last_step, last_value)) = values.0.last().copied() else { return false };
        match self {
            Pruner::Percentile { keep, startup, checks, least } => {
                checks.are_due(&values)
                    && percentile::prunes(*keep, *startup, *least, (&values, last_step), trials, objective)
            }
            Pruner::Wilcoxon { p, startup, wrong } => {
                let test = SignedRank { p: *p, startup: *startup, objective };
                test.prunes(&values, trials) && wrong.is_none_or(|wrong| test.is_trusted(wrong, trial.number, trials))
            }
            Pruner::Patience { steps, delta, around } => {
                let agrees = || around.as_ref().is_none_or(|pruner| pruner.prunes(trial, trials, objective, forecast));
                trend::has_stalled(*steps, *delta, &values, objective.direction) && agrees()
            }
            Pruner::Forecast { share } => forecast(*share),
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

/// A trial's values of the objective by step, NaN if the report is not a number.
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
