//! What a search optimises, and the bounds that a trial has to keep to. Judges no trial.

use serde::{Deserialize, Serialize};

/// A metric that the search optimises.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Objective {
    /// The metric's name, as the objective reports it.
    pub metric: String,
    /// Whether small or large is good.
    pub direction: Direction,
    /// How the reports of several steps become one value.
    #[serde(default)]
    pub summary: Summary,
}

impl Objective {
    /// The best report of a metric.
    pub fn new(metric: impl Into<String>, direction: Direction) -> Objective {
        Objective { metric: metric.into(), direction, summary: Summary::Best }
    }
}

/// How the reports of a trial's steps become one value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Summary {
    /// The best of those that are finite.
    #[default]
    Best,
    /// The last one; no value if it is not finite.
    Last,
    /// Their mean; no value if one of them is not finite.
    Mean,
}

/// Whether an objective is to become small or large.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// Smaller is better.
    Min,
    /// Larger is better.
    Max,
}

/// A bound that the last reported value of a metric must keep to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Constraint {
    /// The metric's name, as the objective reports it.
    pub metric: String,
    /// On which side of the bound it must stay: `Min` keeps it at or below, `Max` at or above.
    pub direction: Direction,
    /// The bound.
    pub bound: f64,
}
