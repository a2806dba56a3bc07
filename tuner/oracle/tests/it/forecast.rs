//! Tests of learning curves as data: the pruner `forecast`, and the use that `auto` makes of pruned trials.

use crate::spec;
use ferrotune_oracle::{EarlyEnd, Next, Oracle, create};
use ferrotune_space::objective::{Constraint, Direction, Objective, Summary};
use ferrotune_space::record::{Ending, TrialRecord};
use ferrotune_space::spec::StudySpec;
use ferrotune_space::{Distribution, Parameter, Scale, Value};
use std::collections::BTreeMap;

/// The epochs of a complete training.
const EPOCHS: u64 = 27;
const RANGE: Distribution = Distribution::Float { low: 0.0, high: 1.0, step: None, scale: Scale::Linear };

/// A learning curve: the loss after each epoch.
type Curve = fn(f64, u64) -> f64;

/// Curves that all fall at the same speed; the best is at 0.7.
fn alike(x: f64, epoch: u64) -> f64 {
    (x - 0.7).powi(2) + 0.5 * (-0.3 * epoch as f64).exp()
}

/// Curves of which the best at the end are the worst at first.
fn crossing(x: f64, epoch: u64) -> f64 {
    let share = epoch as f64 / (EPOCHS - 1) as f64;
    share * (x - 0.7).powi(2) + (1.0 - share) * x
}

fn search(oracle: &str, pruner: Option<&str>) -> StudySpec {
    let objective = Objective { summary: Summary::Last, ..Objective::new("loss", Direction::Min) };
    StudySpec {
        oracle: oracle.to_owned(),
        pruner: pruner.map(str::to_owned),
        objectives: vec![objective],
        seed: Some(3),
        ..spec(oracle)
    }
}

fn ask(oracle: &mut dyn Oracle, trials: &mut [TrialRecord], number: u64) -> f64 {
    let value = oracle.suggest(number, "x", &RANGE, trials);
    let parameter = Parameter { distribution: RANGE, value: value.clone() };
    trials[number as usize].parameters.insert("x".to_owned(), parameter);
    let Value::Float(x) = value else { panic!("{value:?} is not a float") };
    x
}

fn report(trial: &mut TrialRecord, epoch: u64, loss: f64) {
    trial.metrics.insert(epoch, BTreeMap::from([("loss".to_owned(), Some(loss))]));
}

/// Runs a search whose trials have these curves; returns the trials. A new oracle decides on each trial, as after
/// a restart.
fn run(spec: &StudySpec, curve: Curve) -> Vec<TrialRecord> {
    let mut trials: Vec<TrialRecord> = Vec::new();
    loop {
        let mut oracle = create(spec).expect("a valid search");
        if oracle.next(&trials, &[]) != Next::New {
            return trials;
        }
        let number = trials.len() as u64;
        trials.push(TrialRecord { epochs: Some(EPOCHS), ..TrialRecord::new(number) });
        let x = ask(oracle.as_mut(), &mut trials, number);
        for epoch in 0..EPOCHS {
            report(&mut trials[number as usize], epoch, curve(x, epoch));
            if oracle.ends(number, &trials) == Some(EarlyEnd::Pruned) {
                trials[number as usize].ending = Some(Ending::Pruned);
                break;
            }
        }
        let trial = &mut trials[number as usize];
        if trial.ending.is_none() {
            (trial.values, trial.ending) = (vec![curve(x, EPOCHS - 1)], Some(Ending::Finished));
        }
    }
}

fn x_of(trial: &TrialRecord) -> f64 {
    let Value::Float(x) = trial.parameters["x"].value else { panic!("x is a float") };
    x
}

fn best(trials: &[TrialRecord]) -> f64 {
    trials.iter().filter_map(TrialRecord::value).fold(f64::INFINITY, f64::min)
}

#[test]
fn trials_that_promise_little_end_early_and_the_best_is_found() {
    for (curve, least) in [(alike as Curve, 12), (crossing, 1)] {
        let trials = run(&StudySpec { max_trials: 40, ..search("random", Some("forecast")) }, curve);
        let pruned: Vec<&TrialRecord> = trials.iter().filter(|trial| trial.ending == Some(Ending::Pruned)).collect();
        assert!(pruned.len() >= least, "{}", pruned.len());
        assert!(pruned.iter().all(|trial| [1, 3, 9].contains(&trial.epochs_done()) && trial.number % 6 != 0));
        let end = |trial: &TrialRecord| curve(x_of(trial), EPOCHS - 1);
        assert!(pruned.iter().all(|trial| end(trial) >= best(&trials)), "the best trial was pruned");
    }
}

/// A trial with these losses after 1, 3, 9 and 27 epochs, as far as they are given.
fn with_losses(number: u64, losses: &[f64]) -> TrialRecord {
    let mut trial = TrialRecord { epochs: Some(EPOCHS), ..TrialRecord::new(number) };
    let ends: Vec<u64> = [1, 3, 9, 27].into_iter().take(losses.len()).collect();
    for epoch in 0..*ends.last().expect("a loss") {
        let stage = ends.iter().position(|end| epoch < *end).expect("an epoch before the end");
        report(&mut trial, epoch, losses[stage]);
    }
    if let [_, _, _, last] = losses {
        (trial.values, trial.ending) = (vec![*last], Some(Ending::Finished));
    }
    trial
}

/// Five finished trials whose final loss is nearly half of that after nine epochs.
fn finished() -> Vec<TrialRecord> {
    let lasts = [0.50, 0.41, 0.32, 0.20, 0.11];
    let trial = |(number, last): (u64, f64)| with_losses(number, &[2.0, 1.5, 1.0 - 0.2 * number as f64, last]);
    (0..).zip(lasts).map(trial).collect()
}

