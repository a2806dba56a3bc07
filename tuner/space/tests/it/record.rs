//! Tests of the texts and values that are derived from a trial's record.

use expect_test::{Expect, expect};
use ferrotune_space::objective::{Direction, Objective};
use ferrotune_space::record::{Ending, State, TrialRecord, study_best};
use std::collections::BTreeMap;

fn objective(direction: Direction) -> Objective {
    Objective::new("loss", direction)
}

fn finished(number: u64, value: Option<f64>) -> TrialRecord {
    TrialRecord { values: value.into_iter().collect(), ending: Some(Ending::Finished), ..TrialRecord::new(number) }
}

#[test]
fn endings_read_as_one_line() {
    let check = |ending: Ending, expect: Expect| expect.assert_eq(&ending.to_string());
    check(Ending::Finished, expect!["finished"]);
    check(Ending::Pruned, expect!["pruned"]);
    check(Ending::Failed { reason: "exited with 3".to_owned() }, expect!["exited with 3"]);
    check(
        Ending::Panicked { message: "at the disco\n  cell:3\n".to_owned() },
        expect!["panicked: at the disco cell:3"],
    );
    let (peak_bytes, budget_bytes) = (4_509_715_661, 4 << 30);
    check(
        Ending::OutOfMemory { peak_bytes, budget_bytes },
        expect!["out of memory: 4.2 GiB of 4.0 GiB; raise it with --memory"],
    );
    check(
        Ending::OutOfMemory { peak_bytes: 700 << 20, budget_bytes: 1023 },
        expect!["out of memory: 700.0 MiB of 1023 B; raise it with --memory"],
    );
    check(Ending::Signalled { signal: 11 }, expect!["killed by SIGSEGV"]);
    check(Ending::Signalled { signal: 34 }, expect!["killed by signal 34"]);
    check(Ending::TimedOut { after_s: 60 }, expect!["timed out after 60 s"]);
    check(Ending::Cancelled, expect!["cancelled"]);
}

#[test]
fn state_follows_the_ending() {
    let state = |ending| TrialRecord { ending, ..TrialRecord::new(0) }.state();
    assert_eq!(state(None), State::Running);
    assert_eq!(state(Some(Ending::Finished)), State::Finished);
    assert_eq!(state(Some(Ending::Pruned)), State::Pruned);
    assert_eq!(state(Some(Ending::Cancelled)), State::Failed);
    assert_eq!(state(Some(Ending::TimedOut { after_s: 1 })), State::Failed);
}

#[test]
fn best_report_ignores_missing_values_and_other_metrics() {
    let mut record = TrialRecord::new(0);
    for (step, loss) in [(0, Some(3.0)), (1, None), (2, Some(1.0)), (5, Some(2.0))] {
        record.metrics.insert(step, BTreeMap::from([("loss".to_owned(), loss), ("seen".to_owned(), Some(-9.0))]));
    }
    assert_eq!(record.summary(&objective(Direction::Min)), Some(1.0));
    assert_eq!(record.summary(&objective(Direction::Max)), Some(3.0));
    assert_eq!(record.summary_before(&objective(Direction::Min), 2), Some(3.0));
    assert_eq!(record.last_step(), Some(5));
    assert_eq!(record.epochs_done(), 6);
    assert_eq!(TrialRecord::new(0).summary(&objective(Direction::Min)), None);
}

#[test]
fn best_trial_is_finished_finite_and_the_earliest_of_equals() {
    let pruned = TrialRecord { values: vec![9.0], ending: Some(Ending::Pruned), ..TrialRecord::new(0) };
    let trials = [
        pruned,
        finished(1, Some(f64::INFINITY)),
        finished(2, Some(2.0)),
        finished(3, Some(1.0)),
        finished(4, Some(2.0)),
        finished(5, Some(1.0)),
        finished(6, None),
    ];
    let best = |direction| study_best(&trials, direction).map(|trial| trial.number);
    assert_eq!(best(Direction::Max), Some(2));
    assert_eq!(best(Direction::Min), Some(3));
    assert_eq!(study_best(&[], Direction::Max), None);
}
