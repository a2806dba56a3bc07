//! What a search was asked for, as far as it bears on what to try next; and what a trial's record means by it.

use super::OracleError;
use super::history::Outcome;
use crate::record::{Ending, TrialRecord};
use crate::wire::{Constraint, Direction, Objective, StudySpec};

/// The settings of a search that its oracle works by.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Seed of all that is drawn.
    pub seed: u64,
    /// How many trials the search may start.
    pub max_trials: u64,
    /// What to optimise; at least one.
    pub objectives: Vec<Objective>,
    /// What a trial must keep to.
    pub constraints: Vec<Constraint>,
}

impl Settings {
    /// The settings of `spec`, with a seed from the operating system where it has none. Fails for limits that leave
    /// nothing to do.
    pub fn new(spec: &StudySpec) -> Result<Settings, OracleError> {
        if spec.max_trials == 0 {
            return Err(OracleError::NoTrials);
        }
        for (option, limit) in [("--timeout", spec.timeout_s), ("--trial-timeout", spec.trial_timeout_s)] {
            if let Some(seconds) = limit.filter(|seconds| seconds.is_nan() || *seconds <= 0.0) {
                return Err(OracleError::Timeout { option, seconds });
            }
        }
        let objectives = std::iter::once(&spec.objective).chain(&spec.also).cloned().collect();
        let seed = spec.seed.unwrap_or_else(super::draw_seed);
        Ok(Settings { seed, max_trials: spec.max_trials, objectives, constraints: spec.constraints.clone() })
    }

    /// The objective that trials are compared by before they have ended.
    pub fn objective(&self) -> &Objective {
        &self.objectives[0]
    }

    /// What came of a trial, in the samplers' terms.
    pub(super) fn outcome(&self, trial: &TrialRecord) -> Outcome {
        match &trial.ending {
            None | Some(Ending::Cancelled) => Outcome::Open,
            Some(Ending::OutOfMemory { .. } | Ending::Refused { .. }) => Outcome::OutOfMemory,
            Some(Ending::Finished) => match self.losses(trial) {
                Some(losses) => Outcome::Finished { losses, violation: self.violation(trial) },
                None => Outcome::Failed,
            },
            Some(Ending::Pruned) => {
                let loss = trial.best(self.objective()).map(|value| loss(self.objective(), value));
                Outcome::Pruned { epochs: trial.epochs_done(), loss }
            }
            Some(_) => Outcome::Failed,
        }
    }

    /// The trial's value of each objective, small is good; `None` if one is missing.
    fn losses(&self, trial: &TrialRecord) -> Option<Vec<f64>> {
        let first = trial.value.filter(|value| value.is_finite()).map(|value| loss(self.objective(), value));
        let others = self.objectives[1..].iter();
        let others = others.map(|objective| trial.best(objective).map(|value| loss(objective, value)));
        std::iter::once(first).chain(others).collect()
    }

    /// By how much the trial breaks its constraints, all together; infinite where a metric was never reported.
    fn violation(&self, trial: &TrialRecord) -> f64 {
        let excess = |constraint: &Constraint| {
            let Some(value) = last_reported(trial, &constraint.metric) else { return f64::INFINITY };
            match constraint.direction {
                Direction::Min => (value - constraint.bound).max(0.0),
                Direction::Max => (constraint.bound - value).max(0.0),
            }
        };
        self.constraints.iter().map(excess).sum()
    }
}

/// The objective's value with the sign that makes small good.
pub(super) fn loss(objective: &Objective, value: f64) -> f64 {
    match objective.direction {
        Direction::Min => value,
        Direction::Max => -value,
    }
}

fn last_reported(trial: &TrialRecord, metric: &str) -> Option<f64> {
    trial.metrics.values().rev().find_map(|metrics| *metrics.get(metric)?).filter(|value| value.is_finite())
}
