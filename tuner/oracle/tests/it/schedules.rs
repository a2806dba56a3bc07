//! Tests of successive halving, its asynchronous form and population-based training with simulated trainings.

use crate::hyperband::{epochs_trained, merit, report, search, steady};
use crate::spec;
use ferrotune_oracle::{Next, create};
use ferrotune_space::record::{Ending, Runner, TrialRecord};
use ferrotune_space::spec::StudySpec;
use ferrotune_space::{Distribution, Parameter, Scale, Value};
use std::collections::{BTreeMap, BTreeSet};

fn of(oracle: &str, max_trials: u64) -> StudySpec {
    StudySpec { max_trials, ..spec(oracle) }
}

#[test]
fn successive_halving_runs_the_most_exploratory_bracket_over_and_over() {
    let (trials, _) = search(&of("successive_halving", 18), 9, &steady);
    let (first, second) = trials.split_at(9);
    assert_eq!(epochs_trained(first), BTreeMap::from([(1, 6), (3, 2), (9, 1)]));
    assert_eq!(epochs_trained(second), epochs_trained(first));
}

#[test]
fn asha_promotes_as_soon_as_three_have_come_to_a_rung() {
    let falling = |record: &mut TrialRecord, start: u64, stop: u64| {
        (start..stop).for_each(|step| report(record, step, 100.0 - record.number as f64));
    };
    let (trials, decisions) = search(&of("asha", 27), 27, &falling);
    assert_eq!(epochs_trained(&trials), BTreeMap::from([(1, 18), (3, 6), (9, 2), (27, 1)]));
    assert!(trials.iter().all(|trial| trial.ending.is_some()));
    assert_eq!(decisions[..5], [Next::New, Next::New, Next::New, Next::Continue { trial: 0 }, Next::New]);
    // Later trials may overtake earlier ones: here each trial is better than all before it, and continues at once.
    let (trials, decisions) = search(&of("asha", 14), 9, &steady);
    assert_eq!(decisions[..5], [Next::New, Next::New, Next::New, Next::Continue { trial: 2 }, Next::New]);
    assert!(epochs_trained(&trials)[&9] > 1);
}

#[test]
fn asha_trains_one_trial_to_the_end_however_few_there_are() {
    for max_trials in 1..=40 {
        let (trials, _) = search(&of("asha", max_trials), 27, &steady);
        assert_eq!(trials.len() as u64, max_trials);
        assert!(trials.iter().all(|trial| trial.ending.is_some()));
        let finished: Vec<_> = trials.iter().filter(|trial| trial.ending == Some(Ending::Finished)).collect();
        assert!(!finished.is_empty() && finished.iter().all(|trial| trial.epochs_done() == 27), "{max_trials}");
    }
}

#[test]
fn asha_is_not_stalled_by_failures_or_silence() {
    let failing = |record: &mut TrialRecord, start: u64, stop: u64| match record.number % 3 {
        0 => record.ending = Some(Ending::Signalled { signal: 9 }),
        1 => {}
        _ => steady(record, start, stop),
    };
    let (trials, decisions) = search(&of("asha", 30), 9, &failing);
    assert_eq!((trials.len(), decisions.last()), (30, Some(&Next::Exhausted)));
    let best = trials.iter().find(|trial| trial.ending == Some(Ending::Finished)).expect("one is trained to the end");
    assert_eq!(best.number % 3, 2);
    let all_fail = |record: &mut TrialRecord, _, _| record.ending = Some(Ending::Cancelled);
    assert_eq!(search(&of("asha", 20), 9, &all_fail).0.len(), 20);
}

#[test]
fn asha_goes_on_with_a_trial_that_was_interrupted_between_rungs() {
    let (mut trials, _) = search(&of("asha", 9), 9, &steady);
    let winner = trials.iter().position(|trial| trial.epochs_done() == 9).expect("one winner");
    let record = &mut trials[winner];
    record.metrics.retain(|step, _| *step < 5);
    (record.ending, record.values, record.paused_at) = (None, Vec::new(), Some(3));
    let mut oracle = create(&of("asha", 9)).expect("a valid search");
    assert_eq!(oracle.next(&trials, &[]), Next::Continue { trial: winner as u64 });
    assert_eq!(oracle.epochs(winner as u64, 9, &trials), 9);
}

