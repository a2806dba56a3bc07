//! Parameters that the user has decided about beforehand.

use crate::harness::{on_disk, run, spec};
use ferrotune_tuner::given::{Given, Values, parse_value};
use ferrotune_tuner::space::Value;
use ferrotune_tuner::wire::{Event, Finish, StudySpec};

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
    // The same cell once more: nothing is put into the queue again.
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
    let told = done.events.iter().any(|event| matches!(event, Event::Progress(it) if it.unasked == ["unit"]));
    assert!(told, "{:?}", done.events);
    spec.given = Given { enqueued: vec![values(&[("x", "0.5"), ("unts", "3")])], ..Given::default() };
    spec.project = "enqueued".to_owned();
    let done = run(&spec);
    assert_eq!(done.last(), Ok(Finish::MaxTrials));
    let told = done.events.iter().any(|event| matches!(event, Event::Progress(it) if it.unasked == ["unts"]));
    assert!(told, "{:?}", done.events);
    spec.given = Given { fixed: values(&[("x", "7")]), ..Given::default() };
    (spec.max_trials, spec.project) = (1, "outside".to_owned());
    run(&spec);
    let ending = on_disk(&spec)[0].ending.clone().unwrap().to_string();
    assert!(
        ending.ends_with("--fix gives `x` the value 7, but it is a float 0.0..=1.0; give one of these"),
        "{ending}"
    );
}
