//! A benchmark of the oracles' quality and speed: whole searches on problems with known minima, one line of CSV for each.
//! Starts no worker and writes no journal. `cargo xtask bench hpo` also runs Optuna, for comparison.
#![expect(clippy::print_stdout, reason = "the table is what it is for")]

mod problems;

use ferrotune_oracle::analysis::hypervolume::hypervolume;
use ferrotune_oracle::{Next, OracleError, create};
use ferrotune_space::Parameter;
use ferrotune_space::given::Values;
use ferrotune_space::objective::{Direction, Objective};
use ferrotune_space::record::{Ending, TrialRecord};
use ferrotune_space::spec::StudySpec;
use ferrotune_space::warm_start::WarmStart;
use problems::fronts::{FRONTS, Front};
use problems::{Ask, NOISY, PROBLEMS, Problem};
use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64;
use std::collections::VecDeque;
use std::ops::Range;
use std::process::ExitCode;
use std::time::Instant;

/// The numbers of trials after which the best value is recorded.
const COUNTED: [usize; 4] = [10, 25, 50, 100];

/// The settings of the searches.
#[derive(Clone, Copy)]
struct Way {
    /// The number of trials of a search.
    trials: usize,
    /// The number of trials that run at the same time.
    running: usize,
    /// The number of searches that share one study: each has an oracle of its own, which sees the trials of all, and the searches
    /// begin trials in turn.
    supervisors: usize,
    /// Whether noisy problems also print the lowest loss without noise of all trials.
    tells_tried: bool,
    /// The earlier study from which each search learns.
    earlier: Option<Earlier>,
}

/// How the problem of an earlier study, from which a search learns, differs from the search's own.
#[derive(Clone, Copy)]
struct Earlier {
    name: &'static str,
    /// The difference of the two places of a parameter's value, as a share of its range.
    shift: f64,
    /// Whether what is best is where the search's own problem is bad: a wrong study.
    is_reversed: bool,
}

/// The earlier studies: one of other data, as the losses have another unit, too, and a wrong one.
const EARLIER: [Earlier; 2] = [
    Earlier { name: "shifted", shift: 0.05, is_reversed: false },
    Earlier { name: "reversed", shift: 0.0, is_reversed: true },
];
/// The number of trials of an earlier study.
const EARLIER_TRIALS: usize = 50;

/// Arguments: oracle, first seed, number of seeds, and the problems (all if none is named). `--trials N` ends every
/// search after N trials, `--running N` runs N trials at the same time, and `--supervisors N` shares a study among N searches.
/// `--tried` adds a line for each search with noise: the lowest loss without noise of the trials so far. `--from EARLIER` makes each search
/// learn from an earlier study of the same oracle, on a problem like its own.
fn main() -> ExitCode {
    if let Err(error) = problems::check() {
        eprintln!("{error}");
        return ExitCode::FAILURE;
    }
    // Cargo adds a --bench of its own.
    let mut arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let mut way =
        Way { trials: COUNTED[COUNTED.len() - 1], running: 1, supervisors: 1, tells_tried: false, earlier: None };
    if let Some(place) = arguments.iter().position(|argument| argument == "--tried") {
        arguments.remove(place);
        way.tells_tried = true;
    }
    if let Some(place) = arguments.iter().position(|argument| argument == "--from") {
        way.earlier =
            arguments.get(place + 1).and_then(|name| EARLIER.into_iter().find(|earlier| earlier.name == name));
        if way.earlier.is_none() {
            eprintln!("--from needs one of {}", EARLIER.map(|earlier| earlier.name).join(", "));
            return ExitCode::FAILURE;
        }
        arguments.drain(place..place + 2);
    }
    let options =
        [("--trials", &mut way.trials), ("--running", &mut way.running), ("--supervisors", &mut way.supervisors)];
    for (name, number) in options {
        let Some(place) = arguments.iter().position(|argument| argument == name) else { continue };
        let Some(Ok(given @ 1..)) = arguments.get(place + 1).map(|number| number.parse()) else {
            eprintln!("{name} needs a number from 1 on");
            return ExitCode::FAILURE;
        };
        *number = given;
        arguments.drain(place..place + 2);
    }
    let [oracle, first, count, wanted @ ..] = arguments.as_slice() else {
        eprintln!(
            "usage: ORACLE FIRST_SEED SEEDS [PROBLEM…] [--trials N] [--running N] [--supervisors N] [--tried] [--from EARLIER]"
        );
        return ExitCode::FAILURE;
    };
    let (Ok(first), Ok(count)) = (first.parse::<u64>(), count.parse::<u64>()) else {
        eprintln!("seeds are whole numbers");
        return ExitCode::FAILURE;
    };
    match searches(oracle, first..first + count, way, wanted) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs one search for each seed and wanted problem. Problems with two losses need an oracle that supports several objectives.
fn searches(oracle: &str, seeds: Range<u64>, way: Way, wanted: &[String]) -> Result<(), OracleError> {
    let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|word| word == name);
    for seed in seeds {
        for problem in PROBLEMS.iter().filter(|(name, _)| is_wanted(name)) {
            search(oracle, problem, seed, way)?;
        }
        for problem in FRONTS.iter().filter(|(name, ..)| is_wanted(name)) {
            search_front(oracle, problem, seed, way)?;
        }
    }
    Ok(())
}

