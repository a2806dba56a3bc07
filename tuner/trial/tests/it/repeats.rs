//! Tests of trials that begin with the state of other trials, and of trials that run several times.

use crate::harness::{Supervisor, on_disk, run, spec};
use ferrotune_space::event::{Event, Finish};
use ferrotune_space::record::{State, TrialRecord};
use ferrotune_space::spec::StudySpec;
use rustix::process::Signal;
use std::path::Path;

/// The specification of a population of twelve trials, and of the three copies after its first generation, with two epochs each.
fn population(directory: &Path, project: &str, concurrency: u64) -> StudySpec {
    let mut spec = spec(directory, "population", 15);
    (spec.oracle, spec.project, spec.supervision.concurrency) = ("pbt".to_owned(), project.to_owned(), concurrency);
    spec
}

/// Checks that every copy has its parent's weights, and continues at its parent's epoch.
fn check_copies(records: &[TrialRecord]) {
    assert_eq!(records.len(), 15);
    assert!(records[..12].iter().all(|record| record.parent.is_none()));
    for copy in &records[12..] {
        let parent = copy.parent.expect("a parent");
        let (first_step, metrics) = copy.metrics.iter().next().expect("a report");
        assert_eq!((*first_step, metrics["origin"]), (2, Some(parent as f64)), "{copy:?}");
        assert!(parent < 12 && copy.state() == State::Finished, "{copy:?}");
        assert_eq!(copy.epochs_done(), 20);
        assert_ne!(copy.parameters["x"], records[parent as usize].parameters["x"]);
    }
}

#[test]
fn copies_of_a_population_go_on_with_their_parents_weights() {
    let directory = tempfile::tempdir().unwrap();
    for concurrency in [1, 4] {
        let spec = population(directory.path(), &format!("population-{concurrency}"), concurrency);
        let done = run(&spec);
        assert_eq!(done.last(), Ok(Finish::MaxTrials), "{:?}", done.ended());
        check_copies(&on_disk(&spec));
    }
}

#[test]
fn copies_go_on_with_their_parents_weights_though_their_supervisor_was_killed() {
    let directory = tempfile::tempdir().unwrap();
    let spec = population(directory.path(), "killed-population", 1);
    for trial in [12, 13] {
        let mut supervisor = Supervisor::start(&spec);
        supervisor.wait_for(|event| matches!(event, Event::TrialStarted { trial: started, .. } if *started == trial));
        supervisor.signal(Signal::KILL);
        assert!(!supervisor.finish().status.success());
    }
    assert_eq!(run(&spec).last(), Ok(Finish::MaxTrials));
    check_copies(&on_disk(&spec));
}

#[test]
fn trial_of_several_executions_has_their_mean_and_their_spread() {
    let directory = tempfile::tempdir().unwrap();
    let mut spec = spec(directory.path(), "executions", 2);
    spec.executions = 3;
    let done = run(&spec);
    assert_eq!(done.last(), Ok(Finish::MaxTrials), "{:?}", done.ended());
    assert_eq!(done.ended().len(), 2);
    for record in on_disk(&spec) {
        let ferrotune_space::Value::Float(x) = record.parameters["x"].value else { panic!("{record:?}") };
        assert_eq!(record.executions, [[x], [x + 1.0], [x + 2.0]]);
        assert!((record.values[0] - x - 1.0).abs() < 1e-12 && (record.spreads()[0] - 1.0).abs() < 1e-12, "{record:?}");
        // The reports are from the last execution.
        assert!(record.metrics.len() == 5 && record.metrics[&0]["val_accuracy"] == Some(x + 2.0), "{record:?}");
    }
    // Each execution reports its seed.
    let mut seeds: Vec<_> = on_disk(&spec).iter().filter_map(|record| record.metrics[&0]["seed"]).collect();
    seeds.sort_by(f64::total_cmp);
    seeds.dedup();
    assert!(seeds.len() == 2, "the last executions of two trials: {seeds:?}");
}

#[test]
fn executions_that_are_over_are_not_run_again() {
    let directory = tempfile::tempdir().unwrap();
    let mut spec = spec(directory.path(), "executions", 1);
    (spec.executions, spec.project) = (3, "killed-executions".to_owned());
    let mut supervisor = Supervisor::start(&spec);
    // The second worker belongs to the second execution.
    for _ in 0..2 {
        supervisor.wait_for(|event| matches!(event, Event::TrialStarted { .. }));
    }
    supervisor.signal(Signal::KILL);
    assert!(!supervisor.finish().status.success());
    let before = on_disk(&spec).remove(0);
    assert_eq!((before.executions.len(), &before.ending), (1, &None));
    assert_eq!(run(&spec).last(), Ok(Finish::MaxTrials));
    let after = on_disk(&spec).remove(0);
    assert_eq!((after.executions.len(), &after.executions[0]), (3, &before.executions[0]));
    let journal = std::fs::read_to_string(directory.path().join("killed-executions/journal.log")).unwrap();
    assert_eq!(journal.matches("ferrotune:executed\"").count(), 2);
}
