//! A training program of `cargo xtask bench steps`: candle as it is, or, with the feature `ours`, candle as cells and trials
//! have it. Reads lines `MODEL STEPS`, and answers each with the losses of the first and last step and the milliseconds of all.

mod models;
mod weights;

use candle_core::{Device, Result, Tensor};
use candle_nn::{Optimizer as _, ParamsAdamW};
use models::Model;
use std::io::{BufRead as _, Write as _};
use std::time::Instant;

#[cfg(not(feature = "ours"))]
use candle_nn::AdamW;
#[cfg(feature = "ours")]
use ferrotune_trial::optim::AdamW;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// One step of training; returns its loss.
type Step = Box<dyn FnMut() -> Result<Tensor>>;

/// How the model of a name, with these first weights, becomes a step.
type Mode = fn(&str, &str) -> std::result::Result<Step, Failure>;

const MODES: &[(&str, Mode)] = &[
    ("eager", eager),
    #[cfg(feature = "ours")]
    ("compiled", compiled),
];

/// Each operation runs when it is called.
fn eager(model: &str, weights: &str) -> std::result::Result<Step, Failure> {
    let Model { variables, loss } = models::make(model, weights, &Device::Cpu)?;
    let mut optimiser = AdamW::new(variables, ParamsAdamW::default())?;
    Ok(Box::new(move || {
        let loss = loss()?;
        optimiser.step(&loss.backward()?)?;
        Ok(loss)
    }))
}

/// The step is one program of XLA:CPU.
#[cfg(feature = "ours")]
fn compiled(model: &str, weights: &str) -> std::result::Result<Step, Failure> {
    let device = ferrotune_trial::open_device("xla:cpu")?;
    let Model { variables, loss } = models::make(model, weights, &device)?;
    let mut optimiser = AdamW::new(variables, ParamsAdamW::default())?;
    let mut step = ferrotune_xla::Step::new(&device, move |_| {
        let loss = loss()?;
        optimiser.step(&loss.backward()?)?;
        Ok(vec![loss])
    });
    Ok(Box::new(move || Ok(step.run(&[])?.swap_remove(0))))
}

fn main() -> std::result::Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [mode, weights] = arguments.as_slice() else { return Err("usage: PROGRAM MODE WEIGHTS".into()) };
    let mode = MODES.iter().find(|(name, _)| name == mode).ok_or_else(|| format!("there is no mode `{mode}`"))?.1;
    #[cfg(feature = "ours")]
    {
        ferrotune_tuner::process::keep_freed_memory();
        ferrotune_trial::threads::pool_of_this_thread().build_global()?;
    }
    let mut current: Option<(String, Step)> = None;
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let (name, steps) = line.split_once(' ').ok_or("a line is MODEL STEPS")?;
        let (_, step) = match current.take() {
            Some(kept) if kept.0 == name => current.insert(kept),
            other => {
                drop(other);
                current.insert((name.to_owned(), mode(name, weights)?))
            }
        };
        answer(step, steps.parse()?)?;
    }
    Ok(())
}

fn answer(step: &mut Step, steps: usize) -> std::result::Result<(), Failure> {
    let (mut losses, mut times) = (Vec::new(), Vec::new());
    for _ in 0..steps {
        let begun = Instant::now();
        losses.push(step()?.to_scalar::<f32>()?);
        times.push(format!("{:.4}", begun.elapsed().as_secs_f64() * 1e3));
    }
    let (first, last) = (losses.first().ok_or("no steps")?, losses.last().ok_or("no steps")?);
    println!("{first} {last} {}", times.join(" "));
    Ok(std::io::stdout().flush()?)
}
