//! Tests of trials that a pruner ends, and of a search that a terminator ends.

use crate::harness::{on_disk, run, spec};
use ferrotune_space::event::Finish;
use ferrotune_space::record::State;

#[test]
fn pruned_trial_keeps_its_best_report_as_its_value() {
    let directory = tempfile::tempdir().unwrap();
    let mut spec = spec(directory.path(), "train", 8);
    spec.pruner = Some("median:startup=2,warmup=3".to_owned());
    let done = run(&spec);
    assert_eq!(done.last(), Ok(Finish::MaxTrials), "{:?}", done.events.last());
    let records = on_disk(&spec);
    let pruned: Vec<_> = records.iter().filter(|record| record.state() == State::Pruned).collect();
    assert!(!pruned.is_empty() && records.iter().any(|record| record.state() == State::Finished), "{records:?}");
    for record in pruned {
        assert!((3..26).contains(&record.last_step().unwrap()), "{record:?}");
        assert_eq!(record.value(), record.summary(spec.objective()));
    }
}

#[test]
fn terminated_search_says_that_there_is_nothing_more_to_try() {
    let directory = tempfile::tempdir().unwrap();
    let mut spec = spec(directory.path(), "quick", 100);
    spec.terminator = Some("stagnation:trials=4".to_owned());
    let done = run(&spec);
    assert_eq!(done.last(), Ok(Finish::Exhausted));
    assert!((5..100).contains(&on_disk(&spec).len()));
    spec.terminator = Some("boredom".to_owned());
    assert!(run(&spec).last().unwrap_err().starts_with("`boredom` names no terminator"));
}
