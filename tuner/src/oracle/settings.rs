//! What a search was asked for, as far as it bears on what to try next; and what a trial's record means by it.

use super::OracleError;
use super::history::Outcome;
use crate::given::Given;
use crate::record::{Ending, TrialRecord};
use crate::seed;
use crate::space::Value;
use crate::spec::{Constraint, Objective, StudySpec};

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
    /// The parameters that the user has decided about: to an oracle there are no such parameters.
    pub given: Given,
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
        check_objectives(spec)?;
        check_numbers(spec)?;
        let seed = spec.seed.unwrap_or_else(seed::draw);
        let (objectives, constraints) = (spec.objectives.clone(), spec.constraints.clone());
        let given = Given { enqueued: Vec::new(), ..spec.given.clone() };
        Ok(Settings { seed, max_trials: spec.max_trials, objectives, constraints, given })
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
                Some(losses) => {
                    Outcome::Finished { losses, violation: trial.violation(&self.objectives, &self.constraints) }
                }
                None => Outcome::Failed,
            },
            Some(Ending::Pruned) => {
                let loss = trial.summary(self.objective()).map(|value| loss(self.objective(), value));
                Outcome::Pruned { epochs: trial.epochs_done(), loss }
            }
            Some(_) => Outcome::Failed,
        }
    }

    /// The trial's value of each objective, small is good; `None` if one is missing.
    fn losses(&self, trial: &TrialRecord) -> Option<Vec<f64>> {
        let losses = self.objectives.iter().zip(&trial.values).map(|(objective, value)| loss(objective, *value));
        let losses: Vec<f64> = losses.filter(|loss| loss.is_finite()).collect();
        Some(losses).filter(|losses| losses.len() == self.objectives.len())
    }
}

/// Refuses a search that does not say what it is for, or says so twice.
fn check_objectives(spec: &StudySpec) -> Result<(), OracleError> {
    if spec.objectives.is_empty() {
        return Err(OracleError::NoObjective);
    }
    let mut rest = spec.objectives.as_slice();
    while let Some((objective, others)) = rest.split_first() {
        if others.iter().any(|other| other.metric == objective.metric) {
            return Err(OracleError::RepeatedObjective { metric: objective.metric.clone() });
        }
        rest = others;
    }
    Ok(())
}

/// Refuses numbers that no journal can hold.
fn check_numbers(spec: &StudySpec) -> Result<(), OracleError> {
    let given = spec.given.fixed.iter().chain(spec.given.enqueued.iter().flatten());
    let mut given = given.filter(|(_, value)| matches!(value, Value::Float(value) if !value.is_finite()));
    if let Some((name, _)) = given.next() {
        return Err(OracleError::NotFinite { what: format!("the value given for `{name}`") });
    }
    match spec.constraints.iter().find(|constraint| !constraint.bound.is_finite()) {
        Some(constraint) => Err(OracleError::NotFinite { what: format!("the bound of `{}`", constraint.metric) }),
        None => Ok(()),
    }
}

/// The objective's value with the sign that makes small good.
pub(super) fn loss(objective: &Objective, value: f64) -> f64 {
    objective.direction.loss(value)
}