/// A trial that Optuna ran never ends if its program has died.
#[test]
fn trials_that_another_program_abandoned_hold_up_no_schedule() {
    for oracle in ["hyperband", "bohb", "successive_halving", "asha", "pbt", "pb2"] {
        for has_reported in [false, true] {
            let abandoned = move |record: &mut TrialRecord, start: u64, stop: u64| {
                if record.number == 1 {
                    record.runner = Runner::Other;
                }
                if record.number != 1 || has_reported {
                    steady(record, start, stop);
                }
            };
            let (trials, _) = search(&of(oracle, 20), 9, &abandoned);
            assert_eq!(trials.len(), 20, "{oracle}");
            let open: Vec<u64> =
                trials.iter().filter(|trial| trial.ending.is_none()).map(|trial| trial.number).collect();
            assert_eq!(open, [1], "{oracle}");
            let finished = trials.iter().filter(|trial| trial.ending == Some(Ending::Finished));
            assert!(finished.map(TrialRecord::epochs_done).max() == Some(9), "{oracle}");
        }
    }
}

/// A population whose accuracy grows fastest at a rate of 0.01; a copy continues from its original's accuracy.
fn population(max_trials: u64, total: u64) -> Vec<TrialRecord> {
    continued(Vec::new(), max_trials, total)
}

fn continued(trials: Vec<TrialRecord>, max_trials: u64, total: u64) -> Vec<TrialRecord> {
    continued_by("pbt", trials, max_trials, total)
}

pub(crate) fn continued_by(
    oracle: &str,
    mut trials: Vec<TrialRecord>,
    max_trials: u64,
    total: u64,
) -> Vec<TrialRecord> {
    let rate = Distribution::Float { low: 1e-4, high: 1.0, step: None, scale: Scale::Log };
    let units = Distribution::Int { low: 1, high: 64, step: 1, scale: Scale::Linear };
    for _ in 0..10_000 {
        // A new oracle answers every question, as after a restart.
        let ask = || create(&of(oracle, max_trials)).expect("a valid search");
        let number = match ask().next(&trials, &[]) {
            Next::New => {
                let number = trials.len() as u64;
                let mut record = TrialRecord::new(number);
                for (name, distribution) in [("rate", &rate), ("units", &units)] {
                    let value = ask().suggest(number, name, distribution, &trials);
                    assert!(distribution.contains(&value));
                    record.parameters.insert(name.to_owned(), Parameter { distribution: distribution.clone(), value });
                }
                trials.push(record);
                number as usize
            }
            Next::Continue { trial } => trial as usize,
            Next::Prune { trial } => {
                trials[trial as usize].ending = Some(Ending::Pruned);
                continue;
            }
            Next::Wait | Next::Exhausted => return trials,
        };
        let parent = ask().parent(number as u64, &trials).filter(|_| trials[number].metrics.is_empty());
        let (start, mut accuracy) = match parent {
            Some(parent) => {
                let parent = &trials[parent as usize];
                assert!(parent.paused_at == Some(parent.epochs_done()) || parent.ending.is_some());
                (parent.epochs_done(), last_accuracy(parent))
            }
            None => (trials[number].epochs_done(), last_accuracy(&trials[number])),
        };
        // The parent is recorded before the first worker begins, as in the ledger.
        trials[number].parent = parent.or(trials[number].parent);
        let stop = ask().epochs(number as u64, total, &trials);
        assert!(stop > start, "trial {number} goes on from {start} to {stop}");
        let record = &mut trials[number];
        let Value::Float(rate) = record.parameters["rate"].value else { panic!("a float") };
        for step in start..stop {
            accuracy += 1.0 - (rate.log10() + 2.0).abs() / 2.0;
            report(record, step, accuracy);
        }
        record.epochs = Some(total);
        record.paused_at = Some(stop);
        if stop == total {
            (record.ending, record.values) = (Some(Ending::Finished), vec![accuracy]);
        }
    }
    panic!("the search does not end");
}

fn last_accuracy(trial: &TrialRecord) -> f64 {
    trial.metrics.values().next_back().and_then(|metrics| metrics["accuracy"]).unwrap_or_default()
}

