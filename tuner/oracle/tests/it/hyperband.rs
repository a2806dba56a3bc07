//! Tests of Hyperband with simulated trainings: brackets, promotion, failures and the search's limit.

use crate::spec;
use ferrotune_oracle::{Next, create};
use ferrotune_space::objective::{Direction, Objective};
use ferrotune_space::record::{Ending, TrialRecord};
use ferrotune_space::spec::StudySpec;
use std::collections::BTreeMap;

/// A simulated objective: trains a trial from one epoch up to another.
pub(crate) type Training = dyn Fn(&mut TrialRecord, u64, u64);

fn hyperband(max_trials: u64) -> StudySpec {
    StudySpec { max_trials, ..spec("hyperband") }
}

pub(crate) fn report(record: &mut TrialRecord, step: u64, value: f64) {
    record.metrics.insert(step, BTreeMap::from([("accuracy".to_owned(), Some(value))]));
}

/// An accuracy that depends on the trial alone: (number * 7) mod 101, so that the order of quality differs from that of the numbers.
pub(crate) fn merit(number: u64) -> f64 {
    (number * 7 % 101) as f64
}

pub(crate) fn steady(record: &mut TrialRecord, start: u64, stop: u64) {
    for step in start..stop {
        report(record, step, merit(record.number));
    }
}

/// Runs a search of the oracle to its end. A new oracle answers every question, as after a restart.
pub(crate) fn search(spec: &StudySpec, total: u64, training: &Training) -> (Vec<TrialRecord>, Vec<Next>) {
    let (mut trials, mut decisions): (Vec<TrialRecord>, Vec<Next>) = (Vec::new(), Vec::new());
    loop {
        let mut oracle = create(spec).expect("a valid search");
        let next = oracle.next(&trials, &[]);
        decisions.push(next);
        let number = match next {
            Next::New => {
                trials.push(TrialRecord::new(trials.len() as u64));
                let number = trials.len() - 1;
                trials[number].parent = oracle.parent(number as u64, &trials);
                number
            }
            Next::Continue { trial } => trial as usize,
            Next::Prune { trial } => {
                trials[trial as usize].ending = Some(Ending::Pruned);
                continue;
            }
            Next::Wait | Next::Exhausted => return (trials, decisions),
        };
        assert_eq!(trials[number].ending, None);
        let stop = oracle.epochs(number as u64, total, &trials);
        let record = &mut trials[number];
        assert!(stop > record.epochs_done(), "trial {number} was named but may not train beyond {stop}");
        record.epochs = Some(total);
        let start = record.epochs_done();
        training(record, start, stop);
        if record.ending.is_none() && stop == total {
            record.ending = Some(Ending::Finished);
            record.values = vec![merit(record.number)];
        } else if record.ending.is_none() {
            record.paused_at = Some(stop);
        }
        assert!(decisions.len() < 10_000, "the search does not end");
    }
}

/// The number of trials of a range for each number of trained epochs.
pub(crate) fn epochs_trained(trials: &[TrialRecord]) -> BTreeMap<u64, usize> {
    let mut counts = BTreeMap::new();
    for trial in trials {
        *counts.entry(trial.epochs_done()).or_default() += 1;
    }
    counts
}

#[test]
fn brackets_run_as_in_the_paper() {
    let (trials, decisions) = search(&hyperband(81 + 34 + 15 + 8 + 5), 81, &steady);
    let brackets = [
        (0..81, vec![(1, 54), (3, 18), (9, 6), (27, 2), (81, 1)]),
        (81..115, vec![(3, 23), (9, 8), (27, 2), (81, 1)]),
        (115..130, vec![(9, 10), (27, 4), (81, 1)]),
        (130..138, vec![(27, 6), (81, 2)]),
        (138..143, vec![(81, 5)]),
    ];
    for (members, epochs) in brackets {
        assert_eq!(epochs_trained(&trials[members]), BTreeMap::from_iter(epochs));
    }
    assert!(trials.iter().all(|trial| trial.ending.is_some()));
    // No trial of the second bracket starts before the first bracket has its best trial.
    let second = decisions.iter().enumerate().filter(|(_, next)| **next == Next::New).nth(81).map(|(index, _)| index);
    let promotions = decisions[..second.expect("a second bracket")]
        .iter()
        .filter(|next| matches!(next, Next::Continue { .. }))
        .count();
    assert_eq!(promotions, 27 + 9 + 3 + 1);
}

#[test]
fn the_best_of_a_bracket_trains_to_the_end() {
    let (trials, _) = search(&hyperband(81), 81, &steady);
    let best = trials.iter().max_by(|a, b| merit(a.number).total_cmp(&merit(b.number))).expect("81 trials");
    assert_eq!(best.ending, Some(Ending::Finished));
    let mut spec = hyperband(81);
    spec.objectives = vec![Objective::new("accuracy", Direction::Min)];
    let (trials, _) = search(&spec, 81, &steady);
    assert_eq!(trials[0].ending, Some(Ending::Finished), "trial 0 has merit 0");
}

