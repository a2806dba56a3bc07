//! The objectives that a search optimises, and the constraints on a trial's metrics. Judges no trial.

use serde::{Deserialize, Serialize};

/// A metric that the search optimises.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Objective {
    /// The metric's name, as the objective reports it.
    pub metric: String,
    /// Whether small or large values are better.
    pub direction: Direction,
    /// How the reports of several steps are combined into one value.
    #[serde(default)]
    pub summary: Summary,
}

impl Objective {
    /// An objective for a metric, with the best report as its value.
    pub fn new(metric: impl Into<String>, direction: Direction) -> Objective {
        Objective { metric: metric.into(), direction, summary: Summary::Best }
    }
}

/// How the reports of a trial's steps are combined into one value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Summary {
    /// The best finite report.
    #[default]
    Best,
    /// The last report; no value if the last report is not finite.
    Last,
    /// The mean of the reports; no value if a report is not finite.
    Mean,
}

/// The direction in which an objective is optimised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// Smaller is better.
    Min,
    /// Larger is better.
    Max,
}

/// A bound on the last reported value of a metric.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Constraint {
    /// The metric's name, as the objective reports it.
    pub metric: String,
    /// The side of the bound that is allowed: `Min` allows values at or below it, `Max` values at or above it.
    pub direction: Direction,
    /// The bound of the metric.
    pub bound: f64,
}
