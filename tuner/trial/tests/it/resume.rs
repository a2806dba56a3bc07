//! Tests of resumed searches: a search that is stopped, or dies, continues at the same point.

use crate::harness::{Supervisor, on_disk, run, spec, tagged};
use ferrotune_space::event::{Event, Finish};
use ferrotune_space::record::{Ending, State, TrialRecord};
use ferrotune_space::spec::StudySpec;
use rustix::process::Signal;

#[test]
fn interrupted_trial_goes_on_with_its_number_parameters_and_epochs() {
    let directory = tempfile::tempdir().unwrap();
    let spec = spec(directory.path(), "slow", 2);
    let mut supervisor = Supervisor::start(&spec);
    supervisor.wait_for_step(3);
    supervisor.signal(Signal::INT);
    let done = supervisor.finish();
    assert_eq!(done.last(), Ok(Finish::Interrupted));
    assert_eq!(done.ended()[0].ending, Some(Ending::Cancelled));
    let before = on_disk(&spec);
    assert_eq!(before.len(), 1);
    assert_eq!((&before[0].ending, before[0].state()), (&None, State::Running));
    assert!(before[0].checkpoint.is_some());

    let done = run(&spec);
    assert_eq!(done.last(), Ok(Finish::MaxTrials));
    assert!(matches!(&done.events[0], Event::Opened { earlier_trials: 1, .. }));
    let after = on_disk(&spec);
    assert_eq!(after.len(), 2);
    assert_eq!(after[0].parameters, before[0].parameters);
    // The objective fails if the model does not fit the epoch.
    assert_eq!((after[0].state(), after[0].metrics.len()), (State::Finished, 27));
    assert!(after[0].seconds > before[0].seconds);
}

#[test]
fn second_interrupt_kills_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let mut supervisor = Supervisor::start(&spec(directory.path(), "deaf", 2));
    supervisor.wait_for_step(0);
    supervisor.signal(Signal::INT);
    supervisor.wait_for(|event| matches!(event, Event::Progress(_)));
    supervisor.wait_for(|event| matches!(event, Event::Progress(_)));
    supervisor.signal(Signal::INT);
    let done = supervisor.finish();
    assert_eq!(done.last(), Ok(Finish::Interrupted));
    assert_eq!(done.ended()[0].ending, Some(Ending::Cancelled));
}

#[test]
fn search_that_nobody_listens_to_stops_and_can_go_on() {
    let directory = tempfile::tempdir().unwrap();
    let mut spec = spec(directory.path(), "deaf", 1);
    spec.project = "abandoned".to_owned();
    let mut supervisor = Supervisor::start(&spec);
    supervisor.wait_for_step(0);
    assert!(supervisor.abandon().success());
    assert_eq!(on_disk(&spec)[0].ending, None);
    assert_eq!(tagged("abandoned"), Vec::<String>::new());
}

#[test]
fn trial_of_a_supervisor_that_was_killed_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let mut spec = spec(directory.path(), "slow", 1);
    spec.project = "killed".to_owned();
    let mut supervisor = Supervisor::start(&spec);
    supervisor.wait_for_step(5);
    supervisor.signal(Signal::KILL);
    // The events end only if no process, and above all no worker, still holds the supervisor's output.
    assert!(!supervisor.finish().status.success());
    let before = on_disk(&spec);
    assert_eq!(before[0].ending, None);

    let done = run(&spec);
    assert_eq!(done.last(), Ok(Finish::MaxTrials));
    let after = on_disk(&spec);
    assert_eq!(after.len(), 1);
    assert_eq!(after[0].parameters, before[0].parameters);
    assert_eq!((after[0].state(), after[0].metrics.len()), (State::Finished, 27));
    assert_eq!(tagged("killed"), Vec::<String>::new());
}

#[test]
fn one_interrupt_stops_a_trial_that_does_not_report() {
    let directory = tempfile::tempdir().unwrap();
    let spec = spec(directory.path(), "deaf", 2);
    let mut supervisor = Supervisor::start(&spec);
    supervisor.wait_for_step(0);
    supervisor.signal(Signal::INT);
    let done = supervisor.finish();
    assert_eq!(done.last(), Ok(Finish::Interrupted));
    assert_eq!(done.ended()[0].ending, Some(Ending::Cancelled));
    assert_eq!(on_disk(&spec)[0].ending, None);
}

#[test]
fn value_is_on_disk_before_the_worker_has_left() {
    let directory = tempfile::tempdir().unwrap();
    let mut spec = spec(directory.path(), "lingering", 1);
    spec.trial_timeout_s = Some(5.0);
    let mut supervisor = Supervisor::start(&spec);
    // The worker still runs, and its trial is done.
    supervisor.wait_for(
        |event| matches!(event, Event::Progress(progress) if !progress.running.is_empty() && progress.done == 1),
    );
    supervisor.signal(Signal::KILL);
    assert!(!supervisor.finish().status.success());
    let records = on_disk(&spec);
    assert_eq!(records[0].ending, Some(Ending::Finished));
    assert_eq!(records[0].value(), records[0].metrics[&0]["val_accuracy"]);
    assert_eq!(run(&spec).last(), Ok(Finish::MaxTrials));
    assert_eq!(on_disk(&spec), records);
}

#[test]
fn promoted_trial_of_a_supervisor_that_was_killed_goes_on_first() {
    let directory = tempfile::tempdir().unwrap();
    let mut spec = spec(directory.path(), "slow", 12);
    spec.oracle = "hyperband".to_owned();
    let outcome = |spec: &StudySpec| {
        let facts = on_disk(spec).into_iter().map(|record| (record.metrics, record.values, record.ending));
        facts.collect::<Vec<_>>()
    };
    let mut whole = spec.clone();
    whole.project = "whole".to_owned();
    assert_eq!(run(&whole).last(), Ok(Finish::MaxTrials));

    let killed = |attempt| {
        let mut spec = spec.clone();
        spec.project = format!("killed-{attempt}");
        let mut supervisor = Supervisor::start(&spec);
        // The kill comes between the rungs at 3 and 9, or 9 and 27 epochs.
        supervisor.wait_for_step(4);
        supervisor.signal(Signal::KILL);
        assert!(!supervisor.finish().status.success());
        let is_running = |record: &TrialRecord| record.ending.is_none() && record.paused_at.is_none();
        let running: Vec<TrialRecord> = on_disk(&spec).into_iter().filter(is_running).collect();
        assert!(running.len() <= 1, "{running:?}");
        running.first().map(|record| (spec, record.number))
    };
    // On a busy machine the signal may come as late as at the next rung, where no trial runs.
    let (spec, interrupted) = (0..10).find_map(killed).expect("a supervisor that was killed between two rungs");

    let done = run(&spec);
    assert_eq!(done.last(), Ok(Finish::MaxTrials));
    let first = done.events.iter().find_map(|event| match event {
        Event::TrialStarted { trial, .. } => Some(*trial),
        _ => None,
    });
    assert_eq!(first, Some(interrupted));
    assert_eq!(outcome(&spec), outcome(&whole));
}
