//! Tests of parameters whose values the user has set beforehand.

use crate::harness::{on_disk, run, spec};
use ferrotune_journal::Journal;
use ferrotune_space::event::{Event, Finish};
use ferrotune_space::given::{Given, Values, parse_value};
use ferrotune_space::record::State;
use ferrotune_space::spec::StudySpec;
use ferrotune_space::{Distribution, Parameter, Scale, Value};

fn values(pairs: &[(&str, &str)]) -> Values {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), parse_value(value))).collect()
}

fn value(spec: &StudySpec, trial: usize, name: &str) -> Value {
    on_disk(spec)[trial].parameters[name].value.clone()
}

#[test]
fn enqueued_trials_come_first_and_once_and_fixed_parameters_stay() {
    let directory = tempfile::tempdir().unwrap();
    let mut spec = spec(directory.path(), "quick", 4);
    spec.given.fixed = values(&[("units", "64")]);
    spec.given.enqueued = vec![values(&[("x", "0.25")]), values(&[("x", "1"), ("units", "7")])];
    assert_eq!(run(&spec).last(), Ok(Finish::MaxTrials));
    let of = |name| (0..4).map(|trial| value(&spec, trial, name)).collect::<Vec<_>>();
    let x = of("x");
    assert_eq!(x[..2], [Value::Float(0.25), Value::Float(1.0)]);
    assert!(x[2] != x[3] && !x[..2].contains(&x[2]), "{x:?}");
    assert_eq!(of("units"), [64, 7, 64, 64].map(Value::Int));
    // The same cell runs again, and adds nothing to the queue.
    spec.max_trials = 5;
    assert_eq!(run(&spec).last(), Ok(Finish::MaxTrials));
    assert_eq!(on_disk(&spec).iter().filter(|record| !record.preset.is_empty()).count(), 2);
    assert_eq!(value(&spec, 4, "units"), Value::Int(64));
}

#[test]
fn queue_survives_the_supervisor() {
    let directory = tempfile::tempdir().unwrap();
    let mut spec = spec(directory.path(), "quick", 1);
    spec.given.enqueued = vec![values(&[("x", "0.25")]), values(&[("x", "0.5")])];
    assert_eq!(run(&spec).last(), Ok(Finish::MaxTrials));
    let waiting = &on_disk(&spec)[1];
    assert!(waiting.ending.is_none() && waiting.parameters.is_empty(), "{waiting:?}");
    (spec.max_trials, spec.given.enqueued) = (2, Vec::new());
    assert_eq!(run(&spec).last(), Ok(Finish::MaxTrials));
    assert_eq!(value(&spec, 1, "x"), Value::Float(0.5));
}

#[test]
fn what_is_not_to_be_tuned_is_not_and_names_that_nobody_asks_for_are_told() {
    let directory = tempfile::tempdir().unwrap();
    let mut spec = spec(directory.path(), "quick", 3);
    spec.given.tune_only = vec!["x".to_owned(), "unit".to_owned()];
    let done = run(&spec);
    assert_eq!(done.last(), Ok(Finish::MaxTrials));
    assert!(on_disk(&spec).iter().all(|record| record.parameters["units"].value == Value::Int(1)));
    let is_named = done.events.iter().any(|event| matches!(event, Event::Progress(it) if it.unasked == ["unit"]));
    assert!(is_named, "{:?}", done.events);
    spec.given = Given { enqueued: vec![values(&[("x", "0.5"), ("unts", "3")])], ..Given::default() };
    spec.project = "enqueued".to_owned();
    let done = run(&spec);
    assert_eq!(done.last(), Ok(Finish::MaxTrials));
    let is_named = done.events.iter().any(|event| matches!(event, Event::Progress(it) if it.unasked == ["unts"]));
    assert!(is_named, "{:?}", done.events);
    spec.given = Given { fixed: values(&[("x", "7")]), ..Given::default() };
    (spec.max_trials, spec.project) = (1, "outside".to_owned());
    let done = run(&spec);
    let is_named = done.events.iter().any(|event| matches!(event, Event::Progress(it) if !it.unasked.is_empty()));
    assert!(!is_named, "the trial has asked for it: {:?}", done.events);
    let ending = on_disk(&spec)[0].ending.clone().unwrap().to_string();
    assert!(
        ending.contains("--fix gives `x` the value 7, but it is a float 0.0..=1.0; give one of these ("),
        "{ending}"
    );
}

#[test]
fn decimals_are_the_same_in_single_and_double_precision() {
    let directory = tempfile::tempdir().unwrap();
    let mut spec = spec(directory.path(), "decimals", 5);
    spec.given.fixed = values(&[("lr", "0.1"), ("summed", "0.3")]);
    // The values are a sum of doubles, a decimal, and a number of an older study.
    spec.given.enqueued = ["0.30000000000000004", "0.5", "0.30000000447034836"]
        .map(|rate| values(&[("rate", rate), ("shift", "0"), ("share", "0.7"), ("near", "3")]))
        .to_vec();
    spec.given.enqueued[1].remove("near");
    assert_eq!(run(&spec).last(), Ok(Finish::MaxTrials));
    let record = on_disk(&spec);
    assert!(record.iter().all(|trial| trial.state() == State::Finished), "{record:?}");
    let of = |name| (0..5).map(|trial| value(&spec, trial, name)).collect::<Vec<_>>();
    assert_eq!(of("rate")[..3], [0.3, 0.5, 0.3].map(Value::Float));
    assert_eq!(of("summed"), [0.3; 5].map(Value::Float));
    assert_eq!(of("lr"), [0.1; 5].map(Value::Float));
    assert_eq!(of("share")[..3], [0.7; 3].map(Value::Float));
    assert_eq!(record[0].parameters["near"].value, Value::Int(3));
    assert!(!record[1].parameters.contains_key("near"));
    for trial in &record[3..] {
        let Value::Float(shift) = trial.parameters["shift"].value else { panic!("{trial:?}") };
        assert!([-0.6, -0.4, -0.2, 0.0, 0.2, 0.4, 0.6].contains(&shift), "{shift}");
    }
}

#[test]
fn trial_of_an_earlier_version_in_single_precision_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let spec = spec(directory.path(), "decimals", 1);
    let (low, step) = (f64::from(0.1_f32), Some(f64::from(0.1_f32)));
    let range = Distribution::Float { low, high: 0.5, step, scale: Scale::Linear };
    let earlier = Parameter { distribution: range, value: Value::Float(0.300_000_004_470_348_36) };
    let mut journal = Journal::open(&directory.path().join("decimals"), &spec).unwrap();
    journal.begin_trial().unwrap();
    journal.parameter(0, "rate", earlier.clone()).unwrap();
    drop(journal);
    assert_eq!(run(&spec).last(), Ok(Finish::MaxTrials));
    let record = &on_disk(&spec)[0];
    assert_eq!((record.state(), &record.parameters["rate"]), (State::Finished, &earlier), "{record:?}");
}
