//! Values from a trial's reports and executions, the violation of constraints, and the best trial.

use super::{State, TrialRecord};
use crate::objective::{Constraint, Direction, Objective, Summary};
use std::fmt;

impl TrialRecord {
    /// The standard deviation of each objective's value over the executions; empty for fewer than two.
    pub fn spreads(&self) -> Vec<f64> {
        let count = self.executions.len() as f64;
        let spread = |index: usize, mean: f64| {
            let squares =
                self.executions.iter().filter_map(|values| values.get(index)).map(|value| (value - mean).powi(2));
            (squares.sum::<f64>() / (count - 1.0)).sqrt()
        };
        if self.executions.len() < 2 {
            return Vec::new();
        }
        mean(&self.executions).into_iter().enumerate().map(|(index, mean)| spread(index, mean)).collect()
    }

    /// An objective's value from the reports of all steps.
    pub fn summary(&self, objective: &Objective) -> Option<f64> {
        self.summary_before(objective, u64::MAX)
    }

    /// An objective's value from the reports of the steps before `stop`.
    pub fn summary_before(&self, objective: &Objective, stop: u64) -> Option<f64> {
        let reported = self.metrics.range(..stop).filter_map(|(_, metrics)| metrics.get(&objective.metric));
        let mut finite = reported.map(|value| value.filter(|value| value.is_finite()));
        match objective.summary {
            Summary::Best => finite.flatten().reduce(|best, value| objective.direction.better(best, value)),
            Summary::Last => finite.next_back().flatten(),
            Summary::Mean => {
                let values: Vec<f64> = finite.collect::<Option<_>>()?;
                let mean = values.iter().sum::<f64>() / values.len() as f64;
                Some(mean).filter(|mean| mean.is_finite())
            }
        }
    }

    /// The metric's last finite report.
    pub fn last_reported(&self, metric: &str) -> Option<f64> {
        let mut reported = self.metrics.values().rev().filter_map(|metrics| *metrics.get(metric)?);
        reported.find(|value| value.is_finite())
    }

    /// The sum of the trial's excesses over the constraints: 0 if the trial keeps all of them.
    pub fn violation(&self, objectives: &[Objective], constraints: &[Constraint]) -> f64 {
        constraints.iter().map(|constraint| constraint.excess(self, objectives).max(0.0)).sum()
    }
}

impl Constraint {
    /// The distance of a trial's metric beyond the bound: at most 0 if the trial keeps the constraint, infinite if the metric has no
    /// value. The metric's value is its last report, or the value of the objective of the same name.
    pub fn excess(&self, trial: &TrialRecord, objectives: &[Objective]) -> f64 {
        self.excess_of(trial, &trial.values, objectives)
    }

    /// The distance beyond the bound of a trial that is about to end with these values.
    pub fn excess_of(&self, trial: &TrialRecord, values: &[f64], objectives: &[Objective]) -> f64 {
        let values = objectives.iter().zip(values);
        let returned = || values.into_iter().find(|(objective, _)| objective.metric == self.metric);
        let value = trial.last_reported(&self.metric).or_else(|| returned().map(|(_, value)| *value));
        value.map_or(f64::INFINITY, |value| match self.direction {
            Direction::Min => value - self.bound,
            Direction::Max => self.bound - value,
        })
    }
}

impl fmt::Display for Constraint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.direction == Direction::Min { "<=" } else { ">=" };
        write!(formatter, "{}{sign}{}", self.metric, self.bound)
    }
}

impl fmt::Display for Objective {
    /// Writes the objective in the form of `--objective`: `loss:min`, `loss:min:last`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let direction = if self.direction == Direction::Min { "min" } else { "max" };
        let summary = match self.summary {
            Summary::Best => "",
            Summary::Last => ":last",
            Summary::Mean => ":mean",
        };
        write!(formatter, "{}:{direction}{summary}", self.metric)
    }
}

impl Direction {
    /// The loss of a value, where small is better. Applied to a loss, this gives the value.
    pub fn loss(self, value: f64) -> f64 {
        match self {
            Direction::Min => value,
            Direction::Max => -value,
        }
    }

    /// Whether `value` is strictly better than `other`.
    pub fn prefers(self, value: f64, other: f64) -> bool {
        match self {
            Direction::Min => value < other,
            Direction::Max => value > other,
        }
    }

    /// The better of two values; the first if they are equal.
    fn better(self, first: f64, second: f64) -> f64 {
        if self.prefers(second, first) { second } else { first }
    }
}

/// The mean of the values of several executions, for each objective.
pub fn mean(executions: &[Vec<f64>]) -> Vec<f64> {
    let objectives = executions.iter().map(Vec::len).min().unwrap_or_default();
    let sum = |index| executions.iter().map(|values| values[index]).sum::<f64>();
    (0..objectives).map(|index| sum(index) / executions.len() as f64).collect()
}

/// The finished trial with the best finite value of the first objective; of equal trials, the earlier one.
pub fn study_best(trials: &[TrialRecord], direction: Direction) -> Option<&TrialRecord> {
    let valued = trials.iter().filter(|trial| trial.state() == State::Finished);
    let valued = valued.filter_map(|trial| trial.value().filter(|value| value.is_finite()).map(|value| (trial, value)));
    let best = valued.reduce(|best, next| if direction.prefers(next.1, best.1) { next } else { best });
    best.map(|(trial, _)| trial)
}
