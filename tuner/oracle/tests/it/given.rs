//! Tests that oracles do not choose the parameters that the user has set.

use crate::simulation::{Ask, Search, Simulation};
use crate::spec;
use ferrotune_oracle::names;
use ferrotune_space::given::{Given, Values};
use ferrotune_space::record::TrialRecord;
use ferrotune_space::spec::StudySpec;
use ferrotune_space::{Distribution, Scale, Value};

const TUNED: [&str; 4] = ["a", "c", "e", "g"];
const FIXED: [&str; 4] = ["b", "d", "f", "z"];

fn of(oracle: &str, seed: u64) -> StudySpec {
    StudySpec { max_trials: 40, seed: Some(seed), ..spec(oracle) }
}

fn unit(ask: &mut Ask<'_>, name: &'static str) -> f64 {
    match ask(name, Distribution::Float { low: 0.0, high: 1.0, step: None, scale: Scale::Linear }) {
        Value::Float(value) => value,
        _ => f64::NAN,
    }
}

/// A problem whose best loss is 0, where all parameters are 0.3.
fn sphere(ask: &mut Ask<'_>) -> f64 {
    TUNED.map(|name| -(unit(ask, name) - 0.3).powi(2)).iter().sum()
}

/// The problem `sphere` with further parameters, which have no effect.
fn sphere_among_others(ask: &mut Ask<'_>) -> f64 {
    let each = |(tuned, other): (&'static str, &'static str)| {
        let tuned = -(unit(ask, tuned) - 0.3).powi(2);
        unit(ask, other);
        tuned
    };
    TUNED.into_iter().zip(FIXED).map(each).sum()
}

fn fixed() -> Given {
    let fixed: Values = FIXED.iter().map(|name| ((*name).to_owned(), Value::Float(0.5))).collect();
    Given { fixed, ..Given::default() }
}

fn suggested(trials: &[TrialRecord]) -> Vec<Vec<Value>> {
    trials.iter().map(|trial| TUNED.iter().map(|name| trial.parameters[*name].value.clone()).collect()).collect()
}

#[test]
fn parameters_that_are_not_tuned_change_no_suggestion() {
    let tune_only = Given { tune_only: TUNED.map(str::to_owned).to_vec(), ..Given::default() };
    for oracle in names() {
        let alone = Search::run(&of(oracle, 3), sphere).trials;
        for given in [fixed(), tune_only.clone()] {
            let beside = Search::run(&StudySpec { given, ..of(oracle, 3) }, sphere_among_others).trials;
            assert_eq!(suggested(&beside), suggested(&alone), "{oracle}");
        }
    }
}

#[test]
fn trials_with_another_value_of_a_fixed_parameter_do_not_count() {
    for oracle in names() {
        let spec = StudySpec { given: fixed(), ..of(oracle, 3) };
        // Trials in which the parameter was tuned freely, or enqueued with another value, belong to another search.
        let mut search = Search::run(&StudySpec { max_trials: 20, ..of("random", 9) }, sphere_among_others);
        let mut without = Search::new(&spec, sphere_among_others);
        without.trials = (0..20).map(TrialRecord::new).collect();
        without.trials.iter_mut().for_each(|trial| trial.ending = search.trials[0].ending.clone());
        (search.spec, search.objective) = (spec, sphere_among_others as Simulation);
        search.restart().run_on();
        without.run_on();
        assert_eq!(suggested(&search.trials[20..]), suggested(&without.trials[20..]), "{oracle}");
    }
}
