//! A benchmark of the oracles' quality and speed: whole searches on problems with known minima, one line of CSV for each.
//! Starts no worker and writes no journal. `cargo xtask bench hpo` also runs Optuna, for comparison.
#![expect(clippy::print_stdout, reason = "the table is what it is for")]

mod problems;

use ferrotune_oracle::analysis::hypervolume::hypervolume;
use ferrotune_oracle::{Next, OracleError, create};
use ferrotune_space::Parameter;
use ferrotune_space::objective::{Direction, Objective};
use ferrotune_space::record::{Ending, TrialRecord};
use ferrotune_space::spec::StudySpec;
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
}

/// Arguments: oracle, first seed, number of seeds, and the problems (all if none is named). `--trials N` ends every
/// search after N trials, `--running N` runs N trials at the same time, and `--supervisors N` shares a study among N searches.
/// `--tried` adds a line for each search with noise: the lowest loss without noise of the trials so far.
fn main() -> ExitCode {
    if let Err(error) = problems::check() {
        eprintln!("{error}");
        return ExitCode::FAILURE;
    }
    // Cargo adds a --bench of its own.
    let mut arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let mut way = Way { trials: COUNTED[COUNTED.len() - 1], running: 1, supervisors: 1, tells_tried: false };
    if let Some(place) = arguments.iter().position(|argument| argument == "--tried") {
        arguments.remove(place);
        way.tells_tried = true;
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
        eprintln!("usage: ORACLE FIRST_SEED SEEDS [PROBLEM…] [--trials N] [--running N] [--supervisors N] [--tried]");
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
            let value = oracle.suggest(number as u64, name, &distribution, &records);
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
    let (records, seconds) = trials(&spec(oracle, most, seed, &["loss"]), way, |ask| {
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
