//! The contract that every oracle keeps.

use crate::spec;
use expect_test::expect;
use ferrotune_tuner::oracle::{Next, Oracle, create};
use ferrotune_tuner::record::{Ending, Parameter, TrialRecord};
use ferrotune_tuner::space::{Distribution, Value};
use ferrotune_tuner::wire::StudySpec;

const ORACLES: [&str; 2] = ["random", "hyperband"];

fn space() -> Vec<(&'static str, Distribution)> {
    vec![
        ("units", Distribution::Int { low: 32, high: 512, step: 32, log: false }),
        ("layers", Distribution::Int { low: 1, high: 64, step: 1, log: true }),
        ("dropout", Distribution::Float { low: 0.0, high: 0.5, step: Some(0.1), log: false }),
        ("lr", Distribution::Float { low: 1e-4, high: 1e-1, step: None, log: true }),
        ("norm", Distribution::Choice { values: vec![Value::Bool(false), Value::Bool(true)] }),
    ]
}

/// Draws a whole trial and ends it.
fn run_trial(oracle: &mut dyn Oracle, trials: &[TrialRecord]) -> TrialRecord {
    let mut record = TrialRecord::new(trials.len() as u64);
    for (name, distribution) in space() {
        let value = oracle.suggest(record.number, name, &distribution, trials);
        record.parameters.insert(name.to_owned(), Parameter { distribution, value });
    }
    TrialRecord { value: Some(record.number as f64), ending: Some(Ending::Finished), ..record }
}

fn search(spec: &StudySpec) -> Vec<TrialRecord> {
    let mut oracle = create(spec).expect("a valid search");
    let mut trials = Vec::new();
    while oracle.next(&trials) == Next::New {
        trials.push(run_trial(oracle.as_mut(), &trials));
    }
    assert_eq!(oracle.next(&trials), Next::Exhausted);
    trials
}

#[test]
fn starts_as_many_trials_as_asked_for() {
    for name in ORACLES {
        assert_eq!(search(&spec(name)).len(), 10, "{name}");
    }
}

#[test]
fn suggestions_lie_in_their_ranges_and_differ_between_trials() {
    for name in ORACLES {
        let trials = search(&spec(name));
        for parameter in trials.iter().flat_map(|trial| trial.parameters.values()) {
            assert!(parameter.distribution.contains(&parameter.value), "{name}: {parameter:?}");
        }
        for (index, trial) in trials.iter().enumerate() {
            assert!(trials[..index].iter().all(|earlier| earlier.parameters != trial.parameters), "{name}");
        }
    }
}

#[test]
fn a_seed_decides_every_suggestion() {
    for name in ORACLES {
        assert_eq!(search(&spec(name)), search(&spec(name)), "{name}");
        assert_ne!(search(&spec(name)), search(&StudySpec { seed: Some(8), ..spec(name) }), "{name}");
    }
}

#[test]
fn a_resumed_search_draws_what_an_uninterrupted_one_would() {
    for name in ORACLES {
        let whole = search(&spec(name));
        for count in 0..whole.len() {
            let mut resumed = create(&spec(name)).expect("a valid search");
            assert_eq!(resumed.next(&whole[..count]), Next::New);
            assert_eq!(run_trial(resumed.as_mut(), &whole[..count]), whole[count], "{name}");
        }
    }
}

#[test]
fn a_suggestion_does_not_depend_on_the_order_of_questions() {
    for name in ORACLES {
        let mut oracle = create(&spec(name)).expect("a valid search");
        let forwards: Vec<Value> =
            space().iter().map(|(name, distribution)| oracle.suggest(0, name, distribution, &[])).collect();
        let mut backwards: Vec<Value> =
            space().iter().rev().map(|(name, distribution)| oracle.suggest(0, name, distribution, &[])).collect();
        backwards.reverse();
        assert_eq!(forwards, backwards, "{name}");
    }
}

#[test]
fn draws_of_neighbouring_trials_are_spread_over_the_range() {
    for name in ORACLES {
        let mut oracle = create(&spec(name)).expect("a valid search");
        let unit = Distribution::Float { low: 0.0, high: 1.0, step: None, log: false };
        let mut tenths = [0; 10];
        for trial in 0..10_000 {
            if let Value::Float(value) = oracle.suggest(trial, "x", &unit, &[]) {
                tenths[((value * 10.0) as usize).min(9)] += 1;
            }
        }
        assert!(tenths.iter().all(|count| (880..1120).contains(count)), "{name}: {tenths:?}");
    }
}

#[test]
fn an_interrupted_trial_is_continued_when_no_other_is_left() {
    for name in ORACLES {
        let mut trials = search(&spec(name));
        trials[4].ending = None;
        let mut oracle = create(&spec(name)).expect("a valid search");
        assert_eq!(oracle.next(&trials), Next::Continue { trial: 4 }, "{name}");
    }
}

#[test]
fn a_search_without_a_seed_is_another_one_each_time() {
    let unseeded = StudySpec { seed: None, ..spec("random") };
    assert_ne!(search(&unseeded), search(&unseeded));
}

#[test]
fn impossible_searches_are_refused() {
    let error = |spec: StudySpec| create(&spec).err().expect("refused").to_string();
    expect!["there is no oracle `hyperbnad`, did you mean `hyperband`?; choose one of random, hyperband"]
        .assert_eq(&error(spec("hyperbnad")));
    expect!["there is no oracle `tpe`; choose one of random, hyperband"].assert_eq(&error(spec("tpe")));
    expect!["--max-trials is 0; give at least 1"].assert_eq(&error(StudySpec { max_trials: 0, ..spec("random") }));
    expect!["--timeout is -1; give more than 0 seconds"]
        .assert_eq(&error(StudySpec { timeout_s: Some(-1.0), ..spec("random") }));
    expect!["--trial-timeout is NaN; give more than 0 seconds"]
        .assert_eq(&error(StudySpec { trial_timeout_s: Some(f64::NAN), ..spec("random") }));
}
