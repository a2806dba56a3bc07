//! Tests of searches whose losses have noise.

use crate::simulation::Search;
use crate::spec;
use ferrotune_space::record::{Ending, TrialRecord};
use ferrotune_space::spec::StudySpec;
use ferrotune_space::{Distribution, Parameter, Scale, Value};
use std::collections::BTreeSet;

/// A number from -1 to 1 that depends on the trial and looks random.
fn noise(trial: u64) -> f64 {
    let mixed = trial.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    ((mixed ^ (mixed >> 31)).wrapping_mul(0xBF58_476D_1CE4_E5B9) >> 11) as f64 / (1u64 << 52) as f64 - 1.0
}

fn ended(number: u64, distribution: &Distribution, value: Value, loss: f64) -> TrialRecord {
    let mut trial = TrialRecord::new(number);
    trial.parameters.insert("x".to_owned(), Parameter { distribution: distribution.clone(), value });
    // The objective of these searches is maximised.
    (trial.values, trial.ending) = (vec![-loss], Some(Ending::Finished));
    trial
}

/// The number of trials in a search over a few whole numbers that repeat another trial, with noise of this deviation.
fn repeats(oracle: &str, deviation: f64) -> usize {
    let range = Distribution::Int { low: 0, high: 63, step: 1, scale: Scale::Linear };
    let asks: crate::simulation::Simulation = |ask| {
        ask("x", Distribution::Int { low: 0, high: 63, step: 1, scale: Scale::Linear });
        0.0
    };
    let mut search = Search::new(&StudySpec { max_trials: 40, ..spec(oracle) }, asks);
    for number in 0..40 {
        search.step();
        let value = search.trials[number].parameters["x"].value.clone();
        let Value::Int(x) = value else { panic!("a whole number") };
        let loss = ((x - 20) as f64 / 20.0).powi(2) + deviation * noise(number as u64);
        search.trials[number] = ended(number as u64, &range, value, loss);
    }
    let distinct: BTreeSet<String> = search.trials.iter().map(|trial| format!("{:?}", trial.parameters)).collect();
    40 - distinct.len()
}

#[test]
fn noise_that_dominates_lets_a_combination_be_tried_again() {
    for oracle in ["auto", "gp"] {
        assert!(repeats(oracle, 0.3) > 2, "{oracle} repeats {}", repeats(oracle, 0.3));
        assert_eq!(repeats(oracle, 0.0), 0, "{oracle}");
    }
    assert_eq!(["gp:noise=0", "tpe"].map(|oracle| repeats(oracle, 0.3)), [0, 0]);
}
