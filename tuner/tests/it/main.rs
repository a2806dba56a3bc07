//! Contract tests of searches in the caller's own process. They start no worker.

mod other_writers;

use ferrotune_space::objective::{Direction, Objective};
use ferrotune_space::spec::StudySpec;

/// The spec of a search that maximises `accuracy` in ten trials with seed 7.
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
