//! Tests of single oracles beyond the contract: they learn, end, and avoid failures.

use crate::simulation::{Ask, Search, conditional, space};
use crate::spec;
use ferrotune_oracle::{Next, create};
use ferrotune_space::objective::{Constraint, Direction, Objective};
use ferrotune_space::record::{Ending, TrialRecord};
use ferrotune_space::spec::StudySpec;
use ferrotune_space::{Distribution, Scale, Value};
use std::collections::{BTreeMap, HashSet};

fn of(oracle: &str, max_trials: u64, seed: u64) -> StudySpec {
    StudySpec { max_trials, seed: Some(seed), ..spec(oracle) }
}

fn best(search: &Search) -> f64 {
    search.trials.iter().filter_map(TrialRecord::value).fold(f64::NEG_INFINITY, f64::max)
}

fn unit() -> Distribution {
    Distribution::Float { low: 0.0, high: 1.0, step: None, scale: Scale::Linear }
}

fn number(value: Value) -> f64 {
    if let Value::Float(value) = value { value } else { f64::NAN }
}

#[test]
fn learning_oracles_find_more_than_random_draws() {
    for objective in [space as fn(&mut Ask<'_>) -> f64, conditional] {
        let median = |oracle: &str| {
            let mut found: Vec<f64> = (0..5).map(|seed| best(&Search::run(&of(oracle, 50, seed), objective))).collect();
            found.sort_by(f64::total_cmp);
            found[2]
        };
        let random = median("random");
        for oracle in ["tpe", "gp", "auto"] {
            assert!(median(oracle) > random, "{oracle}: {} against {random}", median(oracle));
        }
    }
}

#[test]
fn a_grid_has_every_combination_once_and_ends() {
    let small = |ask: &mut Ask<'_>| {
        let is_deep = ask(
            "deep",
            Distribution::Choice { values: vec![Value::Bool(false), Value::Bool(true)], is_ordered: false },
        );
        if is_deep == Value::Bool(true) {
            ask("layers", Distribution::Int { low: 2, high: 4, step: 1, scale: Scale::Linear });
        }
        ask("lr", Distribution::Float { low: 1e-4, high: 1e-1, step: None, scale: Scale::Log });
        0.0
    };
    let search = Search::run(&of("grid", 1000, 7), small);
    let combinations: HashSet<String> = search.trials.iter().map(|trial| format!("{:?}", trial.parameters)).collect();
    assert_eq!((search.trials.len(), combinations.len()), (10 + 3 * 10, 40));
    assert_eq!(search.next(), Next::Exhausted);
    for end in [1e-4, 1e-1] {
        let is_end = |trial: &TrialRecord| (number(trial.parameters["lr"].value.clone()) / end - 1.0).abs() < 1e-9;
        assert!(search.trials.iter().any(is_end), "{end}");
    }
}

/// The number of crashed trials of an objective with two numbers; the loss falls towards (1, 1), and trials near it have no value.
fn ends_in_a_crash(oracle: &str, ending: &Ending) -> usize {
    let mut search = Search::new(&of(oracle, 40, 3), |ask| number(ask("x", unit())) + number(ask("y", unit())));
    while search.next() == Next::New {
        search.step();
        if let Some(last) = search.trials.last_mut()
            && last.value().is_some_and(|value| value > 1.2)
        {
            (last.values, last.ending) = (Vec::new(), Some(ending.clone()));
        }
    }
    search.trials[15..].iter().filter(|trial| trial.value().is_none()).count()
}

#[test]
fn regions_that_do_not_fit_into_memory_are_avoided() {
    let ending = Ending::OutOfMemory { peak_bytes: 2, budget_bytes: 1 };
    let (gp, random) = (ends_in_a_crash("gp", &ending), ends_in_a_crash("random", &ending));
    // The best possible value is at the edge of the failures, and the oracle must try the edge to find it.
    assert!(gp <= 12 && random >= 3, "{gp} and {random} of 25 trials crash");
}

