//! Tests of spaces with few combinations: each combination is tried once, and then the search ends.

use crate::simulation::{Ask, Simulation, answer};
use crate::spec;
use ferrotune_oracle::{Next, Oracle, create, names};
use ferrotune_space::given::Given;
use ferrotune_space::record::{Ending, TrialRecord};
use ferrotune_space::spec::StudySpec;
use ferrotune_space::{Distribution, Scale, Value};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

/// The epochs of a complete training.
const TOTAL: u64 = 9;

fn int(ask: &mut Ask<'_>, name: &'static str, high: i64) -> i64 {
    match ask(name, Distribution::Int { low: 1, high, step: 1, scale: Scale::Linear }) {
        Value::Int(value) => value,
        _ => 0,
    }
}

fn bool(ask: &mut Ask<'_>, name: &'static str) -> bool {
    let values = vec![Value::Bool(false), Value::Bool(true)];
    ask(name, Distribution::Choice { values, is_ordered: false }) == Value::Bool(true)
}

/// A search with several workers. A trial asks for all its parameters at once; a trial whose value is not a number then
/// fails, and any other trains.
struct Search {
    spec: StudySpec,
    objective: Simulation,
    trials: Vec<TrialRecord>,
    oracle: RefCell<Box<dyn Oracle>>,
    /// The running trials, each with the epoch up to which it may train.
    running: Vec<(usize, u64)>,
}

impl Search {
    fn new(spec: &StudySpec, objective: Simulation) -> Search {
        let oracle = RefCell::new(create(spec).expect("a valid search"));
        Search { spec: spec.clone(), objective, trials: Vec::new(), oracle, running: Vec::new() }
    }

    /// Runs the search to its end with this number of workers; after `restart_every` decisions a new oracle answers, as after a restart.
    fn run(mut self, workers: usize, restart_every: usize) -> Vec<TrialRecord> {
        for turn in 1..10_000 {
            if turn % restart_every == 0 {
                self.oracle = RefCell::new(create(&self.spec).expect("a valid search"));
            }
            while self.running.len() < workers && self.begin_next() {}
            if self.running.is_empty() {
                return self.trials;
            }
            // Picks a trial that is not always the first one, because trials take different times.
            let (number, stop) = self.running.remove(turn * 7 % self.running.len());
            let record = &mut self.trials[number];
            if record.ending.is_some() {
                continue;
            }
            let merit = (record.number * 7 % 11) as f64;
            for step in record.epochs_done()..stop {
                record.metrics.insert(step, BTreeMap::from([("accuracy".to_owned(), Some(merit))]));
            }
            (record.epochs, record.paused_at) = (Some(TOTAL), Some(stop));
            if stop == TOTAL {
                (record.ending, record.values) = (Some(Ending::Finished), vec![merit]);
            }
        }
        panic!("{} does not end", self.spec.oracle)
    }

    /// Begins a trial; returns whether there was one.
    fn begin_next(&mut self) -> bool {
        let running: Vec<u64> = self.running.iter().map(|(number, _)| *number as u64).collect();
        let number = match self.oracle.borrow_mut().next(&self.trials, &running) {
            Next::New => {
                self.trials.push(TrialRecord::new(self.trials.len() as u64));
                self.trials.len() - 1
            }
            Next::Continue { trial } => trial as usize,
            Next::Prune { trial } => {
                self.trials[trial as usize].ending = Some(Ending::Pruned);
                return true;
            }
            Next::Wait | Next::Exhausted => return false,
        };
        if self.trials[number].parameters.is_empty() {
            let value = (self.objective)(&mut |name, range| {
                answer((&self.spec, &self.oracle), &mut self.trials, number as u64, name, range)
            });
            if value.is_nan() {
                self.trials[number].ending = Some(Ending::Failed { reason: "no".to_owned() });
            }
        }
        let stop = self.oracle.borrow_mut().epochs(number as u64, TOTAL, &self.trials);
        self.running.push((number, stop));
        true
    }
}

fn of(oracle: &str) -> StudySpec {
    StudySpec { max_trials: 100, ..spec(oracle) }
}

/// Runs a search in several ways; each must try every one of the `count` combinations once.
fn tries_all(spec: &StudySpec, objective: Simulation, count: usize) {
    for workers in [1, 2, 3, 8] {
        for restart_every in [1, 5, 100_000] {
            let trials = Search::new(spec, objective).run(workers, restart_every);
            let combinations: BTreeSet<String> = trials.iter().map(|trial| format!("{:?}", trial.parameters)).collect();
            let case = format!("{} with {workers} workers: {combinations:?}", spec.oracle);
            assert_eq!((trials.len(), combinations.len()), (count, count), "{case}");
            assert!(trials.iter().all(|trial| trial.ending.is_some()), "{case}");
            let finished = |trial: &TrialRecord| trial.ending == Some(Ending::Finished);
            assert!(trials.iter().any(finished), "{case}: none is trained to the end");
        }
    }
}

/// A problem of `a` and `b` with two values each, and a third parameter that a search over four combinations must fix.
fn three(ask: &mut Ask<'_>) -> f64 {
    int(ask, "a", 2);
    bool(ask, "b");
    ask("rate", Distribution::Float { low: 1e-4, high: 1.0, step: None, scale: Scale::Log });
    0.0
}

