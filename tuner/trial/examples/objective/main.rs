//! A stand-in for the `ferrotune` program in the tests of trial supervision. `objective supervise SPEC` runs a search,
//! and `objective worker … --symbol SCENARIO` is its worker, which runs the scenario of that name instead of loading
//! a library; only the scenario `library` loads a library. Never used outside tests.

mod faults;
mod memory;
mod staying;
mod training;

use candle_core::{DType, Tensor};
use faults::{die_of_a_fault, faults, leave_a_daemon, leave_shared_memory, short_of_files};
use ferrotune_trial::{Result, Shared, Trial, run_objective};
use ferrotune_tuner::process::{run_trials, set_up_worker, worker_main};
use ferrotune_tuner::supervisor::{Objects, Origin, Trust};
use memory::{change_sizes, look_at_shared, step_again};
use rustix::process::{Signal, getppid, kill_process};
use staying::{heed, in_company};
use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use training::{execution, heavy, long, peaked, population, train};

/// A store without objects: the searches of this program keep what they publish in the database.
struct NoStore;

impl Objects for NoStore {
    fn put(&self, address: &str, _: &File, _: u64) -> Result<(), String> {
        Err(format!("{address}: this program has no object store"))
    }

    fn get(&self, address: &str, _: u64, _: &mut dyn Write) -> Result<bool, String> {
        Err(format!("{address}: this program has no object store"))
    }
}

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().skip(1).collect();
    match args.first().and_then(|arg| arg.to_str()) {
        Some("supervise") => {
            // The optional arguments are the folder of trusted code, and the origin of the search's code.
            let origin = if args.get(3).is_some_and(|from| from == "study") { Origin::Study } else { Origin::User };
            let trust = Trust { known: args.get(2).map(PathBuf::from), code: origin, mirror: origin };
            ferrotune_tuner::supervisor::main(Path::new(&args[1]), &trust, &|_| Ok(None), &NoStore, None, &mut |_| {})
        }
        Some("trial") => {
            let scenario = args.last().and_then(|arg| arg.to_str()).unwrap_or_default().to_owned();
            if scenario == "library" {
                worker_main(args.into_iter().skip(1));
            }
            if let Err(reason) = set_up_worker() {
                eprintln!("{reason}");
                return ExitCode::FAILURE;
            }
            let status = run_trials(|| match scenario.as_str() {
                "trade_off" => run_objective(|trial, _| trade_off(trial)),
                _ => run_objective(|trial, shared| play(&scenario, trial, shared)),
            });
            let status = match status {
                Ok(status) => status,
                Err(reason) => {
                    eprintln!("{reason}");
                    return ExitCode::FAILURE;
                }
            };
            if scenario == "lingering" {
                std::thread::sleep(Duration::from_secs(1000));
            }
            ExitCode::from(u8::try_from(status).unwrap_or(u8::MAX))
        }
        _ => ExitCode::FAILURE,
    }
}

