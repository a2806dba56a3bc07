//! One of several processes that open a plugin together: `joint PLUGIN RUNS`, with TensorFlow's `TF_CONFIG`. Each run sums numbers
//! over the devices of all processes, and prints the sum as this process has it.

mod programs;

use ferrotune_devices::pjrt::{Client, CompileOptions, Input, Literal, LoadedExecutable, PjrtError};
use ferrotune_devices::{Cluster, open_jointly};
use programs::sum_over;
use std::error::Error;
use std::io::Write as _;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let (Some(plugin), Some(runs)) = (arguments.next(), arguments.next()) else {
        eprintln!("usage: joint PLUGIN RUNS");
        return ExitCode::from(2);
    };
    let runs = runs.to_string_lossy().parse().unwrap_or(1);
    match run(plugin.as_ref(), runs) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("joint: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(plugin: &std::path::Path, runs: usize) -> Result<(), Box<dyn Error>> {
    let client = open_jointly(plugin, &Cluster::from_environment()?)?;
    let (own, all) = (numbers(&client, false)?, numbers(&client, true)?);
    let mut out = std::io::stdout();
    writeln!(out, "process {} has {own:?} of {all:?}", client.process()?)?;
    let program = compiled(&client, all)?;
    for run in 0..runs {
        writeln!(out, "sum {:?}", sum(&client, &program, run as f32)?)?;
    }
    Ok(())
}

/// The numbers of the devices of this process, or of all.
fn numbers(client: &Client, of_all: bool) -> Result<Vec<i32>, PjrtError> {
    let devices = if of_all { client.all_devices()? } else { client.devices()? };
    devices.iter().map(|device| Ok(device.description()?.id)).collect()
}

/// A program that sums two numbers over these devices.
fn compiled(client: &Client, devices: Vec<i32>) -> Result<LoadedExecutable, Box<dyn Error>> {
    let count = devices.len();
    let options = CompileOptions::replicated(u32::try_from(count)?).on(devices);
    Ok(client.compile(sum_over(count).as_bytes(), &options)?)
}

/// Each device gives its number plus the number of the run, and 1.
fn sum(client: &Client, program: &LoadedExecutable, run: f32) -> Result<Vec<f32>, Box<dyn Error>> {
    let mut inputs = Vec::new();
    for device in program.devices()? {
        let literal = Literal::f32(&[2], &[device.description()?.id as f32 + run, 1.0])?;
        inputs.push(vec![Input::Donate(client.upload(&literal, &device)?)]);
    }
    let rows = program.launch(inputs)?.wait()?;
    let sums = rows.iter().map(|row| row[0].download()?.wait()?.to_f32()).collect::<Result<Vec<_>, _>>()?;
    match sums.as_slice() {
        [first, others @ ..] if others.iter().all(|other| other == first) => Ok(first.clone()),
        _ => Err(format!("the devices of this process have different sums: {sums:?}").into()),
    }
}
