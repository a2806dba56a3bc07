//! Tests of whole searches: their results, their limits, and the user's mistakes that they report.

use crate::harness::{Supervisor, on_disk, run, spec, tagged};
use ferrotune_space::Value;
use ferrotune_space::event::{Event, Finish};
use ferrotune_space::record::{Ending, State, TrialRecord};

#[test]
fn search_ends_with_its_trials_done_and_reported_on_the_way() {
    let directory = tempfile::tempdir().unwrap();
    let spec = spec(directory.path(), "quick", 5);
    let done = run(&spec);
    assert!(done.status.success());
    assert_eq!(done.last(), Ok(Finish::MaxTrials));
    assert!(matches!(&done.events[0], Event::Opened { earlier_trials: 0, folder } if folder.ends_with("quick")));
    let records = on_disk(&spec);
    assert_eq!(records.len(), 5);
    assert!(records.iter().all(|record| record.value().is_some() && record.seconds > 0.0));
    let best = records.iter().max_by(|a, b| a.value().partial_cmp(&b.value()).unwrap()).unwrap();
    let progress = done.events.iter().rev().find_map(|event| match event {
        Event::Progress(progress) => Some(progress),
        _ => None,
    });
    let progress = progress.unwrap();
    assert_eq!((progress.done, progress.failed, progress.max_trials), (5, 0, 5));
    assert_eq!(progress.best, Some(best.without_reports()));
    // The second run finds nothing left to do.
    let again = run(&spec);
    assert_eq!(again.last(), Ok(Finish::MaxTrials));
    assert_eq!(again.ended().len(), 0);
}

#[test]
fn hyperband_pauses_promotes_and_prunes_with_checkpoints() {
    let directory = tempfile::tempdir().unwrap();
    let mut spec = spec(directory.path(), "train", 12);
    spec.oracle = "hyperband".to_owned();
    let done = run(&spec);
    assert_eq!(done.last(), Ok(Finish::MaxTrials), "{:?}", done.events.last());
    let records = on_disk(&spec);
    let count = |state| records.iter().filter(|record| record.state() == state).count();
    assert_eq!((count(State::Failed), count(State::Running)), (0, 0), "{records:?}");
    assert!(count(State::Pruned) >= 6 && count(State::Finished) >= 1, "{records:?}");
    for record in &records {
        let steps: Vec<u64> = record.metrics.keys().copied().collect();
        // The steps are all epochs, once and in order, however many workers they took. Otherwise the objective fails.
        assert_eq!(steps, (0..steps.len() as u64).collect::<Vec<_>>());
        assert_eq!(record.state() == State::Finished, steps.len() == 27);
    }
    let starts = done.events.iter().filter(|event| matches!(event, Event::TrialStarted { .. })).count();
    assert!(starts > 12, "{starts} workers for 12 trials");
}

#[test]
fn metric_that_is_never_reported_ends_the_search_after_the_first_trial() {
    let directory = tempfile::tempdir().unwrap();
    let done = run(&spec(directory.path(), "misnamed", 10));
    assert_eq!(done.ended().len(), 1);
    let message = done.last().unwrap_err();
    let expected = "the objective 'val_accuracy' was never reported; trial.report gave: acc, loss; \
                    name a reported metric with --objective";
    assert_eq!(message, expected);
}

#[test]
fn empty_search_space_ends_the_search_after_the_first_trial() {
    let directory = tempfile::tempdir().unwrap();
    let done = run(&spec(directory.path(), "empty", 10));
    assert_eq!(done.ended().len(), 1);
    assert!(done.last().unwrap_err().starts_with("the search space is empty: "));
}

#[test]
fn parameter_with_two_ranges_is_refused_with_both() {
    let directory = tempfile::tempdir().unwrap();
    let done = run(&spec(directory.path(), "inconsistent", 1));
    let (first, second) = (line_of("0.1..=1.0"), line_of("0.1..=2.0"));
    let reason = format!(
        "{second}: trial 0 asks for `lr` as a float 0.1..=2.0 after a float 0.1..=1.0 at {first}; \
         give every parameter one range"
    );
    assert_eq!(done.ended()[0].ending, Some(Ending::Failed { reason }));
}

/// The position in the example's source at which a text first occurs.
fn line_of(text: &str) -> String {
    const FILE: &str = "tuner/trial/examples/objective/main.rs";
    let source = include_str!("../../examples/objective/main.rs");
    let line = source.lines().position(|line| line.contains(text)).unwrap();
    format!("{FILE}:{}", line + 1)
}

