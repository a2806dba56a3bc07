//! A search without processes: ten thousand trials of an objective that takes almost no time, then a loop with `ask` and `tell`.
//!
//! `cargo run --release -p ferrotune-study --example parabola [TRIALS] [FOLDER]`

use ferrotune_study::{Direction, Result, Study};
use std::io::{Write as _, stdout};
use std::time::Instant;

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let trials = arguments.next().map_or(Ok(10_000), |trials| trials.parse())?;
    let directory = arguments.next().unwrap_or_else(|| "studies".to_owned());
    let builder = || Study::builder().directory(&directory).objective("loss", Direction::Min).seed(1).in_process();

    let mut study = builder().project("parabola").oracle("random").max_trials(trials).overwrite().build()?;
    let started = Instant::now();
    study.optimize(|trial| {
        let x: f64 = trial.float("x", -10.0..=10.0).get()?;
        let y: f64 = trial.float("y", 0.1..=10.0).log().get()?;
        let steps: i64 = trial.int("steps", 1..=100).get()?;
        let kind = trial.choice("kind", ["plain", "wide"]).get()?;
        Ok((x - 2.0).powi(2) + (y - 1.0).powi(2) + steps as f64 / 100.0 + kind.len() as f64)
    })?;
    let rate = trials as f64 / started.elapsed().as_secs_f64();
    let best = study.best_trial()?.ok_or("no trial has finished")?;
    writeln!(stdout(), "{trials} trials, {rate:.0} a second; best {:?} in trial {}", best.values, best.number)?;

    let mut study = builder().project("asked").oracle("gp").max_trials(30).overwrite().build()?;
    for _ in 0..30 {
        let trial = study.ask()?;
        let x: f64 = trial.float("x", -10.0..=10.0).get()?;
        study.tell(trial, (x - 2.0).powi(2))?;
    }
    let best = study.best_trial()?.ok_or("no trial has finished")?;
    writeln!(stdout(), "asked and told: best {:?} at {}", best.values, best.parameters["x"].value)?;
    Ok(())
}
