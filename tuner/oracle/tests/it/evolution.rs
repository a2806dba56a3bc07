//! Tests of CMA-ES and NSGA-II on suitable problems.

use crate::simulation::{Ask, Search, Simulation, conditional};
use crate::spec;
use ferrotune_oracle::analysis::hypervolume::hypervolume;
use ferrotune_oracle::analysis::pareto;
use ferrotune_oracle::{Next, create};
use ferrotune_space::objective::{Constraint, Direction, Objective};
use ferrotune_space::record::{Ending, TrialRecord};
use ferrotune_space::spec::StudySpec;
use ferrotune_space::{Distribution, Parameter, Scale, Value};
use std::collections::BTreeMap;

fn of(oracle: &str, max_trials: u64, seed: u64) -> StudySpec {
    StudySpec { max_trials, seed: Some(seed), ..spec(oracle) }
}

fn unit(ask: &mut Ask<'_>, name: &'static str) -> f64 {
    match ask(name, Distribution::Float { low: 0.0, high: 1.0, step: None, scale: Scale::Linear }) {
        Value::Float(value) => value,
        _ => f64::NAN,
    }
}

fn int(ask: &mut Ask<'_>, name: &'static str, low: i64, high: i64) -> f64 {
    match ask(name, Distribution::Int { low, high, step: 1, scale: Scale::Linear }) {
        Value::Int(value) => value as f64,
        _ => f64::NAN,
    }
}

/// A problem of four numbers that depend on each other, best at 0.7.
fn valley(ask: &mut Ask<'_>) -> f64 {
    let x: Vec<f64> = ["a", "b", "c", "d"].iter().map(|name| unit(ask, name) - 0.7).collect();
    let sum: f64 = x.iter().sum();
    -x.windows(2).map(|pair| 100.0 * (pair[0] - pair[1]).powi(2)).sum::<f64>() - sum * sum
}

/// A problem of numbers and whole numbers, best at 0.3 and at 17, 3 and 1.
fn lattice(ask: &mut Ask<'_>) -> f64 {
    let (x, y) = (unit(ask, "x"), unit(ask, "y"));
    let counts = [(int(ask, "m", 0, 40), 17.0, 40.0), (int(ask, "n", 0, 5), 3.0, 5.0), (int(ask, "o", 0, 1), 1.0, 1.0)];
    let off: f64 = counts.iter().map(|(value, best, range)| ((value - best) / range).powi(2)).sum();
    -(x - 0.3).powi(2) - (y - 0.3).powi(2) - off
}

fn median_best(oracle: &str, max_trials: u64, objective: Simulation) -> f64 {
    let best = |seed| {
        let trials = Search::run(&of(oracle, max_trials, seed), objective).trials;
        trials.iter().filter_map(TrialRecord::value).fold(f64::NEG_INFINITY, f64::max)
    };
    let mut bests: Vec<f64> = (0..9).map(best).collect();
    bests.sort_by(f64::total_cmp);
    bests[4]
}

#[test]
fn cmaes_follows_a_valley_and_fixes_whole_numbers() {
    let (ours, random) = (median_best("cmaes", 300, valley), median_best("random", 300, valley));
    assert!(ours > -4e-3 && ours > random / 100.0, "{ours} {random}");
    let (ours, random) = (median_best("cmaes", 300, lattice), median_best("random", 300, lattice));
    assert!(ours > -1e-4 && ours > random / 10.0, "{ours} {random}");
}

#[test]
fn evolution_searches_conditional_parameters_too() {
    for oracle in ["cmaes", "nsga2", "nsga3"] {
        let (ours, random) = (median_best(oracle, 150, conditional), median_best("random", 150, conditional));
        assert!(ours > -2e-4 && ours > random / 2.0, "{oracle}: {ours} {random}");
    }
}