#[test]
fn parameter_that_changes_its_kind_fails_its_trial_with_both_places_and_ends_a_later_search_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let done = run(&spec(directory.path(), "fickle", 2));
    let (float, int) = (line_of("\"depth\", 0.1"), line_of("\"depth\", 1..=9"));
    let reason = format!(
        "{int}: `depth` is an int 1..=9 here and a float 0.1..=0.9 in trial 0 at {float}; \
         use another name, another --project or --overwrite"
    );
    assert_eq!(done.ended()[1].ending, Some(Ending::Failed { reason: reason.clone() }));
    let directory = tempfile::tempdir().unwrap();
    assert_eq!(run(&spec(directory.path(), "fickle", 1)).last(), Ok(Finish::MaxTrials));
    let done = run(&spec(directory.path(), "fickle", 40));
    assert_eq!(done.last(), Err(reason));
    assert_eq!((done.ended().len(), on_disk(&spec(directory.path(), "fickle", 40)).len()), (0, 2));
}

#[test]
fn impossible_range_is_refused_with_its_place() {
    let directory = tempfile::tempdir().unwrap();
    let done = run(&spec(directory.path(), "impossible", 1));
    let reason = format!("parameter units has step 0; give a step of at least 1 ({})", line_of("\"units\", 9..=9"));
    assert_eq!(done.ended()[0].ending, Some(Ending::Failed { reason }));
}

#[test]
fn range_beyond_what_a_study_records_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let done = run(&spec(directory.path(), "huge", 1));
    let reason = done.ended()[0].ending.as_ref().map_or_else(String::new, ToString::to_string);
    let expected =
        "`units` has the number 18446744073709551615, but whole numbers of a parameter reach up to 9223372036854775807";
    assert!(reason.contains(expected), "{reason}");
}

#[test]
fn parameter_with_a_condition_is_asked_for_only_where_it_holds() {
    let directory = tempfile::tempdir().unwrap();
    let spec = spec(directory.path(), "conditional", 12);
    // The space has only four combinations: adam, and sgd with two values of momentum, one of them with two of nesterov.
    assert_eq!(run(&spec).last(), Ok(Finish::Exhausted));
    let trials = on_disk(&spec);
    assert_eq!(trials.len(), 4, "{trials:?}");
    let mut seen = [0, 0];
    for trial in trials {
        let is_sgd = trial.parameters["optimiser"].value == Value::Text("sgd".to_owned());
        assert_eq!(trial.parameters.contains_key("momentum"), is_sgd, "{trial:?}");
        let is_fast = trial.parameters.get("momentum").is_some_and(|known| known.value == Value::Float(0.5));
        assert_eq!(trial.parameters.contains_key("nesterov"), is_fast, "{trial:?}");
        // The trial's value is the objective's momentum, or its default.
        assert!(is_sgd || trial.values == [0.9], "{trial:?}");
        seen[usize::from(is_sgd)] += 1;
    }
    assert!(seen.iter().all(|count| *count > 0), "{seen:?}");
}

#[test]
fn condition_that_can_never_hold_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let reasons = |scenario: &str| match run(&spec(directory.path(), scenario, 1)).ended()[0].ending.clone() {
        // The line of the cell is at the end of the reason.
        Some(Ending::Failed { reason }) => reason.rsplit_once(" (").map(|(reason, _)| reason.to_owned()),
        _ => None,
    };
    let failed = |reason: &str| Some(reason.to_owned());
    let orphan = "`momentum` depends on `optimiser`, which this trial has not asked for; ask for `optimiser` first";
    assert_eq!(reasons("orphan"), failed(orphan));
    let misspelt =
        "`momentum` depends on `optimiser` being sdg, but `optimiser` is a choice of adam, sgd; name one of its values";
    assert_eq!(reasons("misspelt"), failed(misspelt));
}

#[test]
fn no_trials_and_a_library_that_is_not_there_are_errors_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let none = run(&spec(directory.path(), "quick", 0));
    assert_eq!(none.last(), Err("--max-trials is 0; give at least 1".to_owned()));
    let mut spec = spec(directory.path(), "quick", 1);
    spec.library = "/nowhere/objective.so".into();
    let message = run(&spec).last().unwrap_err();
    assert!(message.starts_with("cannot read the objective /nowhere/objective.so: "), "{message}");
}