#[test]
fn population_replaces_its_worst_by_copies_of_its_best() {
    let trials = population(39, 20);
    assert_eq!(trials.len(), 39);
    let of_state = |ending: Ending| trials.iter().filter(|trial| trial.ending.as_ref() == Some(&ending)).count();
    assert_eq!((of_state(Ending::Finished), of_state(Ending::Pruned)), (12, 27));
    let mut oracle = create(&of("pbt", 39)).expect("a valid search");
    assert!((0..12).all(|trial| oracle.parent(trial, &trials).is_none()));
    let mut rates = BTreeSet::new();
    for copy in 12..39 {
        let parent = oracle.parent(copy, &trials).expect("a copy") as usize;
        let (copy, parent) = (&trials[copy as usize], &trials[parent]);
        assert_eq!(copy.parameters["units"], parent.parameters["units"]);
        assert_ne!(copy.parameters["rate"], parent.parameters["rate"]);
        rates.insert(copy.parameters["rate"].value.to_string());
    }
    assert!(rates.len() > 20, "{rates:?}");
    let best = trials.iter().filter_map(TrialRecord::value).fold(0.0, f64::max);
    assert!(best > 17.0, "{best} of 20");
}

#[test]
fn populations_follow_one_another_and_a_short_one_trains_to_the_end() {
    for max_trials in [1, 2, 5, 12, 13, 30, 45, 80] {
        let trials = population(max_trials, 10);
        assert_eq!(trials.len() as u64, max_trials);
        assert!(trials.iter().all(|trial| trial.ending.is_some()));
        assert!(trials.iter().any(|trial| trial.ending == Some(Ending::Finished)));
    }
}

#[test]
fn population_search_that_goes_on_with_more_trials_begins_another_population() {
    for (first, then) in [(1, 30), (5, 40), (12, 24), (14, 60), (20, 60), (38, 39), (39, 80), (50, 90)] {
        let before = population(first, 20);
        let trials = continued(before.clone(), then, 20);
        assert_eq!(trials.len() as u64, then, "{first} to {then}");
        assert_eq!(trials[..before.len()], before, "{first} to {then}");
        assert!(trials.iter().all(|trial| trial.ending.is_some()), "{first} to {then}");
        if then - first > 20 {
            let later = &trials[before.len()..];
            assert!(later.iter().any(|trial| trial.parent.is_some()), "{first} to {then}: no copies");
        }
    }
}

#[test]
fn population_fills_up_again_after_failures() {
    let failing = |record: &mut TrialRecord, start: u64, stop: u64| {
        if record.number % 12 < 6 && stop > 1 {
            record.ending = Some(Ending::Panicked { message: "x".into() });
        } else {
            steady(record, start, stop);
        }
    };
    let (trials, decisions) = search(&of("pbt", 40), 10, &failing);
    assert_eq!((trials.len(), decisions.last()), (40, Some(&Next::Exhausted)));
    assert!(trials.iter().any(|trial| trial.ending == Some(Ending::Finished) && trial.values == [merit(trial.number)]));
}

/// A search over two numbers, whose loss is exact after a complete training and approximate after a short one. A new oracle also
/// chooses every seventh trial's values, as after a restart.
fn learned(spec: &StudySpec, total: u64) -> Vec<TrialRecord> {
    let unit = Distribution::Float { low: 0.0, high: 1.0, step: None, scale: Scale::Linear };
    let mut oracle = create(spec).expect("a valid search");
    let mut trials: Vec<TrialRecord> = Vec::new();
    loop {
        let number = match oracle.next(&trials, &[]) {
            Next::New => {
                let number = trials.len();
                trials.push(TrialRecord::new(number as u64));
                for name in ["x", "y"] {
                    let value = oracle.suggest(number as u64, name, &unit, &trials);
                    if number.is_multiple_of(7) {
                        let mut resumed = create(spec).expect("a valid search");
                        assert_eq!(resumed.suggest(number as u64, name, &unit, &trials), value, "{number}");
                    }
                    let parameter = Parameter { distribution: unit.clone(), value };
                    trials[number].parameters.insert(name.to_owned(), parameter);
                }
                number
            }
            Next::Continue { trial } => trial as usize,
            Next::Prune { trial } => {
                trials[trial as usize].ending = Some(Ending::Pruned);
                continue;
            }
            Next::Wait | Next::Exhausted => return trials,
        };
        let stop = oracle.epochs(number as u64, total, &trials);
        let record = &mut trials[number];
        let values: Vec<f64> = record.parameters.values().map(|parameter| float(&parameter.value)).collect();
        let accuracy = 1.0 - (values[0] - 0.2).powi(2) - (values[1] - 0.9).powi(2);
        for step in record.epochs_done()..stop {
            let rough = 0.1 * (37.0 * (values[0] + values[1])).sin() / (step + 1) as f64;
            report(record, step, accuracy * (1.0 - 0.5 / (step + 1) as f64) + rough);
        }
        (record.epochs, record.paused_at) = (Some(total), Some(stop));
        if stop == total {
            (record.ending, record.values) = (Some(Ending::Finished), vec![accuracy]);
        }
    }
}

