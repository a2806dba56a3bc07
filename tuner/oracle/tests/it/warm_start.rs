//! Tests that oracles learn from the trials of another study.

use crate::simulation::{Ask, Search, Simulation};
use crate::spec;
use ferrotune_space::given::{Given, Values};
use ferrotune_space::record::TrialRecord;
use ferrotune_space::spec::StudySpec;
use ferrotune_space::warm_start::WarmStart;
use ferrotune_space::{Distribution, Scale, Value};

const NAMES: [&str; 3] = ["a", "b", "c"];

fn unit(ask: &mut Ask<'_>, name: &'static str, high: f64) -> f64 {
    match ask(name, Distribution::Float { low: 0.0, high, step: None, scale: Scale::Linear }) {
        Value::Float(value) => value,
        _ => f64::NAN,
    }
}

/// A problem whose best loss is 0, where all parameters are 0.8.
fn quadratic(ask: &mut Ask<'_>) -> f64 {
    NAMES.map(|name| -(unit(ask, name, 1.0) - 0.8).powi(2)).iter().sum()
}

/// The problem `quadratic` in a smaller space.
fn cramped(ask: &mut Ask<'_>) -> f64 {
    NAMES.map(|name| -(unit(ask, name, 0.25) - 0.8).powi(2)).iter().sum()
}

/// The problem `quadratic` without the last parameter.
fn without_c(ask: &mut Ask<'_>) -> f64 {
    NAMES[..2].iter().map(|name| -(unit(ask, name, 1.0) - 0.8).powi(2)).sum()
}

/// The problem `quadratic` with a further parameter.
fn with_d(ask: &mut Ask<'_>) -> f64 {
    quadratic(ask) - (unit(ask, "d", 1.0) - 0.2).powi(2)
}

fn of(oracle: &str, seed: u64, max_trials: u64) -> StudySpec {
    StudySpec { max_trials, seed: Some(seed), ..spec(oracle) }
}

fn source() -> WarmStart {
    source_of(quadratic)
}

/// The trials of another search.
fn source_of(problem: Simulation) -> WarmStart {
    let trials = Search::run(&of("random", 99, 30), problem).trials;
    WarmStart::of("earlier", &trials, Values::new())
}

fn warm(oracle: &str, seed: u64, max_trials: u64) -> StudySpec {
    StudySpec { warm_starts: vec![source()], ..of(oracle, seed, max_trials) }
}

fn suggested(trials: &[TrialRecord]) -> Vec<Vec<Value>> {
    trials.iter().map(|trial| trial.parameters.values().map(|parameter| parameter.value.clone()).collect()).collect()
}

fn best(trials: &[TrialRecord]) -> f64 {
    trials.iter().filter_map(TrialRecord::value).fold(f64::NEG_INFINITY, f64::max)
}

#[test]
fn five_trials_after_another_study_are_better_than_five_of_a_new_one() {
    // A genetic search recombines good trials and learns no model.
    for (oracle, least) in [("auto", 6), ("gp", 6), ("tpe", 6), ("cmaes", 6), ("bohb", 6), ("nsga2", 5)] {
        let pairs = (0..7).map(|seed| {
            let [cold, warm] = [of(oracle, seed, 5), warm(oracle, seed, 5)];
            (best(&Search::run(&cold, quadratic).trials), best(&Search::run(&warm, quadratic).trials))
        });
        let wins = pairs.filter(|(cold, warm)| warm > cold).count();
        assert!(wins >= least, "{oracle}: {wins} of 7");
    }
}

/// The problem `quadratic` on other data: what is best is a little elsewhere, and the values have another unit.
fn moved(ask: &mut Ask<'_>) -> f64 {
    5.0 - 300.0 * NAMES.map(|name| (unit(ask, name, 1.0) - 0.75).powi(2)).iter().sum::<f64>()
}