#[test]
fn constraints_are_kept_to_once_they_are_known() {
    let constraint = Constraint { metric: "size".to_owned(), direction: Direction::Min, bound: 0.5 };
    let spec = StudySpec { constraints: vec![constraint], ..of("gp", 40, 5) };
    let mut search = Search::new(&spec, |ask| number(ask("x", unit())));
    while search.next() == Next::New {
        search.step();
        let last = search.trials.last_mut().unwrap();
        last.metrics.insert(0, BTreeMap::from([("size".to_owned(), last.value())]));
    }
    let sizes: Vec<f64> = search.trials[15..].iter().filter_map(TrialRecord::value).collect();
    let kept: Vec<f64> = sizes.iter().copied().filter(|size| *size <= 0.5).collect();
    assert!(kept.len() >= 13, "{sizes:?}");
    assert!(kept.iter().any(|size| *size > 0.45), "{kept:?}");
}

/// The lowest loss is -5.508, where two constraints meet (problem 24 of Liang et al. 2006).
#[test]
fn a_bound_is_found_by_the_distances_from_it() {
    let constraint = |metric: &str| Constraint { metric: metric.to_owned(), direction: Direction::Min, bound: 0.0 };
    for seed in 1..=3 {
        let objectives = vec![Objective::new("loss", Direction::Min)];
        let constraints = vec![constraint("above"), constraint("below")];
        let spec = StudySpec { max_trials: 40, seed: Some(seed), constraints, ..StudySpec::new("bounds", objectives) };
        let mut search = ferrotune_oracle::Search::new(&spec).unwrap();
        while let Some(trial) = search.ask() {
            let (x, y) = (search.float(trial, "x", 0.0..=3.0).unwrap(), search.float(trial, "y", 0.0..=4.0).unwrap());
            let above = y - 2.0 + x * x * (-8.0 + x * (8.0 - 2.0 * x));
            let below = y - 36.0 + x * (96.0 + x * (-88.0 + x * (32.0 - 4.0 * x)));
            search.report(trial, 0, "above", above).unwrap();
            search.report(trial, 0, "below", below).unwrap();
            search.tell(trial, &[-x - y]).unwrap();
        }
        let best = search.best().and_then(TrialRecord::value).unwrap();
        assert!((-5.5081..-5.5).contains(&best), "seed {seed}: {best}");
    }
}

#[test]
fn several_objectives_give_a_front_and_not_a_point() {
    for oracle in ["gp", "tpe"] {
        let size = Objective::new("size", Direction::Min);
        let spec = of(oracle, 60, 5);
        let objectives = vec![spec.objective().clone(), size];
        let mut search = Search::new(&StudySpec { objectives, ..spec }, |ask| number(ask("x", unit())));
        while search.next() == Next::New {
            search.step();
            let last = search.trials.last_mut().unwrap();
            let x = last.value().unwrap();
            // Accuracy rises with size: every x is on the Pareto front.
            last.values.push(x * x);
        }
        let late: Vec<f64> = search.trials[20..].iter().filter_map(TrialRecord::value).collect();
        let (low, high) = late.iter().fold((1.0_f64, 0.0_f64), |(low, high), x| (low.min(*x), high.max(*x)));
        assert!(low < 0.25 && high > 0.75, "{oracle}: {low}..{high}");
    }
}

#[test]
fn a_trial_that_asks_for_nothing_is_survived() {
    for oracle in ["gp", "tpe", "grid", "auto", "qmc"] {
        let mut oracle = create(&of(oracle, 20, 1)).unwrap();
        let trials: Vec<TrialRecord> = (0..12)
            .map(|number| TrialRecord { ending: Some(Ending::Finished), values: vec![1.0], ..TrialRecord::new(number) })
            .collect();
        assert!(unit().contains(&oracle.suggest(12, "x", &unit(), &trials)));
    }
}
