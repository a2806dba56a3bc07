//! A benchmark of the time in which an oracle suggests a trial. Runs no objective; the benchmark `hpo` measures the quality.
//!
//! `cargo bench -p ferrotune-oracle --bench speed -- ask ORACLE TRIALS`.
#![expect(clippy::print_stdout, reason = "the figures are what it is for")]

use ferrotune_oracle::{Next, create};
use ferrotune_space::objective::{Direction, Objective};
use ferrotune_space::record::{Ending, TrialRecord};
use ferrotune_space::spec::StudySpec;
use ferrotune_space::{Distribution, Parameter, Scale, Value};
use std::error::Error;
use std::process::ExitCode;
use std::time::Instant;

/// The number of suggestions of which the median time is printed.
const REPEATS: usize = 21;

fn main() -> ExitCode {
    // Cargo adds a --bench of its own.
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["ask", oracle, trials] => ask(oracle, trials),
        _ => Err("usage: ask ORACLE TRIALS".into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs one trial after `count` earlier trials of a search: asks for the next step, then for the values of six parameters.
fn ask(oracle: &str, trials: &str) -> Result<(), Box<dyn Error>> {
    let count: usize = trials.parse()?;
    let mut oracle = create(&spec(oracle, (count + 10 * REPEATS) as u64))?;
    let mut records: Vec<TrialRecord> = Vec::new();
    let mut times = Vec::new();
    while times.len() < REPEATS {
        let started = Instant::now();
        if oracle.next(&records, &[]) != Next::New {
            return Err("the oracle has nothing more to try".into());
        }
        let mut record = TrialRecord::new(records.len() as u64);
        let mut loss = 0.0;
        for (index, name) in ["x1", "x2", "x3", "x4", "x5", "x6"].into_iter().enumerate() {
            let distribution = Distribution::Float { low: 0.0, high: 1.0, step: None, scale: Scale::Linear };
            let value = oracle.suggest(record.number, name, &distribution, &records);
            if let Value::Float(value) = value {
                loss += (value - 0.1 * index as f64).powi(2) + 0.1 * (20.0 * value).sin();
            }
            record.parameters.insert(name.to_owned(), Parameter { distribution, value });
        }
        (record.values, record.ending) = (vec![loss], Some(Ending::Finished));
        records.push(record);
        if records.len() > count {
            times.push(started.elapsed().as_secs_f64());
        }
    }
    println!("ask+tell after {count} trials: median {:.3} ms", 1e3 * median(times));
    Ok(())
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn spec(oracle: &str, max_trials: u64) -> StudySpec {
    let objectives = vec![Objective::new("loss", Direction::Min)];
    StudySpec { oracle: oracle.to_owned(), max_trials, seed: Some(1), ..StudySpec::new("speed", objectives) }
}