fn play(scenario: &str, trial: &Trial, shared: &Shared) -> Result<Option<f64>> {
    match scenario {
        "quick" | "lingering" => quick(trial),
        "faults" => faults(trial),
        "stops" => {
            let x = quick_parameter(trial)?;
            trial.set_user_attr("half", x / 2.0)?;
            if trial.number() == 2 {
                trial.set_user_attr("note", "good enough")?;
                trial.stop_search()?;
            }
            Ok(Some(x))
        }
        "train" => train(trial, Duration::ZERO),
        "slow" => train(trial, Duration::from_millis(10)),
        "peaked" => peaked(trial),
        "heavy" => heavy(trial),
        "short_of_files" => short_of_files(trial),
        "heedless" => {
            let x = quick_parameter(trial)?;
            let mut seen = 0_u64;
            // Continues as if there were no checkpoint, whatever `restore` returns.
            trial.restore(&mut seen).unwrap_or_default();
            for step in 0..100 {
                std::thread::sleep(Duration::from_millis(10));
                if trial.report(step, [("val_accuracy", x)]).is_ok() {
                    trial.checkpoint(&seen).unwrap_or_default();
                }
            }
            Ok(None)
        }
        "long" => long(trial),
        "deaf" => {
            quick(trial)?;
            std::thread::sleep(Duration::from_secs(1000));
            Ok(None)
        }
        "one_based" => {
            let x = quick_parameter(trial)?;
            trial.epochs(27).try_for_each(|epoch| trial.report(epoch + 1, [("val_accuracy", x)]))?;
            Ok(None)
        }
        "homeless" => {
            std::fs::remove_dir_all(trial.folder())?;
            writeln!(std::io::stdout(), "output without a place")?;
            quick(trial)
        }
        "greedy" => {
            quick_parameter(trial)?;
            std::hint::black_box(vec![1_u8; 4 << 30]);
            Ok(None)
        }
        "threads" => {
            quick_parameter(trial)?;
            loop {
                std::thread::Builder::new()
                    .stack_size(16 << 10)
                    .spawn(|| std::thread::sleep(Duration::from_secs(9)))?;
            }
        }
        "unsteady" => {
            quick_parameter(trial)?;
            // Each worker adds one byte to the file.
            let workers = trial.folder().join("workers");
            let mut seen = std::fs::read(&workers).unwrap_or_default();
            seen.push(b'w');
            std::fs::write(&workers, &seen)?;
            if trial.number() > 0 || seen.len() < 3 {
                die_of_a_fault()?;
            }
            Ok(Some(0.5))
        }
        "sized" => {
            let mib: usize = trial.int("mib", 20..=400).log().get()?;
            let held = vec![1_u8; mib << 20];
            // Long enough for the memory watch to see the memory.
            std::thread::sleep(Duration::from_millis(30));
            Ok(Some(f64::from(std::hint::black_box(held)[mib])))
        }
        "deadly" => {
            let x = quick_parameter(trial)?;
            if trial.number() == 0 {
                leave_a_daemon()?;
                kill_process(getppid().ok_or("no supervisor")?, Signal::KILL)?;
                std::thread::sleep(Duration::from_secs(1000));
            }
            Ok(Some(x))
        }
        "decimals" => decimals(trial),
        "population" => population(trial),
        "executions" => execution(trial),
        "empty" => Ok(Some(1.0)),
        "misnamed" => {
            quick_parameter(trial)?;
            trial.report(0, [("loss", 0.5), ("acc", 0.5)])?;
            Ok(None)
        }
        "inconsistent" => {
            let first: f64 = trial.float("lr", 0.1..=1.0).get()?;
            trial.float("lr", 0.1..=2.0).get()?;
            Ok(Some(first))
        }
        "fickle" => {
            if trial.number() == 0 {
                trial.float("depth", 0.1..=0.9).get().map(Some)
            } else {
                Ok(Some(f64::from(trial.int("depth", 1..=9).get()?)))
            }
        }
        "conditional" => {
            trial.choice("optimiser", ["adam", "sgd"]).get()?;
            let momentum = trial.float("momentum", 0.5..=0.9).step(0.4).when("optimiser", "sgd").default(0.9);
            let momentum = momentum.get()?;
            trial.bool("nesterov").when("momentum", 0.5).get()?;
            Ok(Some(momentum))
        }
        "orphan" => trial.float("momentum", 0.5..=0.9).when("optimiser", "sgd").get().map(Some),
        "misspelt" => {
            trial.choice("optimiser", ["adam", "sgd"]).get()?;
            trial.float("momentum", 0.5..=0.9).when("optimiser", "sdg").get().map(Some)
        }
        "huge" => Ok(Some(trial.int("units", 0..=u64::MAX).get()? as f64)),
        "impossible" => Ok(Some(f64::from(trial.int("units", 9..=9).step(0).get()?))),
        "in_company" => in_company(trial),
        "heed" => heed(trial),
        "step_again" => step_again(trial),
        "change_sizes" => change_sizes(trial),
        "shared" => look_at_shared(trial, shared),
        "shared_memory" => leave_shared_memory(trial),
        _ => Err(format!("no scenario {scenario}").into()),
    }
}

/// A trade-off: a larger number is better and slower. The second trial returns no values, so its reports have them.
fn trade_off(trial: &Trial) -> Result<(Option<f64>, Option<f64>)> {
    let x = quick_parameter(trial)?;
    trial.report(0, [("accuracy", x), ("size", x * x), ("latency", 10.0 * x)])?;
    if trial.number() == 1 { Ok((None, None)) } else { Ok((Some(trial.best("accuracy")?), Some(trial.best("size")?))) }
}

fn quick_parameter(trial: &Trial) -> Result<f64> {
    trial.float("x", 0.0..=1.0).get()
}

/// Ranges in single precision, and bounds that rounded sums have moved away from their decimals.
fn decimals(trial: &Trial) -> Result<Option<f64>> {
    let rate: f32 = trial.float("rate", 0.1..=0.5).step(0.1).default(0.3).get()?;
    let tenth = 0.1;
    let summed: f64 = trial.float("summed", tenth + tenth + tenth..=0.9).step(tenth).get()?;
    let shift: f32 = trial.float("shift", -0.6..=0.6).step(0.2).get()?;
    let lr: f32 = trial.float("lr", 1e-4..=1e-1).log().get()?;
    let share: f32 = trial.choice("share", [0.1, 0.7]).get()?;
    // A condition on a parameter that was asked for in the other precision.
    let near: i64 = trial.int("near", 1..=9).when("rate", tenth + tenth + tenth).get()?;
    let points = [0.1_f32, 0.2, 0.3, 0.4, 0.5];
    if !points.contains(&rate) || !(1e-4..=1e-1).contains(&lr) || ![0.1, 0.7].contains(&share) || shift.abs() > 0.6 {
        return Err(format!("{rate} {lr} {share} {shift} are not the values of their ranges").into());
    }
    Ok(Some(f64::from(rate) + summed + near as f64))
}

fn quick(trial: &Trial) -> Result<Option<f64>> {
    let x = quick_parameter(trial)?;
    let units: usize = trial.int("units", 1..=20_000).log().get()?;
    // The trials have different sizes, as in a real search.
    let weights = Tensor::ones((units, 64), DType::F32, &trial.device()?)?;
    std::hint::black_box(weights.sum_all()?.to_scalar::<f32>()?);
    trial.report(0, [("val_accuracy", x)])?;
    Ok(Some(x))
}
