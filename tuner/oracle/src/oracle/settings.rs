//! The settings of a search that oracles need, and the outcome of a trial's record under these settings.

use super::{OracleError, Source};
use ferrotune_space::given::Given;
use ferrotune_space::objective::{Constraint, Objective};
use ferrotune_space::record::{Ending, TrialRecord};
use ferrotune_space::spec::StudySpec;
use ferrotune_space::{Value, seed};
use std::sync::Arc;

/// The settings of a search that its oracle uses.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Seed of all draws.
    pub seed: u64,
    /// The number of trials that the search may start.
    pub max_trials: u64,
    /// The objectives, at least one.
    pub objectives: Vec<Objective>,
    /// The constraints of a trial.
    pub constraints: Vec<Constraint>,
    /// The user's settings for parameters, whose values the oracle does not choose.
    pub given: Given,
    /// The trials of another study from which samplers learn.
    pub(super) source: Arc<Source>,
}

impl Settings {
    /// The settings of `spec`, with a seed from the operating system if `spec` has none. Fails if the limits allow no
    /// trial.
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
        let source = Arc::new(Source::of(spec));
        Ok(Settings { seed, max_trials: spec.max_trials, objectives, constraints, given, source })
    }

    /// The settings without the trials of another study.
    pub(super) fn without_source(&self) -> Settings {
        Settings { source: Arc::default(), ..self.clone() }
    }

    /// The objective that compares trials before they end.
    pub fn objective(&self) -> &Objective {
        &self.objectives[0]
    }

    /// The loss of a trial that trained to its end and kept the constraints; `None` for any other trial.
    pub(crate) fn final_loss(&self, trial: &TrialRecord) -> Option<f64> {
        self.outcome(trial).kept_loss()
    }

    /// The outcome of a trial for samplers.
    pub(super) fn outcome(&self, trial: &TrialRecord) -> Outcome {
        match &trial.ending {
            None | Some(Ending::Cancelled) => Outcome::Open,
            Some(Ending::OutOfMemory { .. } | Ending::Refused { .. }) => Outcome::OutOfMemory,
            Some(Ending::Finished) => match self.losses(trial) {
                Some(losses) => {
                    let excess = |constraint: &Constraint| constraint.excess(trial, &self.objectives);
                    let excesses = self.constraints.iter().map(excess).collect();
                    Outcome::Finished {
                        losses,
                        violation: trial.violation(&self.objectives, &self.constraints),
                        excesses,
                    }
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

    /// The trial's value of each objective, where small is good; `None` if one is missing.
    fn losses(&self, trial: &TrialRecord) -> Option<Vec<f64>> {
        let losses = self.objectives.iter().zip(&trial.values).map(|(objective, value)| loss(objective, *value));
        let losses: Vec<f64> = losses.filter(|loss| loss.is_finite()).collect();
        Some(losses).filter(|losses| losses.len() == self.objectives.len())
    }
}

/// The outcome of a trial.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Outcome {
    /// The trial trained to its end.
    Finished {
        /// The value of each objective, where small is good; finite.
        losses: Vec<f64>,
        /// The sum of the constraints' violations: 0 if the trial keeps them all.
        violation: f64,
        /// The distance beyond each constraint's bound: at most 0 if the trial keeps it, infinite if it is not known.
        excesses: Vec<f64>,
    },
    /// The trial was pruned.
    Pruned {
        /// The number of epochs that the trial trained.
        epochs: u64,
        /// The summary of the first objective's reports, where small is good.
        loss: Option<f64>,
    },
    /// The trial failed, was killed, timed out, or returned no value.
    Failed,
    /// The trial exceeded its memory limit, or was refused because it would exceed that limit.
    OutOfMemory,
    /// The trial runs, waits or was interrupted.
    Open,
}

impl Outcome {
    /// The loss of a trial that trained to its end and kept the constraints; `None` for any other trial.
    pub(super) fn kept_loss(&self) -> Option<f64> {
        match self {
            Outcome::Finished { losses, violation: 0.0, .. } => losses.first().copied(),
            _ => None,
        }
    }
}

/// Refuses a search without objectives, or with the same objective twice.
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

/// Refuses numbers that a journal cannot store.
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
