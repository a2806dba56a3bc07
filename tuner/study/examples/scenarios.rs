//! The programs of this crate's tests: `scenarios NAME FOLDER`. For the tests only.

use ferrotune_study::{Callback, Control, Direction, Finish, Result, Study, StudyBuilder, Trial, TrialRecord};
use std::collections::BTreeMap;
use std::io::{Write as _, stdout};
use std::path::Path;
use std::time::Duration;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [scenario, folder] = arguments.as_slice() else { return Err("usage: NAME FOLDER".into()) };
    let storage = std::env::var("STORAGE").ok();
    let builder = || {
        let builder = Study::builder().directory(folder).objective("loss", Direction::Min).oracle("random").seed(3);
        storage.iter().fold(builder, |builder, storage| builder.storage(storage))
    };
    match scenario.as_str() {
        "endings" => endings(builder().project("endings").max_trials(6).memory_bytes(400 << 20))?,
        "callbacks" => callbacks(builder().project("callbacks").max_trials(9).callback(Teller))?,
        "two" => two(builder)?,
        "threads" => threads(builder)?,
        "optuna" => optuna(builder().project("optuna").oracle("tpe").max_trials(20).in_process())?,
        "beside" => with_optuna(builder().project("optuna").max_trials(150).in_process())?,
        "shared" => {
            let interval = Duration::from_secs(2);
            steps(builder().project("shared").max_trials(12).heartbeat(interval).retries(1))?
        }
        "nothing" => nothing(builder().project("nothing").in_process())?,
        "steps" => steps(builder().project("steps").max_trials(3))?,
        other => return Err(format!("no scenario {other}").into()),
    }
    Ok(())
}

/// A scenario in which each trial ends in another way, and the program continues.
fn endings(builder: StudyBuilder) -> Result<()> {
    let mut study = builder.trial_timeout(Duration::from_secs(3)).build()?;
    let finish = study.optimize(|trial| {
        let x = quick(trial)?;
        match trial.number() {
            1 => panic!("boom"),
            2 => std::process::abort(),
            3 => std::process::exit(0),
            4 => drop(std::hint::black_box(vec![1_u8; 2 << 30])),
            5 => std::thread::sleep(Duration::from_secs(1000)),
            _ => {}
        }
        Ok(x)
    })?;
    say(&format!("{finish:?}"))?;
    for trial in study.trials()? {
        say(&format!("{} {:?}", trial.number, trial.ending.map(|ending| ending.to_string())))?;
    }
    Ok(())
}

/// A callback that prints all events, and ends the search at the fourth trial's end.
#[derive(Debug)]
struct Teller;

impl Callback for Teller {
    fn on_search_begin(&mut self, folder: &Path, earlier_trials: u64) -> Control {
        print_event(&format!("search {} {earlier_trials}", folder.ends_with("callbacks")))
    }

    fn on_trial_begin(&mut self, trial: u64) -> Control {
        print_event(&format!("begin {trial}"))
    }

    fn on_execution_begin(&mut self, trial: u64, execution: u64) -> Control {
        print_event(&format!("execution {execution} of {trial}"))
    }

    fn on_execution_end(&mut self, trial: u64, execution: u64, values: &[f64]) -> Control {
        print_event(&format!("execution {execution} of {trial} has {} value", values.len()))
    }

    fn on_report(&mut self, trial: u64, step: u64, metrics: &BTreeMap<String, Option<f64>>) -> Control {
        print_event(&format!("report {trial} {step} {:?}", metrics.keys().collect::<Vec<_>>()))
    }

    fn on_trial_end(&mut self, trial: &TrialRecord) -> Control {
        print_event(&format!("end {}", trial.number));
        if trial.number == 3 { Control::Stop } else { Control::Continue }
    }

    fn on_search_end(&mut self, finish: &Finish) {
        print_event(&format!("over {finish:?}"));
    }
}

fn print_event(text: &str) -> Control {
    if say(text).is_ok() { Control::Continue } else { Control::Stop }
}

