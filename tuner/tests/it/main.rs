//! Contracts of the search space, the oracles and the journal. Starts no worker.

mod evolution;
mod hyperband;
mod inferred_space;
mod journal;
mod journal_damage;
mod learning;
mod oracle;
mod pruner;
mod record;
mod schedules;
mod simulation;
mod space;

use ferrotune_tuner::wire::{Direction, Objective, StudySpec, Supervision};

/// A search that maximises `accuracy` in ten trials with seed 7.
fn spec(oracle: &str) -> StudySpec {
    StudySpec {
        project: "digits".to_owned(),
        directory: "studies".into(),
        objective: Objective { metric: "accuracy".to_owned(), direction: Direction::Max },
        also: Vec::new(),
        constraints: Vec::new(),
        pruner: None,
        terminator: None,
        oracle: oracle.to_owned(),
        max_trials: 10,
        seed: Some(7),
        timeout_s: None,
        trial_timeout_s: None,
        memory_budget_bytes: None,
        overwrite: false,
        library: "objective.so".into(),
        symbol: "objective".to_owned(),
        shared: None,
        device: "cpu".to_owned(),
        supervision: Supervision::default(),
    }
}
