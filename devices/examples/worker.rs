//! One worker of several: `TF_CONFIG=… worker STEPS [STEP_TIMEOUT_S]` fits a line by gradient descent on its part of the
//! examples, in double precision, and prints the bits of the weights. Without `TF_CONFIG` the worker fits the line alone, on all
//! examples. The worker prints `begun` after its first step.

use ferrotune_devices::{Cluster, Replica, Strategy, StrategyError};
use std::error::Error;
use std::io::Write as _;
use std::process::ExitCode;

const FEATURES: usize = 5;
const EXAMPLES: usize = 24;
const RATE: f64 = 0.1;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("worker: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let steps: u64 = arguments.next().ok_or("usage: worker STEPS [STEP_TIMEOUT_S]")?.parse()?;
    let step_timeout_s = arguments.next().map_or(Ok(60), |text| text.parse())?;
    let strategy = match std::env::var_os("TF_CONFIG") {
        Some(_) => Strategy::on("cpu").across(Cluster::from_environment()?.with_timeouts(60, step_timeout_s)),
        None => Strategy::on("cpu"),
    };
    let weights = strategy.scope(|replica| fit(replica, steps)).swap_remove(0)?;
    let bits: Vec<String> = weights.iter().map(|weight| format!("{:016x}", weight.to_bits())).collect();
    writeln!(std::io::stdout(), "{}", bits.join(" "))?;
    Ok(())
}

fn fit(replica: &Replica<'_>, steps: u64) -> Result<Vec<f64>, StrategyError> {
    let value = |example: usize, feature: usize| ((example * FEATURES + feature) as f64 * 0.7).sin();
    let target = |example: usize| (example as f64 * 1.3).cos();
    let share = EXAMPLES / replica.count();
    let own = replica.index() * share..(replica.index() + 1) * share;
    let mut weights = vec![0.0; FEATURES];
    for step in 0..steps {
        let mut gradient = vec![0.0; FEATURES];
        for example in own.clone() {
            let predicted: f64 = (0..FEATURES).map(|feature| weights[feature] * value(example, feature)).sum();
            let slope = 2.0 * (predicted - target(example)) / share as f64;
            (0..FEATURES).for_each(|feature| gradient[feature] += slope * value(example, feature));
        }
        replica.all_reduce_mean(&mut gradient)?;
        weights.iter_mut().zip(&gradient).for_each(|(weight, slope)| *weight -= RATE * slope);
        if step == 0 && writeln!(std::io::stdout(), "begun").is_err() {
            break;
        }
    }
    Ok(weights)
}