#[test]
fn a_rung_counts_only_what_was_reported_up_to_it() {
    // The first trial is best until epoch 1, then bad; the second is bad first and would be best later.
    let turning = |record: &mut TrialRecord, start: u64, stop: u64| {
        for step in start..stop {
            let value = match (record.number, step) {
                (0, 0) => 50.0,
                (1, 1..) => 99.0,
                (number, _) => 1.0 + number as f64,
            };
            report(record, step, value);
        }
    };
    let (trials, _) = search(&hyperband(3), 3, &turning);
    assert_eq!(trials.iter().map(TrialRecord::epochs_done).collect::<Vec<_>>(), [3, 1, 1]);
}

#[test]
fn failed_trials_leave_the_bracket_without_stalling_it() {
    let failing = |record: &mut TrialRecord, start: u64, stop: u64| {
        if record.number.is_multiple_of(2) {
            record.ending = Some(Ending::Signalled { signal: 9 });
        } else {
            steady(record, start, stop);
        }
    };
    let (trials, _) = search(&hyperband(9), 9, &failing);
    assert_eq!(epochs_trained(&trials), BTreeMap::from([(0, 5), (1, 1), (3, 2), (9, 1)]));
    let all_fail = |record: &mut TrialRecord, _, _| record.ending = Some(Ending::Cancelled);
    let (trials, _) = search(&hyperband(20), 9, &all_fail);
    assert_eq!(trials.len(), 20);
    let late = |record: &mut TrialRecord, start: u64, stop: u64| {
        steady(record, start, stop);
        if stop > 1 {
            record.ending = Some(Ending::TimedOut { after_s: 1 });
        }
    };
    let (trials, decisions) = search(&hyperband(9), 9, &late);
    assert!(trials.iter().all(|trial| trial.ending.is_some()));
    assert_eq!(decisions.last(), Some(&Next::Exhausted));
}

#[test]
fn a_bracket_cut_short_still_trains_one_trial_to_the_end() {
    for max_trials in 1..=30 {
        let (trials, _) = search(&hyperband(max_trials), 27, &steady);
        assert_eq!(trials.len() as u64, max_trials);
        assert!(trials.iter().all(|trial| trial.ending.is_some()));
        assert!(trials.iter().any(|trial| trial.epochs_done() == 27), "{max_trials} trials");
    }
}

#[test]
fn brackets_begin_anew_when_all_have_run() {
    let once = 9 + 5 + 3;
    let (trials, _) = search(&hyperband(2 * once), 9, &steady);
    let (first, second) = trials.split_at(once as usize);
    assert_eq!(epochs_trained(first), epochs_trained(second));
}

#[test]
fn a_longer_search_goes_on_where_a_shorter_one_ended() {
    let (mut trials, _) = search(&hyperband(12), 9, &steady);
    let mut oracle = create(&hyperband(20)).expect("a valid search");
    assert_eq!(oracle.next(&trials, &[]), Next::New);
    trials.push(TrialRecord::new(12));
    // Trial 12 is the fourth of the second bracket, which begins with 3 epochs.
    assert_eq!(oracle.epochs(12, 9, &trials), 3);
}

#[test]
fn an_objective_without_epochs_is_searched_at_random() {
    let mut oracle = create(&hyperband(20)).expect("a valid search");
    let mut trials = Vec::new();
    while oracle.next(&trials, &[]) == Next::New {
        let number = trials.len() as u64;
        trials.push(TrialRecord { ending: Some(Ending::Finished), values: vec![1.0], ..TrialRecord::new(number) });
    }
    assert_eq!((trials.len(), oracle.next(&trials, &[])), (20, Next::Exhausted));
}

#[test]
fn trials_that_report_nothing_at_a_rung_come_last_but_do_not_stall() {
    let silent = |record: &mut TrialRecord, start: u64, stop: u64| {
        if record.number == 4 {
            steady(record, start, stop);
        }
    };
    let (trials, _) = search(&hyperband(9), 9, &silent);
    assert_eq!(trials[4].ending, Some(Ending::Finished));
    assert_eq!(trials.iter().filter(|trial| trial.ending == Some(Ending::Pruned)).count(), 8);
}

#[test]
fn a_trial_interrupted_between_rungs_may_train_to_the_same_rung() {
    let (mut trials, _) = search(&hyperband(9), 9, &steady);
    let winner = trials.iter().position(|trial| trial.epochs_done() == 9).expect("one winner");
    let record = &mut trials[winner];
    record.metrics.retain(|step, _| *step < 5);
    (record.ending, record.values, record.paused_at) = (None, Vec::new(), Some(3));
    let mut oracle = create(&hyperband(9)).expect("a valid search");
    assert_eq!(oracle.next(&trials, &[]), Next::Continue { trial: winner as u64 });
    assert_eq!(oracle.epochs(winner as u64, 9, &trials), 9);
}