fn float(value: &Value) -> f64 {
    match value {
        Value::Float(value) => *value,
        _ => f64::NAN,
    }
}

#[test]
fn bohb_learns_from_short_trainings_where_hyperband_draws() {
    let late = |oracle: &str| {
        let mean = |seed| {
            let trials = learned(&StudySpec { seed: Some(seed), ..of(oracle, 120) }, 27);
            assert!(trials.len() == 120 && trials.iter().all(|trial| trial.ending.is_some()));
            let distance = |trial: &TrialRecord| {
                let values: Vec<f64> = trial.parameters.values().map(|parameter| float(&parameter.value)).collect();
                (values[0] - 0.2).hypot(values[1] - 0.9)
            };
            trials[60..].iter().map(distance).sum::<f64>() / 60.0
        };
        (0..5).map(mean).sum::<f64>() / 5.0
    };
    let (bohb, hyperband) = (late("bohb"), late("hyperband"));
    assert!(bohb < 0.7 * hyperband, "{bohb} {hyperband}");
}

#[test]
fn bohb_does_not_avoid_trials_that_wait_at_lower_rungs() {
    let x = Distribution::Float { low: 0.0, high: 1.0, step: None, scale: Scale::Linear };
    let trial = |number: u64, value: f64, epochs: u64| {
        let mut record = TrialRecord::new(number);
        let parameter = Parameter { distribution: x.clone(), value: Value::Float(value) };
        record.parameters.insert("x".to_owned(), parameter);
        (0..epochs).for_each(|step| report(&mut record, step, 1.0 - (value - 0.2).abs()));
        (record.epochs, record.paused_at) = (Some(9), Some(epochs));
        record
    };
    // Thirty trials have shown after three epochs that 0.2 is good; forty trials wait there after one epoch.
    let mut trials: Vec<TrialRecord> = (0..30).map(|number| trial(number, number as f64 / 30.0, 3)).collect();
    trials.extend((30..70).map(|number| trial(number, 0.15 + 0.0025 * (number - 30) as f64, 1)));
    let near = |seed| {
        let mut oracle = create(&StudySpec { seed: Some(seed), ..of("bohb", 200) }).expect("a valid search");
        let value = float(&oracle.suggest(70, "x", &x, &trials));
        (0.1..0.3).contains(&value)
    };
    let count = (0..100).filter(|seed| near(*seed)).count();
    // One trial in three is drawn at random.
    assert!(count > 40, "{count} of 100 are near the best");
}

#[test]
fn copies_of_pb2_train_at_better_rates_than_those_of_pbt() {
    // Accuracy grows fastest at a rate of 0.01.
    let off = |oracle: &str| {
        let trials = continued_by(oracle, Vec::new(), 30, 40);
        let copies = trials.iter().filter(|trial| trial.parent.is_some()).skip(3);
        let off = copies.map(|copy| match copy.parameters["rate"].value {
            Value::Float(rate) => (rate.log10() + 2.0).abs(),
            _ => f64::NAN,
        });
        let off: Vec<f64> = off.collect();
        assert!(off.len() > 10, "{} copies", off.len());
        off.iter().sum::<f64>() / off.len() as f64
    };
    let (bandit, perturbed) = (off("pb2:population=6"), off("pbt:population=6"));
    assert!(bandit < 0.3 && bandit < perturbed, "{bandit} {perturbed}");
}

#[test]
fn copies_of_pb2_keep_whole_numbers_and_differ_from_each_other() {
    let trials = continued_by("pb2:population=8,quantile=0.5", Vec::new(), 30, 40);
    let copies: Vec<&TrialRecord> = trials.iter().filter(|trial| trial.parent.is_some()).collect();
    for copy in &copies {
        let original = &trials[copy.parent.expect("a copy") as usize];
        assert_eq!(copy.parameters["units"], original.parameters["units"]);
    }
    let rates: BTreeSet<String> = copies.iter().map(|copy| copy.parameters["rate"].value.exact()).collect();
    assert!(rates.len() == copies.len() && copies.len() > 10, "{} of {}", rates.len(), copies.len());
}