/// A problem whose best is where that of `quadratic` is bad.
fn reversed(ask: &mut Ask<'_>) -> f64 {
    -7.0 * quadratic(ask)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

#[test]
fn a_study_of_other_data_helps_and_a_wrong_one_costs_little() {
    let after = |studies: &[Simulation], trials| {
        let warm_starts: Vec<WarmStart> = studies.iter().map(|problem| source_of(*problem)).collect();
        let searches = (0..7).map(|seed| {
            let spec = StudySpec { warm_starts: warm_starts.clone(), ..of("auto", seed, trials) };
            best(&Search::run(&spec, quadratic).trials)
        });
        median(searches.collect())
    };
    let studies: [&[Simulation]; 3] = [&[], &[moved], &[reversed, moved]];
    let [cold, right, both] = studies.map(|studies| after(studies, 6));
    assert!(right > 0.3 * cold && both > 0.7 * cold, "{cold} {right} {both}");
    let studies: [&[Simulation]; 2] = [&[], &[reversed]];
    let [cold, wrong] = studies.map(|studies| after(studies, 25));
    assert!(wrong > 3.0 * cold, "{cold} {wrong}");
}

/// A problem with a condition, and with a parameter that the other study does not have.
fn conditional(ask: &mut Ask<'_>) -> f64 {
    let loss = quadratic(ask);
    if unit(ask, "d", 1.0) > 0.6 { loss - unit(ask, "e", 2.0) } else { loss - 0.3 }
}

#[test]
fn an_interrupted_search_goes_on_with_the_same_values_as_conditions_become_known() {
    let whole = || Search::run(&warm("auto", 4, 20), conditional);
    let expected = suggested(&whole().trials);
    for cut_after in [3, 5, 8, 13] {
        let mut cut = whole().cut(cut_after);
        cut.run_on();
        assert_eq!(suggested(&cut.trials), expected, "after {cut_after}");
    }
}

#[test]
fn interrupted_search_goes_on_with_the_same_values() {
    for oracle in ["auto", "tpe", "cmaes", "nsga2"] {
        let whole = Search::run(&warm(oracle, 3, 16), quadratic);
        let expected = suggested(&whole.trials);
        let mut cut = whole.cut(7);
        cut.run_on();
        assert_eq!(suggested(&cut.trials), expected, "{oracle}");
    }
}

#[test]
fn trials_that_do_not_fit_do_not_count_once_that_is_known() {
    for objective in [cramped as Simulation, without_c] {
        for oracle in ["auto", "tpe", "cmaes", "nsga2"] {
            // Neither search takes its first trial from the other study.
            let first = Search::run(&of("random", 1, 1), objective).trials;
            let after = |spec: StudySpec| {
                let mut search = Search::new(&spec, objective);
                search.trials.clone_from(&first);
                search.run_on();
                suggested(&search.trials)
            };
            assert_eq!(after(warm(oracle, 3, 20)), after(of(oracle, 3, 20)), "{oracle}");
        }
    }
}

#[test]
fn parameter_that_only_the_new_search_has_is_searched_in_its_whole_range() {
    for oracle in ["auto", "tpe", "cmaes", "nsga2"] {
        let trials = Search::run(&warm(oracle, 3, 30), with_d).trials;
        let new = trials.iter().filter_map(|trial| match trial.parameters["d"].value {
            Value::Float(value) => Some(value),
            _ => None,
        });
        let (low, high) = new.fold((1.0, 0.0), |(low, high): (f64, f64), value| (low.min(value), high.max(value)));
        assert!(low < 0.3 && high > 0.45, "{oracle}: {low} to {high}");
        assert!(best(&trials) > -0.1, "{oracle}: {}", best(&trials));
    }
}

#[test]
fn trials_with_another_value_of_a_fixed_parameter_do_not_count() {
    let given = Given { fixed: Values::from([("c".to_owned(), Value::Float(0.123))]), ..Given::default() };
    let [warm, cold] = [warm("tpe", 3, 12), of("tpe", 3, 12)]
        .map(|spec| Search::run(&StudySpec { given: given.clone(), ..spec }, quadratic).trials);
    assert_eq!(suggested(&warm), suggested(&cold));
}

#[test]
fn oracles_that_look_at_no_trials_search_as_ever() {
    for oracle in ["random", "grid", "hyperband", "asha"] {
        let [warm, cold] = [warm(oracle, 3, 12), of(oracle, 3, 12)].map(|spec| Search::run(&spec, quadratic).trials);
        assert_eq!(suggested(&warm), suggested(&cold), "{oracle}");
    }
}