#[test]
fn grid_has_every_combination_of_what_is_tuned_once() {
    let fixed = BTreeMap::from([("rate".to_owned(), Value::Float(0.123))]);
    let fixed = Given { fixed, ..Given::default() };
    let tune_only = Given { tune_only: vec!["a".to_owned(), "b".to_owned()], ..Given::default() };
    for given in [fixed, tune_only] {
        tries_all(&StudySpec { given, ..of("grid") }, three, 4);
    }
    let all = Given { fixed: BTreeMap::from([("rate".to_owned(), Value::Float(0.5))]), ..Given::default() };
    let both = Given { tune_only: vec!["a".to_owned()], ..all };
    tries_all(&StudySpec { given: both, ..of("grid") }, three, 2);
}

#[test]
fn everything_fixed_is_one_combination() {
    let fixed = ["a", "b", "rate"].map(|name| {
        let value = if name == "b" { Value::Bool(true) } else { Value::Int(1) };
        (name.to_owned(), value)
    });
    let given = Given { fixed: fixed.into(), ..Given::default() };
    for oracle in names().filter(|oracle| !["pbt", "pb2"].contains(oracle)) {
        let trials = Search::new(&StudySpec { given: given.clone(), ..of(oracle) }, three).run(1, 3);
        assert_eq!(trials.len(), 1, "{oracle}");
    }
}

/// A problem in which one value of `a` fails before `b` is asked for, and another one after it.
fn failing(ask: &mut Ask<'_>) -> f64 {
    match (int(ask, "a", 4), ()) {
        (3, ()) => f64::NAN,
        (a, ()) => {
            if int(ask, "b", 3) == 2 && a == 2 {
                f64::NAN
            } else {
                0.0
            }
        }
    }
}

#[test]
fn grid_does_not_repeat_what_fails_early() {
    tries_all(&of("grid"), failing, 10);
}

/// A problem in which the range of `b` depends on `a`, and only some combinations have a parameter `c`.
fn dependent(ask: &mut Ask<'_>) -> f64 {
    let a = int(ask, "a", 4);
    if int(ask, "b", a) == 3 {
        bool(ask, "c");
    }
    0.0
}

#[test]
fn grid_goes_through_ranges_that_depend_on_other_values() {
    tries_all(&of("grid"), dependent, 12);
}

fn six(ask: &mut Ask<'_>) -> f64 {
    bool(ask, "norm");
    int(ask, "layers", 3);
    0.0
}

#[test]
fn every_oracle_ends_once_all_combinations_of_a_finite_space_are_tried() {
    // Population-based training searches schedules: its copies continue with the same values.
    for oracle in names().filter(|oracle| !["pbt", "pb2"].contains(oracle)) {
        for (objective, count) in [(six as Simulation, 6), (dependent, 12), (failing, 10)] {
            let objective_count = |workers| {
                let trials = Search::new(&of(oracle), objective).run(workers, 4);
                let combinations: BTreeSet<String> =
                    trials.iter().map(|trial| format!("{:?}", trial.parameters)).collect();
                assert_eq!(combinations.len(), trials.len(), "{oracle} with {workers} workers");
                assert!(trials.iter().any(|trial| trial.ending == Some(Ending::Finished)), "{oracle}");
                trials.len()
            };
            assert_eq!([1, 2, 3].map(objective_count), [count; 3], "{oracle}");
        }
    }
}

#[test]
fn whole_numbers_of_a_wide_range_are_not_repeated() {
    let wide: Simulation = |ask| -((int(ask, "units", 100) - 37) as f64).powi(2);
    let beside: Simulation = |ask| {
        let units = int(ask, "units", 100);
        let rate = ask("rate", Distribution::Float { low: 0.0, high: 1.0, step: Some(0.02), scale: Scale::Linear });
        let Value::Float(rate) = rate else { return f64::NAN };
        -((units - 37) as f64 / 100.0).powi(2) - (rate - 0.3).powi(2)
    };
    for oracle in ["auto", "gp", "tpe", "cmaes", "nsga2", "nsga3", "qmc", "random"] {
        for objective in [wide, beside] {
            let spec = StudySpec { max_trials: 60, ..spec(oracle) };
            let trials = crate::simulation::Search::run(&spec, objective).trials;
            let distinct: BTreeSet<String> = trials.iter().map(|trial| format!("{:?}", trial.parameters)).collect();
            assert_eq!(distinct.len(), 60, "{oracle}");
            if ["auto", "gp"].contains(&oracle) {
                let best = trials.iter().filter_map(TrialRecord::value).fold(f64::MIN, f64::max);
                assert!(best > -1e-6, "{oracle}: {best}");
            }
        }
    }
}

#[test]
fn tpe_repeats_no_combination_of_a_space_too_large_to_count() {
    let load: Simulation = |ask| {
        let counts = ["a", "b", "c", "d", "e", "f"].map(|name| int(ask, name, 6) as f64);
        let layers = match ask("layers", Distribution::Int { low: 1, high: 8, step: 1, scale: Scale::Log }) {
            Value::Int(layers) => layers as f64,
            _ => f64::NAN,
        };
        let worth = if bool(ask, "fast") { 1.5 } else { 1.0 };
        let weight = counts.iter().sum::<f64>() + layers;
        if weight > 25.0 { -weight } else { worth * counts[0] + 2.0 * counts[1] + counts[2] + layers }
    };
    for seed in 0..10 {
        let spec = StudySpec { max_trials: 80, seed: Some(seed), ..spec("tpe") };
        let trials = crate::simulation::Search::run(&spec, load).trials;
        let distinct: BTreeSet<String> = trials.iter().map(|trial| format!("{:?}", trial.parameters)).collect();
        assert_eq!(distinct.len(), 80, "seed {seed}");
    }
}