fn callbacks(builder: StudyBuilder) -> Result<()> {
    let mut study = builder.build()?;
    let finish = study.optimize(quick)?;
    say(&format!("{finish:?} {:?}", study.trials()?.len()))
}

/// A scenario of two searches: the second needs the best trial of the first, also in the processes of its trials.
fn two(builder: impl Fn() -> StudyBuilder) -> Result<()> {
    let mut first = builder().project("first").max_trials(2).build()?;
    first.optimize(quick)?;
    let best = first.best_trial()?.and_then(|trial| trial.value()).ok_or("no best")?;
    let mut second = builder().project("second").max_trials(2).build()?;
    second.optimize(|trial| Ok(quick(trial)? + best))?;
    let values = second.trials()?.iter().filter_map(TrialRecord::value).collect::<Vec<_>>();
    say(&format!("{}", values.len() == 2 && values.iter().all(|value| *value >= best)))
}

fn threads(builder: impl Fn() -> StudyBuilder) -> Result<()> {
    let sleeper = std::thread::spawn(std::thread::park);
    let refused = builder().project("threads").build()?.optimize(quick);
    say(&refused.err().map(|error| error.to_string()).unwrap_or_default())?;
    sleeper.thread().unpark();
    Ok(())
}

/// A scenario with the same search as `tests/test_study.py` has in Python.
fn optuna(builder: StudyBuilder) -> Result<()> {
    let mut study = builder.build()?;
    let finish = study.optimize(|trial| {
        let x: f64 = trial.float("x", -4.0..=4.0).get()?;
        let units: i64 = trial.int("units", 1..=64).log().get()?;
        let decay: f64 = trial.float("decay", 0.5..=0.999).reverse_log().get()?;
        let kind = trial.choice("kind", ["plain", "wide"]).ordered().get()?;
        Ok(x * x + units as f64 / 64.0 + decay + kind.len() as f64)
    })?;
    say(&format!("{finish:?} {}", study.trials()?.len()))
}

/// A scenario in which Optuna searches in the same journal at the same time; takes some milliseconds for each trial.
fn with_optuna(builder: StudyBuilder) -> Result<()> {
    let mut study = builder.build()?;
    let finish = study.optimize(|trial| {
        let x: f64 = trial.float("x", 0.0..=1.0).get()?;
        std::thread::sleep(Duration::from_millis(40));
        Ok(x)
    })?;
    say(&format!("{finish:?}"))
}

/// A scenario with empty trials, as many as the variable `TRIALS` says, with two parameters each.
fn nothing(builder: StudyBuilder) -> Result<()> {
    let trials = std::env::var("TRIALS")?.parse()?;
    let finish = builder.max_trials(trials).build()?.optimize(|trial| {
        let (x, y): (f64, f64) = (trial.float("x", 0.0..=1.0).get()?, trial.float("y", 0.0..=1.0).get()?);
        Ok(x + y)
    })?;
    say(&format!("{finish:?}"))
}

/// A scenario that trains in steps of 50 ms, and continues from its checkpoint.
fn steps(builder: StudyBuilder) -> Result<()> {
    let mut study = builder.build()?;
    let finish = study.optimize(|trial| {
        let x: f64 = trial.float("x", 0.0..=1.0).get()?;
        let mut seen = 0_usize;
        trial.restore((&mut seen,))?;
        for epoch in trial.epochs(20) {
            if epoch != seen {
                return Err(format!("has seen {seen} at {epoch}").into());
            }
            std::thread::sleep(Duration::from_millis(50));
            seen += 1;
            trial.report(epoch, [("loss", x + 1.0 / seen as f64)])?;
            trial.checkpoint((&seen,))?;
        }
        trial.best("loss")
    })?;
    say(&format!("{finish:?}"))
}

fn quick(trial: &Trial) -> Result<f64> {
    let x = trial.float("x", 0.0..=1.0).get()?;
    trial.report(0, [("loss", x)])?;
    Ok(x)
}

fn say(text: &str) -> Result<()> {
    writeln!(stdout(), "{text}")?;
    Ok(())
}