#[test]
fn supervisor_is_as_small_after_fifty_trials_as_after_ten() {
    let directory = tempfile::tempdir().unwrap();
    let mut supervisor = Supervisor::start(&spec(directory.path(), "quick", 50));
    let mut sizes = Vec::new();
    for _ in 0..50 {
        supervisor.wait_for(|event| matches!(event, Event::TrialEnded { .. }));
        supervisor.wait_for(|event| matches!(event, Event::Progress(_)));
        if let Some(Event::Progress(progress)) = supervisor.seen.last() {
            sizes.push(progress.supervisor_bytes);
        }
    }
    assert_eq!(supervisor.finish().last(), Ok(Finish::MaxTrials));
    // The records themselves grow by less than a page a trial.
    let (early, late) = (sizes[9], sizes[49]);
    assert!(late < early + 40 * 4096, "{early} bytes after 10 trials, {late} after 50");
}

#[test]
fn search_time_stops_the_trial_and_leaves_it_to_go_on() {
    let directory = tempfile::tempdir().unwrap();
    let mut spec = spec(directory.path(), "slow", 100);
    spec.timeout_s = Some(0.15);
    let done = run(&spec);
    assert_eq!(done.last(), Ok(Finish::Timeout));
    assert_eq!(done.ended().last().unwrap().ending, Some(Ending::Cancelled));
    assert_eq!(on_disk(&spec).last().unwrap().ending, None);
}

#[test]
fn trial_that_does_not_hear_the_end_of_the_search_is_killed() {
    let directory = tempfile::tempdir().unwrap();
    let mut spec = spec(directory.path(), "deaf", 100);
    spec.timeout_s = Some(0.1);
    let done = run(&spec);
    assert_eq!(done.last(), Ok(Finish::Timeout));
    assert_eq!(done.ended().last().unwrap().ending, Some(Ending::Cancelled));
}

#[test]
fn steps_counted_from_1_are_refused_where_trials_are_paused() {
    let directory = tempfile::tempdir().unwrap();
    let mut spec = spec(directory.path(), "one_based", 12);
    spec.oracle = "hyperband".to_owned();
    let done = run(&spec);
    let message = done.last().unwrap_err();
    let reason = "steps are epochs counted from 0: report(1) but this trial's epochs end at 0";
    assert!(message.contains(reason), "{message}");
    spec.project = "one_based_random".to_owned();
    (spec.oracle, spec.max_trials) = ("random".to_owned(), 2);
    assert_eq!(run(&spec).last(), Ok(Finish::MaxTrials));
}

#[test]
fn trials_run_side_by_side_and_share_the_cores() {
    let directory = tempfile::tempdir().unwrap();
    let mut spec = spec(directory.path(), "slow", 6);
    spec.supervision.concurrency = 3;
    let done = run(&spec);
    assert_eq!(done.last(), Ok(Finish::MaxTrials));
    let side_by_side = done.events.iter().filter_map(|event| match event {
        Event::Progress(progress) => Some(progress.running.len()),
        _ => None,
    });
    assert_eq!(side_by_side.max(), Some(3));
    let records = on_disk(&spec);
    assert_eq!(records.len(), 6);
    // The objective fails if it does not see its epochs once and in order.
    assert!(records.iter().all(|record| record.state() == State::Finished), "{records:?}");
    assert_eq!(tagged("slow"), Vec::<String>::new());
}

#[test]
fn hyperband_side_by_side_comes_to_the_same_trials() {
    let directory = tempfile::tempdir().unwrap();
    let mut spec = spec(directory.path(), "train", 12);
    spec.oracle = "hyperband".to_owned();
    spec.supervision.concurrency = 4;
    assert_eq!(run(&spec).last(), Ok(Finish::MaxTrials));
    let side_by_side = on_disk(&spec);
    spec.project = "alone".to_owned();
    spec.supervision.concurrency = 1;
    assert_eq!(run(&spec).last(), Ok(Finish::MaxTrials));
    let facts = |records: Vec<TrialRecord>| {
        records.into_iter().map(|record| (record.metrics, record.values, record.ending)).collect::<Vec<_>>()
    };
    assert_eq!(facts(side_by_side), facts(on_disk(&spec)));
}

#[test]
fn trial_ends_the_search_and_its_remarks_are_in_the_journal() {
    let directory = tempfile::tempdir().unwrap();
    let spec = spec(directory.path(), "stops", 6);
    assert_eq!(run(&spec).last(), Ok(Finish::Stopped));
    let trials = on_disk(&spec);
    assert_eq!(trials.len(), 3);
    for trial in &trials {
        assert_eq!(trial.ending, Some(Ending::Finished));
        assert_eq!(trial.user_attributes["half"].as_f64(), Some(trial.values[0] / 2.0));
    }
    assert_eq!(trials[2].user_attributes["note"], "good enough");
    // The search continues when it is started again.
    assert_eq!(run(&spec).last(), Ok(Finish::MaxTrials));
    assert_eq!(on_disk(&spec).len(), 6);
}