#[test]
fn straggler_holds_up_no_generation() {
    let spec = of("cmaes", 300, 3);
    let whole = Search::run(&spec, valley).trials;
    let mut search = Search::new(&spec, valley);
    search.step();
    for number in 1..200 {
        search.step();
        // Trial 20 runs until trial 120 has begun.
        if number == 20 {
            search.trials[20].ending = None;
        }
        if number == 120 {
            search.trials[20].ending = Some(Ending::Finished);
        }
    }
    let best = search.trials.iter().filter_map(TrialRecord::value).fold(f64::NEG_INFINITY, f64::max);
    assert!(best > -1e-2, "{best}");
    assert_eq!(search.trials[..21], whole[..21]);
}

/// A search for two objectives; `objective` returns both losses, and the violation of the constraint.
fn trade_offs(spec: &StudySpec, objective: fn(&mut Ask<'_>) -> [f64; 3]) -> Vec<TrialRecord> {
    let mut oracle = create(spec).expect("a valid search");
    let mut trials: Vec<TrialRecord> = Vec::new();
    while oracle.next(&trials, &[]) == Next::New {
        let number = trials.len() as u64;
        trials.push(TrialRecord::new(number));
        let [first, second, excess] = objective(&mut |name, distribution| {
            let value = oracle.suggest(number, name, &distribution, &trials);
            let parameter = Parameter { distribution, value: value.clone() };
            trials[number as usize].parameters.insert(name.to_owned(), parameter);
            value
        });
        let record = &mut trials[number as usize];
        let metrics = [("first", first), ("second", second), ("excess", excess)];
        let metrics = metrics.map(|(name, value)| (name.to_owned(), Some(value)));
        record.metrics.insert(0, BTreeMap::from(metrics));
        (record.values, record.ending) = (vec![first, second], Some(Ending::Finished));
    }
    trials
}

fn two_objectives(oracle: &str, max_trials: u64) -> StudySpec {
    let objectives = ["first", "second"].map(|metric| Objective::new(metric, Direction::Min));
    StudySpec { objectives: objectives.to_vec(), ..of(oracle, max_trials, 5) }
}

/// The problem ZDT1 of Zitzler et al. (2000) in six dimensions: on the Pareto front all but the first number are 0.
fn zdt1(ask: &mut Ask<'_>) -> [f64; 3] {
    let x: Vec<f64> = ["a", "b", "c", "d", "e", "f"].iter().map(|name| unit(ask, name)).collect();
    let g = 1.0 + 9.0 * x[1..].iter().sum::<f64>() / 5.0;
    [x[0], g * (1.0 - (x[0] / g).sqrt()), x[0] - 0.5]
}

fn points(trials: &[TrialRecord]) -> Vec<Vec<f64>> {
    let metric = |trial: &TrialRecord, name| trial.metrics[&0][name].expect("reported");
    trials.iter().map(|trial| vec![metric(trial, "first"), metric(trial, "second")]).collect()
}

#[test]
fn nsga2_finds_the_trade_offs() {
    let volume = |oracle| hypervolume(&points(&trade_offs(&two_objectives(oracle, 600), zdt1)), &[1.1, 1.1]);
    // The whole Pareto front dominates 0.87.
    let (ours, random) = (volume("nsga2"), volume("random"));
    assert!(ours > 0.6 && random < 0.2, "{ours} {random}");
    let trials = trade_offs(&two_objectives("nsga2", 600), zdt1);
    let front = pareto::front(&points(&trials));
    assert!(front.len() > 15, "{} trade-offs", front.len());
}

#[test]
fn nsga2_makes_use_of_a_hundred_trials() {
    let volume = |seed| {
        let spec = StudySpec { seed: Some(seed), ..two_objectives("nsga2", 100) };
        hypervolume(&points(&trade_offs(&spec, zdt1)), &[1.1, 6.0])
    };
    let mut volumes: Vec<f64> = (0..15).map(volume).collect();
    volumes.sort_by(f64::total_cmp);
    // Random draws dominate 4.2 and the whole Pareto front 6.26. A population of a fifth of the trials, with mutants near their
    // originals and children mostly similar to one parent, dominates 5.0.
    assert!(volumes[7] > 5.2, "{volumes:?}");
}

#[test]
fn nsga2_keeps_to_a_constraint() {
    let bound = Constraint { metric: "excess".to_owned(), direction: Direction::Min, bound: 0.0 };
    let trials = trade_offs(&StudySpec { constraints: vec![bound], ..two_objectives("nsga2", 400) }, zdt1);
    let keeps = |trial: &&TrialRecord| trial.metrics[&0]["excess"].is_some_and(|excess| excess <= 0.0);
    let late = &trials[200..];
    assert!(late.iter().filter(keeps).count() > 180, "{}", late.iter().filter(keeps).count());
}

/// The problem DTLZ2 of Deb et al. (2005) with three losses in seven dimensions: the Pareto front is the part of the unit sphere on
/// which no coordinate is negative.
fn dtlz2(ask: &mut Ask<'_>) -> Vec<f64> {
    let x: Vec<f64> = ["a", "b", "c", "d", "e", "f", "g"].iter().map(|name| unit(ask, name)).collect();
    let g: f64 = x[2..].iter().map(|x| (x - 0.5).powi(2)).sum();
    let [first, second] = [x[0], x[1]].map(|x| x * std::f64::consts::FRAC_PI_2);
    [first.cos() * second.cos(), first.cos() * second.sin(), first.sin()].map(|loss| (1.0 + g) * loss).to_vec()
}

/// The losses of all trials of a search for three objectives.
fn dtlz2_by(oracle: &str, max_trials: u64, seed: u64) -> Vec<Vec<f64>> {
    let objectives = ["one", "two", "three"].map(|metric| Objective::new(metric, Direction::Min));
    let spec = StudySpec { objectives: objectives.to_vec(), ..of(oracle, max_trials, seed) };
    let mut oracle = create(&spec).expect("a valid search");
    let mut trials: Vec<TrialRecord> = Vec::new();
    while oracle.next(&trials, &[]) == Next::New {
        let number = trials.len() as u64;
        trials.push(TrialRecord::new(number));
        let losses = dtlz2(&mut |name, distribution| {
            let value = oracle.suggest(number, name, &distribution, &trials);
            let parameter = Parameter { distribution, value: value.clone() };
            trials[number as usize].parameters.insert(name.to_owned(), parameter);
            value
        });
        let record = &mut trials[number as usize];
        (record.values, record.ending) = (losses, Some(Ending::Finished));
    }
    trials.into_iter().map(|trial| trial.values).collect()
}

/// The inverted generational distance: the mean distance of the Pareto front's points from the nearest of `losses`.
fn distance_of_front(losses: &[Vec<f64>]) -> f64 {
    let steps = 0..=12_u32;
    let front = steps.clone().flat_map(|a| steps.clone().map(move |b| (a, b))).filter(|(a, b)| a + b <= 12);
    let on_sphere = |(a, b): (u32, u32)| {
        let point = [f64::from(a), f64::from(b), f64::from(12 - a - b)];
        let norm = point.iter().map(|x| x * x).sum::<f64>().sqrt();
        point.map(|x| x / norm)
    };
    let nearest = |point: [f64; 3]| {
        let square = |losses: &Vec<f64>| losses.iter().zip(point).map(|(a, b)| (a - b).powi(2)).sum::<f64>();
        losses.iter().map(square).fold(f64::INFINITY, f64::min).sqrt()
    };
    let distances: Vec<f64> = front.map(on_sphere).map(nearest).collect();
    distances.iter().sum::<f64>() / distances.len() as f64
}

#[test]
fn nsga3_finds_the_trade_offs_of_three_objectives() {
    let median = |oracle: &str| {
        let mut distances: Vec<f64> = (0..5).map(|seed| distance_of_front(&dtlz2_by(oracle, 600, seed))).collect();
        distances.sort_by(f64::total_cmp);
        distances[2]
    };
    let (ours, random) = (median("nsga3:divisions=6"), median("random"));
    assert!(ours < 0.6 * random, "{ours} {random}");
}

#[test]
fn too_many_reference_points_are_refused() {
    let error = |oracle: &str| create(&two_objectives(oracle, 10)).err().map(|error| error.to_string());
    assert_eq!(error("nsga3:divisions=9999"), None);
    assert_eq!(
        error("nsga3:divisions=10000").as_deref(),
        Some(
            "oracle nsga3 has divisions=10000; give a smaller number: 2 objectives have at most 10000 reference points"
        )
    );
}
