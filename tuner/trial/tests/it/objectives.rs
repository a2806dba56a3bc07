//! Tests of searches with several objectives and constraints, with real workers.

use crate::harness::{on_disk, run, spec};
use ferrotune_oracle::analysis::ranking;
use ferrotune_space::event::{Event, Finish};
use ferrotune_space::objective::{Constraint, Direction, Objective};
use ferrotune_space::record::State;

#[test]
fn search_for_trade_offs_shows_their_front_and_keeps_to_the_constraint() {
    let directory = tempfile::tempdir().unwrap();
    let mut spec = spec(directory.path(), "trade_off", 8);
    spec.oracle = "nsga2".to_owned();
    spec.objectives = vec![Objective::new("accuracy", Direction::Max), Objective::new("size", Direction::Min)];
    spec.constraints = vec![Constraint { metric: "latency".to_owned(), direction: Direction::Min, bound: 6.0 }];
    let done = run(&spec);
    assert_eq!(done.last(), Ok(Finish::MaxTrials), "{:?}", done.events.last());
    let records = on_disk(&spec);
    assert!(records.iter().all(|record| record.state() == State::Finished && record.values.len() == 2), "{records:?}");
    for record in &records {
        let [accuracy, size] = record.values[..] else { panic!("{record:?}") };
        assert!((accuracy * accuracy - size).abs() < 1e-12, "{record:?}");
    }
    // Every trial is on the Pareto front, except those that break the constraint.
    let front = ranking::best(&records, &spec);
    let kept: Vec<_> = records.iter().filter(|record| record.values[0] <= 0.6).collect();
    assert!(front == kept && kept.len() < 8 && kept.len() > 1, "{front:?}");
    let progress = done.events.iter().rev().find_map(|event| match event {
        Event::Progress(progress) => Some(progress),
        _ => None,
    });
    let progress = progress.expect("progress");
    let shown = progress.front.as_ref().expect("a front");
    assert_eq!((shown.trials, progress.infeasible, &progress.best), (kept.len() as u64, 8 - kept.len() as u64, &None));
    assert!(shown.ranges[0].0 > shown.ranges[0].1 && shown.ranges[1].0 < shown.ranges[1].1, "{shown:?}");
}

#[test]
fn missing_objective_and_wrong_count_of_values_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let error = |project: &str, objectives: &[&str]| {
        let mut spec = spec(directory.path(), "trade_off", 8);
        spec.project = project.to_owned();
        spec.objectives = objectives.iter().map(|metric| Objective::new(*metric, Direction::Max)).collect();
        run(&spec).last().unwrap_err()
    };
    let three = error("three", &["accuracy", "size", "latency"]);
    assert!(three.contains("the objective returned 2 of 3 values; return one for each of accuracy:max, "), "{three}");
    let misnamed = error("misnamed", &["accuracy", "weight"]);
    assert!(misnamed.contains("`size` is not an objective of the search (accuracy, weight)"), "{misnamed}");
}