#[test]
fn enormous_trainings_are_planned_without_overflow() {
    let mut oracle = create(&hyperband(u64::MAX)).expect("a valid search");
    assert!(oracle.epochs(0, u64::MAX, &[]) > 0);
    assert_eq!(oracle.next(&[], &[]), Next::New);
    assert_eq!(create(&hyperband(3)).expect("a valid search").epochs(0, 0, &[]), 0);
}

/// Runs a search in the same way as the supervisor, killed in worker `kill_at` after this worker's `epochs` epochs; `cleared`
/// means that the journal has recorded that the trial no longer waits. Returns the records and the number of workers.
fn killed_search(
    spec: &StudySpec,
    total: u64,
    kill_at: usize,
    epochs: u64,
    cleared: bool,
) -> (Vec<TrialRecord>, usize) {
    let (mut trials, mut unfinished, mut workers) = (Vec::<TrialRecord>::new(), Vec::new(), 0);
    let mut oracle = create(spec).expect("a valid search");
    loop {
        let number = match unfinished.pop().map_or_else(|| oracle.next(&trials, &[]), |trial| Next::Continue { trial })
        {
            Next::New => {
                trials.push(TrialRecord::new(trials.len() as u64));
                trials.len() - 1
            }
            Next::Continue { trial } => trial as usize,
            Next::Prune { trial } => {
                trials[trial as usize].ending = Some(Ending::Pruned);
                continue;
            }
            Next::Wait | Next::Exhausted => return (trials, workers),
        };
        workers += 1;
        assert!(workers < 1000, "killed in worker {kill_at} after {epochs} epochs: trial {number} for ever");
        trials[number].epochs = Some(total);
        let stop = oracle.epochs(number as u64, total, &trials);
        let record = &mut trials[number];
        let start = record.metrics.len() as u64;
        if workers - 1 == kill_at {
            steady(record, start, stop.min(start + epochs));
            record.paused_at = record.paused_at.filter(|_| !cleared);
            let open = trials.iter().filter(|trial| trial.ending.is_none() && trial.paused_at.is_none());
            unfinished = open.map(|trial| trial.number).collect();
            oracle = create(spec).expect("a valid search");
            continue;
        }
        steady(record, start, stop);
        if stop == total {
            (record.ending, record.values) = (Some(Ending::Finished), vec![merit(record.number)]);
        } else {
            record.paused_at = Some(stop);
        }
    }
}

#[test]
fn a_search_killed_in_any_worker_ends_as_if_it_had_not_been() {
    let spec = hyperband(20);
    let outcome = |trials: &[TrialRecord]| {
        let facts = trials.iter().map(|trial| (trial.metrics.clone(), trial.values.clone(), trial.ending.clone()));
        facts.collect::<Vec<_>>()
    };
    let (whole, workers) = killed_search(&spec, 18, usize::MAX, 0, true);
    assert!(whole.iter().all(|trial| trial.ending.is_some()) && workers > 20);
    for kill_at in 0..workers {
        for epochs in [0, 1, 3, 5, 18] {
            for cleared in [true, false] {
                let (trials, _) = killed_search(&spec, 18, kill_at, epochs, cleared);
                assert_eq!(outcome(&trials), outcome(&whole), "worker {kill_at}, {epochs} epochs, {cleared}");
            }
        }
    }
}

#[test]
fn a_trial_that_waits_at_a_rung_is_not_continued_in_place_of_an_interrupted_one() {
    // Trial 1 waits at the first rung's end; trial 4 was stopped before it, and trial 8 has not begun.
    let mut trials: Vec<TrialRecord> = (0..8).map(TrialRecord::new).collect();
    for record in &mut trials {
        record.epochs = Some(18);
        steady(record, 0, 2);
        record.paused_at = Some(2);
    }
    trials[4].metrics.clear();
    trials[4].paused_at = None;
    let mut oracle = create(&hyperband(8)).expect("a valid search");
    assert_eq!(oracle.next(&trials, &[]), Next::Continue { trial: 4 });
}

#[test]
fn failed_trials_take_no_places_of_those_that_can_go_on() {
    // The best trials of the first rung report its last epoch and then fail.
    let failing = |record: &mut TrialRecord, start: u64, stop: u64| {
        steady(record, start, stop);
        if record.number >= 6 {
            record.ending = Some(Ending::TimedOut { after_s: 1 });
        }
    };
    let (trials, _) = search(&hyperband(9), 9, &failing);
    assert_eq!(epochs_trained(&trials), BTreeMap::from([(1, 6), (3, 2), (9, 1)]));
    assert_eq!(trials[5].ending, Some(Ending::Finished));
}
