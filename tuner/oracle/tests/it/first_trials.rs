//! Tests of searches with few trials, when there is little data for a model.

use crate::simulation::{Ask, Search, Simulation};
use crate::spec;
use ferrotune_oracle::{Next, create};
use ferrotune_space::record::TrialRecord;
use ferrotune_space::spec::StudySpec;
use ferrotune_space::{Distribution, Parameter, Scale, Value};

fn of(oracle: &str, max_trials: u64, seed: u64) -> StudySpec {
    StudySpec { max_trials, seed: Some(seed), ..spec(oracle) }
}

fn float(ask: &mut Ask<'_>, name: &'static str, low: f64, high: f64) -> f64 {
    match ask(name, Distribution::Float { low, high, step: None, scale: Scale::Linear }) {
        Value::Float(value) => value,
        _ => f64::NAN,
    }
}

fn kind(ask: &mut Ask<'_>, kinds: &[&str]) -> String {
    let values = kinds.iter().map(|kind| Value::Text((*kind).to_owned())).collect();
    ask("kind", Distribution::Choice { values, is_ordered: false }).to_string()
}

/// A problem of seven numbers, whose best values are far from the middle of their ranges.
fn bowl(ask: &mut Ask<'_>) -> f64 {
    let names = ["a", "b", "c", "d", "e", "f", "g"];
    -names.iter().map(|name| (float(ask, name, 0.0, 1.0) - 0.15).powi(2)).sum::<f64>()
}

/// A problem of three kinds with three numbers each: ten parameters, of which a trial asks for four.
fn kinds(ask: &mut Ask<'_>) -> f64 {
    let (names, offset) = match kind(ask, &["a", "b", "c"]).as_str() {
        "a" => (["a1", "a2", "a3"], 0.2),
        "b" => (["b1", "b2", "b3"], 0.0),
        _ => (["c1", "c2", "c3"], 0.4),
    };
    -names.iter().map(|name| (float(ask, name, 0.0, 1.0) - 0.2).powi(2)).sum::<f64>() - offset
}

fn best(spec: &StudySpec, objective: Simulation) -> f64 {
    let trials = Search::run(spec, objective).trials;
    trials.iter().filter_map(TrialRecord::value).fold(f64::NEG_INFINITY, f64::max)
}

fn median_loss(oracle: &str, max_trials: u64, objective: Simulation) -> f64 {
    let mut losses: Vec<f64> = (0..15).map(|seed| -best(&of(oracle, max_trials, seed), objective)).collect();
    losses.sort_by(f64::total_cmp);
    losses[7]
}

/// A problem with a kind that looks good near the middle, and another kind with a lower minimum elsewhere.
fn lure(ask: &mut Ask<'_>) -> f64 {
    let (offset, slope, best) = match kind(ask, &["near", "far", "flat"]).as_str() {
        "near" => (0.5, 0.5, [0.1, -0.2, 0.1]),
        "far" => (0.0, 1.5, [0.5, 0.6, -0.6]),
        _ => (1.0, 0.1, [0.5, 0.0, 0.5]),
    };
    let square = |(name, best): (&&'static str, f64)| (float(ask, name, -1.0, 1.0) - best).powi(2);
    -["x", "y", "z"].iter().zip(best).map(square).sum::<f64>() * slope - offset
}

#[test]
fn auto_leaves_a_place_that_it_knows_exactly() {
    let found = (0..15).filter(|seed| best(&of("auto", 50, *seed), lure) > -0.4).count();
    assert!(found >= 10, "{found} of 15 searches found the better kind");
}

#[test]
fn auto_learns_from_the_first_trials() {
    // Without a model, these searches would be those of `qmc`.
    for (objective, trials) in [(bowl as Simulation, 10), (kinds, 13)] {
        let (auto, spread) = (median_loss("auto", trials, objective), median_loss("qmc", trials, objective));
        assert!(auto < 0.8 * spread, "{auto} against {spread} after {trials} trials");
    }
}

#[test]
fn only_the_first_trial_that_asks_gets_the_middle() {
    let lr = Distribution::Float { low: 1e-4, high: 1e-2, step: None, scale: Scale::Log };
    let layers = Distribution::Int { low: 1, high: 5, step: 1, scale: Scale::Linear };
    for name in ["auto", "gp", "tpe"] {
        let mut oracle = create(&of(name, 10, 3)).unwrap();
        let mut trials = vec![TrialRecord::new(0)];
        assert_eq!(oracle.next(&trials, &[0]), Next::New);
        let Value::Float(first) = oracle.suggest(0, "lr", &lr, &trials) else { panic!("no number") };
        assert!((first / 1e-3 - 1.0).abs() < 1e-9, "{name}: {first}");
        assert_eq!(oracle.suggest(0, "layers", &layers, &trials), Value::Int(3), "{name}");
        // The parameters of another trial, which runs at the same time.
        trials[0]
            .parameters
            .insert("lr".to_owned(), Parameter { distribution: lr.clone(), value: Value::Float(first) });
        trials.push(TrialRecord::new(1));
        let Value::Float(second) = oracle.suggest(1, "lr", &lr, &trials) else { panic!("no number") };
        assert!((second / first).ln().abs() > 0.01, "{name}: {second}");
    }
}

/// A problem in which the kinds' offsets are small compared with the effect of the numbers, so that a wrong kind looks good early.
fn offsets(ask: &mut Ask<'_>) -> f64 {
    let kinds = ["a", "b", "c", "d", "e"];
    let picked = kind(ask, &kinds);
    let (x, y) = (float(ask, "x", -5.0, 5.0), float(ask, "y", -5.0, 5.0));
    let n = match ask("n", Distribution::Int { low: 0, high: 10, step: 1, scale: Scale::Linear }) {
        Value::Int(n) => n as f64,
        _ => f64::NAN,
    };
    let offset =
        kinds.iter().zip([2.0, 0.8, 0.0, 1.4, 3.0]).find(|(kind, _)| **kind == picked).map_or(9.0, |pair| pair.1);
    -0.25 * (x - 1.5).powi(2) - 0.25 * (y + 2.0).powi(2) - 0.1 * (n - 6.0).powi(2) - offset
}

#[test]
fn tpe_leaves_a_category_that_only_began_well() {
    let found = (0..40).filter(|seed| best(&of("tpe", 30, *seed), offsets) > -0.5).count();
    assert!(found >= 36, "{found} of 40 searches");
}
