//! How long an oracle takes to suggest a trial, and a journal to be read. Runs no objective; `hpo` judges how good the
//! suggestions are.
//!
//! `cargo bench -p ferrotune-tuner --bench speed -- ask ORACLE TRIALS` and `… -- journal TRIALS FOLDER`.
#![expect(clippy::print_stdout, reason = "the figures are what it is for")]

use ferrotune_space::objective::{Direction, Objective};
use ferrotune_space::record::{Ending, TrialRecord};
use ferrotune_space::spec::StudySpec;
use ferrotune_space::{Distribution, Parameter, Scale, Value};
use ferrotune_tuner::journal::{End, Journal, Usage};
use ferrotune_tuner::oracle::{Next, create};
use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

/// Suggestions and readings of which the median is told.
const REPEATS: usize = 21;
/// Reports of each trial in a journal.
const REPORTS: u64 = 5;

fn main() -> ExitCode {
    // Cargo adds a --bench of its own.
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["ask", oracle, trials] => ask(oracle, trials),
        ["journal", trials, folder] => journal(trials, Path::new(folder)),
        _ => Err("usage: ask ORACLE TRIALS | journal TRIALS FOLDER".into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// One whole trial of a search that has had so many: what to do next, a value for each of six parameters, the end.
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

/// Writes a journal of so many finished trials, if the folder has none, and reads it.
fn journal(trials: &str, folder: &Path) -> Result<(), Box<dyn Error>> {
    let count: u64 = trials.parse()?;
    let spec = spec("random", count);
    if !folder.exists() {
        let mut journal = Journal::open(folder, &spec)?;
        (0..count).try_for_each(|_| write(&mut journal))?;
    }
    let bytes = std::fs::metadata(folder.join("journal.log"))?.len();
    println!("{count} trials, {REPORTS} reports each: {:.1} MB", bytes as f64 / 1e6);
    let time = |read: &dyn Fn() -> Result<usize, Box<dyn Error>>| -> Result<f64, Box<dyn Error>> {
        let mut times = Vec::new();
        for _ in 0..5 {
            let started = Instant::now();
            let found = read()? as u64;
            times.push(started.elapsed().as_secs_f64());
            if found != count {
                return Err(format!("{found} trials were read").into());
            }
        }
        Ok(median(times))
    };
    println!("Journal::read: median {:.3} s", time(&|| Ok(Journal::read(folder)?.trials.len()))?);
    println!("Journal::open: median {:.3} s", time(&|| Ok(Journal::open(folder, &spec)?.trials().len()))?);
    Ok(())
}

fn write(journal: &mut Journal) -> Result<(), Box<dyn Error>> {
    let number = journal.begin_trial()?;
    let share = (number % 997) as f64 / 997.0;
    journal.worker_started(number)?;
    let float = Distribution::Float { low: 1e-4, high: 1.0, step: None, scale: Scale::Log };
    let int = Distribution::Int { low: 32, high: 512, step: 32, scale: Scale::Linear };
    let values = ["adam", "sgd"].map(|name| Value::Text(name.to_owned())).to_vec();
    let choice = Distribution::Choice { values, is_ordered: false };
    let parameters = [
        ("lr", float.from_unit(share), float.clone()),
        ("dropout", float.from_unit(1.0 - share), float),
        ("units", int.from_unit(share), int),
        ("optimiser", choice.from_unit(share), choice),
    ];
    for (name, value, distribution) in parameters {
        journal.parameter(number, name, Parameter { distribution, value })?;
    }
    for step in 0..REPORTS {
        let value = share * (step + 1) as f64;
        journal.report(number, step, &BTreeMap::from([("loss".to_owned(), Some(value))]))?;
    }
    let usage = Usage { seconds: share, peak_bytes: 1 << 20, unended_workers: 1, ..Usage::default() };
    let end = End { ending: Ending::Finished, values: vec![share], executions: Vec::new() };
    journal.trial_ended(number, usage, end)?;
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