/// The end of the last trial under this rule.
fn end(spec: &StudySpec, trials: &[TrialRecord]) -> Option<EarlyEnd> {
    create(spec).expect("a valid search").ends(trials.len() as u64 - 1, trials)
}

#[test]
fn a_trial_ends_where_it_has_little_chance_to_beat_the_best() {
    let end_at = |rule: &str, early: f64| {
        let mut trials = finished();
        trials.push(with_losses(5, &[2.0, 1.5, early]));
        end(&search("random", Some(rule)), &trials)
    };
    assert_eq!(end_at("forecast", 0.6), Some(EarlyEnd::Pruned));
    assert_eq!(end_at("forecast", 0.2), None);
    assert_eq!((end_at("forecast:chance=0.9", 0.2), end_at("forecast:chance=0", 0.9)), (Some(EarlyEnd::Pruned), None));
}

#[test]
fn a_maximised_objective_is_forecast_as_its_mirror_image() {
    let mirrored = StudySpec {
        objectives: vec![Objective { summary: Summary::Last, ..Objective::new("loss", Direction::Max) }],
        ..search("random", Some("forecast"))
    };
    for (early, expected) in [(0.6, Some(EarlyEnd::Pruned)), (0.2, None)] {
        let mut trials = finished();
        trials.push(with_losses(5, &[2.0, 1.5, early]));
        for trial in &mut trials {
            let reports = trial.metrics.values_mut().flat_map(BTreeMap::values_mut).flatten();
            reports.chain(&mut trial.values).for_each(|value| *value = -*value);
        }
        assert_eq!(end(&mirrored, &trials), expected);
    }
}

#[test]
fn a_trial_goes_on_where_there_is_no_forecast() {
    let rule = search("random", Some("forecast"));
    let bad = |number| with_losses(number, &[2.0, 1.5, 0.9]);
    let with = |mut trials: Vec<TrialRecord>, trial: TrialRecord| {
        trials.push(trial);
        end(&rule, &trials)
    };
    assert_eq!(with(finished(), bad(5)), Some(EarlyEnd::Pruned));
    assert_eq!(with(finished()[..2].to_vec(), bad(2)), None, "two trials say nothing of residuals");
    assert_eq!(with(finished(), TrialRecord { epochs: None, ..bad(5) }), None, "no epochs are announced");
    let mut seven = finished();
    seven.push(TrialRecord { ending: Some(Ending::Cancelled), ..TrialRecord::new(5) });
    assert_eq!(with(seven, bad(6)), None, "one trial in six trains to its end");
    assert_eq!(with(finished(), with_losses(5, &[2.0, 1.5, f64::NAN])), None, "the loss is not a number");
    let constant = (0..5).map(|number| with_losses(number, &[1.0, 1.0, 1.0, 0.5])).collect();
    assert_eq!(with(constant, with_losses(5, &[1.0, 1.0, 1.0])), None, "all trials are alike");
    let mut between = bad(5);
    report(&mut between, 9, 0.9);
    assert_eq!(with(finished(), between), None, "the trial is between two stages");
}

#[test]
fn only_a_trial_that_keeps_the_constraints_is_one_to_beat() {
    let constraint = Constraint { metric: "size".to_owned(), direction: Direction::Min, bound: 1.0 };
    let rule = StudySpec { constraints: vec![constraint], ..search("random", Some("forecast")) };
    let end_with = |size_of_best: f64| {
        let mut trials = finished();
        for (number, trial) in (0..).zip(&mut trials) {
            let size = if number == 4 { size_of_best } else { 1.0 };
            trial.metrics.entry(EPOCHS - 1).or_default().insert("size".to_owned(), Some(size));
        }
        trials.push(with_losses(5, &[2.0, 1.5, 0.38]));
        end(&rule, &trials)
    };
    assert_eq!((end_with(1.0), end_with(2.0)), (Some(EarlyEnd::Pruned), None));
}

/// Trials that start fast and were pruned with a loss below that of every complete training are not judged to be better.
#[test]
fn early_losses_of_pruned_trials_are_not_taken_for_final_ones() {
    let whole = |number: u64, x: f64| {
        let mut trial = TrialRecord { epochs: Some(EPOCHS), ..TrialRecord::new(number) };
        trial.parameters.insert("x".to_owned(), Parameter { distribution: RANGE, value: Value::Float(x) });
        (0..EPOCHS).for_each(|epoch| report(&mut trial, epoch, crossing(x, epoch)));
        (trial.values, trial.ending) = (vec![crossing(x, EPOCHS - 1)], Some(Ending::Finished));
        trial
    };
    let pruned = |number: u64, x: f64| {
        let mut trial = whole(number, x);
        trial.metrics.retain(|epoch, _| *epoch < 3);
        TrialRecord { values: vec![crossing(x, 2)], ending: Some(Ending::Pruned), ..trial }
    };
    let mut trials = vec![whole(0, 0.5), whole(1, 0.95), whole(2, 0.2), whole(3, 0.35)];
    trials.extend([(4, 0.01), (5, 0.001), (6, 0.03), (7, 0.0)].map(|(number, x)| pruned(number, x)));
    assert!(trials[7].value() < trials[0].value() && trials[0].value() < trials[1].value());
    let mut oracle = create(&search("gp", None)).expect("a valid search");
    let proposals: Vec<f64> = (8..12)
        .map(|number| {
            trials.push(TrialRecord::new(number));
            let x = ask(oracle.as_mut(), &mut trials, number);
            trials[number as usize] = whole(number, x);
            x
        })
        .collect();
    assert!(proposals.iter().all(|x| (x - 0.7).abs() < 0.25), "{proposals:?}");
}
