//! How good and how fast the oracles are: whole searches on problems with known minima, one line of CSV for each.
//! Starts no worker and writes no journal. `cargo xtask bench hpo` runs this beside Optuna.
#![expect(clippy::print_stdout, reason = "the table is what it is for")]

mod problems;

use ferrotune_tuner::oracle::{Next, create};
use ferrotune_tuner::record::{Ending, Parameter, TrialRecord};
use ferrotune_tuner::spec::{Direction, Objective, StudySpec};
use problems::{PROBLEMS, Problem};
use std::process::ExitCode;
use std::time::Instant;

/// After how many trials the best value is written down.
const COUNTED: [usize; 3] = [25, 50, 100];

/// Arguments: oracle, first seed, number of seeds, and the problems (all if none is named).
fn main() -> ExitCode {
    if let Err(error) = problems::check() {
        eprintln!("{error}");
        return ExitCode::FAILURE;
    }
    // Cargo adds a --bench of its own.
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let [oracle, first, count, wanted @ ..] = arguments.as_slice() else {
        eprintln!("usage: ORACLE FIRST_SEED SEEDS [PROBLEM…]");
        return ExitCode::FAILURE;
    };
    let (Ok(first), Ok(count)) = (first.parse::<u64>(), count.parse::<u64>()) else {
        eprintln!("seeds are whole numbers");
        return ExitCode::FAILURE;
    };
    for seed in first..first + count {
        for problem in PROBLEMS.iter().filter(|(name, _)| wanted.is_empty() || wanted.iter().any(|word| word == name)) {
            search(oracle, problem, seed);
        }
    }
    ExitCode::SUCCESS
}

fn search(name: &str, (problem, objective): &Problem, seed: u64) {
    let trials = COUNTED[COUNTED.len() - 1];
    let mut oracle = match create(&spec(name, trials as u64, seed)) {
        Ok(oracle) => oracle,
        Err(error) => return eprintln!("{error}"),
    };
    let mut records: Vec<TrialRecord> = Vec::with_capacity(trials);
    let mut seconds = 0.0;
    loop {
        let started = Instant::now();
        let next = oracle.next(&records, &[]);
        seconds += started.elapsed().as_secs_f64();
        if next != Next::New {
            break;
        }
        let number = records.len();
        records.push(TrialRecord::new(number as u64));
        let value = objective(&mut |name, distribution| {
            let started = Instant::now();
            let value = oracle.suggest(number as u64, name, &distribution, &records);
            seconds += started.elapsed().as_secs_f64();
            records[number].parameters.insert(name.to_owned(), Parameter { distribution, value: value.clone() });
            value
        });
        (records[number].values, records[number].ending) = (vec![value], Some(Ending::Finished));
    }
    let best = |count: usize| {
        let values = records.iter().take(count).filter_map(TrialRecord::value);
        values.fold(f64::INFINITY, f64::min).to_string()
    };
    let best: Vec<String> = COUNTED.into_iter().map(best).collect();
    println!("{name},{problem},{seed},{},{:.3}", best.join(","), seconds * 1000.0 / records.len() as f64);
}

fn spec(oracle: &str, max_trials: u64, seed: u64) -> StudySpec {
    let objectives = vec![Objective::new("loss", Direction::Min)];
    StudySpec { oracle: oracle.to_owned(), max_trials, seed: Some(seed), ..StudySpec::new("bench", objectives) }
}
