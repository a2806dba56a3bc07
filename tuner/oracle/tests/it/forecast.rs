//! Tests of learning curves as data: the pruner `forecast`, and the use that `auto` makes of pruned trials.

use crate::spec;
use ferrotune_oracle::{EarlyEnd, Next, Oracle, create};
use ferrotune_space::objective::{Direction, Objective, Summary};
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
    for curve in [alike as Curve, crossing] {
        let with = run(&StudySpec { max_trials: 24, ..search("auto", Some("forecast")) }, curve);
        let pruned: Vec<&TrialRecord> = with.iter().filter(|trial| trial.ending == Some(Ending::Pruned)).collect();
        assert!(pruned.len() >= 2, "{}", pruned.len());
        assert!(pruned.iter().all(|trial| [1, 3, 9].contains(&trial.epochs_done()) && trial.number % 6 != 0));
        let end = |trial: &TrialRecord| curve(x_of(trial), EPOCHS - 1);
        assert!(best(&with) < curve(0.7, EPOCHS - 1) + 1e-4, "{}", best(&with));
        assert!(pruned.iter().all(|trial| end(trial) >= best(&with)), "the best trial was pruned");
    }
}

#[test]
fn a_trial_that_does_not_say_how_long_it_trains_is_never_forecast() {
    let mut oracle = create(&search("random", Some("forecast"))).expect("a valid search");
    let mut trials = run(&StudySpec { max_trials: 6, ..search("random", None) }, alike);
    let hopeless = TrialRecord::new(7);
    trials.extend([TrialRecord::new(6), hopeless]);
    for number in [6, 7] {
        ask(oracle.as_mut(), &mut trials, number);
    }
    for epoch in 0..EPOCHS {
        report(&mut trials[7], epoch, 1e3);
        assert_eq!(oracle.ends(7, &trials), None);
    }
    trials[7].metrics.clear();
    trials[7].epochs = Some(EPOCHS);
    report(&mut trials[7], 0, 1e3);
    assert_eq!(oracle.ends(7, &trials), Some(EarlyEnd::Pruned));
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