/// The trials of a search, and the seconds that the oracles took. `evaluate` returns the values of a trial.
fn trials(
    spec: &StudySpec,
    way: Way,
    mut evaluate: impl FnMut(&mut Ask<'_>) -> Vec<f64>,
) -> Result<(Vec<TrialRecord>, f64), OracleError> {
    // Searches of one study use its seed.
    let mut oracles = (0..way.supervisors).map(|_| create(spec)).collect::<Result<Vec<_>, _>>()?;
    let mut records: Vec<TrialRecord> = Vec::new();
    let mut running: VecDeque<(usize, Vec<f64>)> = VecDeque::new();
    let mut seconds = 0.0;
    let end = |(number, values): (usize, Vec<f64>), records: &mut Vec<TrialRecord>| {
        (records[number].values, records[number].ending) = (values, Some(Ending::Finished));
    };
    loop {
        if running.len() == way.running {
            running.pop_front().into_iter().for_each(|trial| end(trial, &mut records));
        }
        let oracle = &mut oracles[records.len() % way.supervisors];
        let started = Instant::now();
        let next = oracle.next(&records, &[]);
        seconds += started.elapsed().as_secs_f64();
        if next != Next::New {
            running.into_iter().for_each(|trial| end(trial, &mut records));
            return Ok((records, seconds));
        }
        let number = records.len();
        records.push(TrialRecord::new(number as u64));
        let values = evaluate(&mut |name, distribution| {
            let started = Instant::now();
            // The best trial of an earlier study is tried first.
            let best = spec.warm_starts.get(number).and_then(|earlier| earlier.best.get(name)).cloned();
            let value = best.unwrap_or_else(|| oracle.suggest(number as u64, name, &distribution, &records));
            seconds += started.elapsed().as_secs_f64();
            records[number].parameters.insert(name.to_owned(), Parameter { distribution, value: value.clone() });
            value
        });
        running.push_back((number, values));
    }
}

/// Prints the loss after each of the [`COUNTED`] numbers of trials: the loss without noise of the trial with the best value.
fn search(oracle: &str, (problem, objective): &Problem, seed: u64, way: Way) -> Result<(), OracleError> {
    let most = way.trials;
    let noise = NOISY.iter().find(|(name, _)| name == problem).map_or(0.0, |(_, deviation)| *deviation);
    let (mut rng, mut losses) = (Pcg64::seed_from_u64(seed), Vec::with_capacity(most));
    let mut spec = spec(oracle, most, seed, &["loss"]);
    if let Some(earlier) = way.earlier {
        spec.warm_starts = vec![warm_start(oracle, *objective, seed, way, earlier)?];
    }
    let (records, seconds) = trials(&spec, way, |ask| {
        losses.push(objective(ask));
        vec![losses[losses.len() - 1] + if noise > 0.0 { noise * normal(&mut rng) } else { 0.0 }]
    })?;
    print(oracle, problem, seed, most, seconds, |count| {
        let values = records.iter().zip(&losses).take(count).filter_map(|(record, loss)| Some((record.value()?, loss)));
        values.min_by(|a, b| a.0.total_cmp(&b.0)).map_or(f64::INFINITY, |(_, loss)| *loss)
    });
    if way.tells_tried && noise > 0.0 {
        let lowest = |count: usize| losses.iter().take(count).copied().fold(f64::INFINITY, f64::min);
        print(oracle, &format!("{problem} tried"), seed, most, seconds, lowest);
    }
    Ok(())
}

/// The trials of an earlier study.
fn warm_start(
    oracle: &str,
    objective: fn(&mut Ask<'_>) -> f64,
    seed: u64,
    way: Way,
    Earlier { name, shift, is_reversed }: Earlier,
) -> Result<WarmStart, OracleError> {
    let spec = spec(oracle, EARLIER_TRIALS, seed + 1_000_000, &["loss"]);
    let way = Way { trials: EARLIER_TRIALS, running: 1, supervisors: 1, earlier: None, ..way };
    let (records, _) = trials(&spec, way, |ask| {
        let loss = objective(&mut |name, distribution| {
            let value = ask(name, distribution.clone());
            let moved = distribution.to_unit(&value).filter(|_| distribution.has_order()).map(|unit| unit + shift);
            moved.map_or(value, |unit| distribution.from_unit(unit.min(1.0)))
        });
        vec![3.0 + if is_reversed { -10.0 * loss } else { 10.0 * loss }]
    })?;
    let mut warm_start = WarmStart::of(name, &records, Values::new());
    let best = warm_start.trials.iter().min_by(|a, b| a.values[0].total_cmp(&b.values[0]));
    warm_start.best = best.map(|trial| trial.parameters.clone()).unwrap_or_default();
    Ok(warm_start)
}

/// Prints the negative hypervolume after each of the [`COUNTED`] numbers of trials, so that low is good.
fn search_front(oracle: &str, (problem, objective, bound): &Front, seed: u64, way: Way) -> Result<(), OracleError> {
    let most = way.trials;
    let (records, seconds) =
        trials(&spec(oracle, most, seed, &["first", "second"]), way, |ask| objective(ask).to_vec())?;
    print(oracle, problem, seed, most, seconds, |count| {
        let points: Vec<Vec<f64>> = records.iter().take(count).map(|record| record.values.clone()).collect();
        -hypervolume(&points, bound)
    });
    Ok(())
}

fn print(oracle: &str, problem: &str, seed: u64, most: usize, seconds: f64, best: impl Fn(usize) -> f64) {
    let best: Vec<String> =
        COUNTED.into_iter().filter(|count| *count <= most).map(|count| best(count).to_string()).collect();
    println!("{oracle},{problem},{seed},{},{:.3}", best.join(","), seconds * 1000.0 / most as f64);
}

/// A draw from the standard normal distribution (Box and Muller 1958).
fn normal(rng: &mut Pcg64) -> f64 {
    let (radius, angle) = (1.0 - rng.random::<f64>(), rng.random::<f64>());
    (-2.0 * radius.ln()).sqrt() * (2.0 * std::f64::consts::PI * angle).cos()
}

fn spec(oracle: &str, max_trials: usize, seed: u64, losses: &[&str]) -> StudySpec {
    let objectives = losses.iter().map(|loss| Objective::new(*loss, Direction::Min)).collect();
    let spec = StudySpec::new("bench", objectives);
    StudySpec { oracle: oracle.to_owned(), max_trials: max_trials as u64, seed: Some(seed), ..spec }
}
