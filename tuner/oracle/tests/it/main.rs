//! Contract tests of the oracles. Starts no worker.

mod belief;
mod evolution;
mod exhaustion;
mod first_trials;
mod forecast;
mod given;
mod hyperband;
mod inferred_space;
mod learning;
mod noise;
mod objectives;
mod oracle;
mod pruner;
mod sampling;
mod schedules;
mod search;
mod settings;
mod side_by_side;
mod simulation;
mod warm_start;

use ferrotune_space::objective::{Direction, Objective};
use ferrotune_space::spec::StudySpec;

/// A search that maximises `accuracy` in ten trials with seed 7.
fn spec(oracle: &str) -> StudySpec {
    let objectives = vec![Objective::new("accuracy", Direction::Max)];
    StudySpec {
        oracle: oracle.to_owned(),
        seed: Some(7),
        library: "objective.so".into(),
        symbol: "objective".to_owned(),
        ..StudySpec::new("digits", objectives)
    }
}
