//! Measures the gain of a pipeline, whose stages work at the same time: a perceptron with its layers divided over the cores of a
//! plugin, against the same perceptron on one core.
//!
//! `cargo run --release -p ferrotune-xla --example pipeline -- PLUGIN [STAGES] [MICRO_BATCHES] [WIDTH] [ROWS]`

use candle_core::{DType, Device, Result, Tensor, Var};
use candle_nn::{Optimizer as _, SGD};
use ferrotune_xla::{Pipeline, Stage, cores};
use std::io::Write as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

const LAYERS: usize = 4;
const STEPS: usize = 12;

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let Some(plugin) = arguments.next().map(PathBuf::from) else { candle_core::bail!("name a plugin's library") };
    let mut number = |otherwise| arguments.next().and_then(|text| text.parse().ok()).unwrap_or(otherwise);
    let (stages, micro_batches, width, rows) = (number(2), number(8), number(512), number(1024));
    let cores = cores(&ferrotune_xla::open(&plugin)?)?;
    let mut out = std::io::stdout();
    for (what, devices) in [("one core", vec![&cores[0]; stages]), ("a core each", cores.iter().take(stages).collect())]
    {
        let (started, done) = time(&devices, micro_batches, width, rows)?;
        writeln!(out, "{stages} stages, {what}: run returns after {started:.1?}, the loss is there after {done:.1?}")?;
    }
    Ok(())
}

/// The median times until a step is started, and until it has ended.
fn time(devices: &[&Device], micro_batches: usize, width: usize, rows: usize) -> Result<(Duration, Duration)> {
    let stages = devices.iter().map(|device| stage(device, LAYERS / devices.len(), width)).collect::<Result<_>>()?;
    let mut pipeline = Pipeline::new(stages, |output, _| output.sqr()?.mean_all(), micro_batches)?;
    let x = Tensor::ones((rows, width), DType::F32, devices[0])?;
    let y = Tensor::ones(rows, DType::F32, devices[devices.len() - 1])?;
    let mut times = Vec::new();
    for _ in 0..STEPS {
        let begun = Instant::now();
        let loss = pipeline.run(&x, &y)?;
        let started = begun.elapsed();
        loss.to_scalar::<f32>()?;
        times.push((started, begun.elapsed()));
    }
    let median = |mut times: Vec<Duration>| {
        times.sort();
        times[times.len() / 2]
    };
    Ok((median(times.iter().map(|time| time.0).collect()), median(times.iter().map(|time| time.1).collect())))
}

fn stage(device: &Device, layers: usize, width: usize) -> Result<Stage<'static>> {
    let weights = (0..layers).map(|_| Var::randn(0f32, 0.04, (width, width), device)).collect::<Result<Vec<_>>>()?;
    let mut optimiser = SGD::new(weights.clone(), 1e-3)?;
    let vars = weights.clone();
    let layers = move |x: &Tensor| weights.iter().try_fold(x.clone(), |x, weight| x.matmul(weight)?.tanh());
    Ok(Stage::new(vars, layers, move |gradients| optimiser.step(gradients)))
}
