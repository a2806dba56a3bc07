//! A benchmark of the time that it takes to read a journal. Runs no objective.
//!
//! `cargo bench -p ferrotune-journal --bench reading -- TRIALS FOLDER`.
#![expect(clippy::print_stdout, reason = "the figures are what it is for")]

use ferrotune_journal::{End, Journal, Usage};
use ferrotune_space::objective::{Direction, Objective};
use ferrotune_space::record::Ending;
use ferrotune_space::spec::StudySpec;
use ferrotune_space::{Distribution, Parameter, Scale, Value};
use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

/// The number of reports of each trial.
const REPORTS: u64 = 5;

fn main() -> ExitCode {
    // Cargo adds a --bench argument of its own.
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        [trials, folder] => journal(trials, Path::new(folder)),
        _ => Err("usage: TRIALS FOLDER".into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Writes a journal of this many finished trials, if the folder has none, and reads it.
fn journal(trials: &str, folder: &Path) -> Result<(), Box<dyn Error>> {
    let count: u64 = trials.parse()?;
    let spec = spec(count);
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

fn spec(max_trials: u64) -> StudySpec {
    let objectives = vec![Objective::new("loss", Direction::Min)];
    StudySpec { oracle: "random".to_owned(), max_trials, seed: Some(1), ..StudySpec::new("speed", objectives) }
}
