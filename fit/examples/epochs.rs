//! What `Fit` costs beside a loop written by hand: `epochs [PLUGIN]` trains the same model with both, in turns, on the CPU, or on a
//! plugin's device, where the loop's step is compiled. Prints the median times of an epoch. benchmarks/steps.md has the figures.

use candle_core::{DType, Device, Tensor};
use candle_nn::Optimizer as _;
use candle_nn::loss::cross_entropy;
use ferrotune_data::Dataset;
use ferrotune_fit::Fit;
use ferrotune_nn::{self as nn, Model as _, Sequential};
use ferrotune_state::Result;
use ferrotune_trial::AdamW;
use ferrotune_xla::Step;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::time::Instant;

/// The number of rows, of which the last batch has fewer.
const ROWS: usize = 60_000;
const BATCH: usize = 128;

/// The number of turns, each of some epochs.
const TURNS: usize = 5;
const EPOCHS: usize = 3;

fn main() -> Result<()> {
    let device = match std::env::args_os().nth(1) {
        Some(plugin) => ferrotune_xla::open(&PathBuf::from(plugin))?,
        None => Device::Cpu,
    };
    let inputs = Tensor::rand(0f32, 1., (ROWS, 784), &Device::Cpu)?;
    let labels = Tensor::rand(0f32, 10., ROWS, &Device::Cpu)?.to_dtype(DType::U32)?;
    let train = Dataset::from_tensors((inputs, labels))?;
    let model = nn::mlp(784, &[128], 10).build(&device)?;
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..TURNS {
        times[0].extend(by_hand(&model, &train, &device)?);
        let history = Fit::new(&model)
            .loss(cross_entropy)
            .optimizer(AdamW::lr(1e-4))
            .batch(BATCH)
            .epochs(EPOCHS)
            .run(&train, None)?;
        // The first epoch compiles.
        times[1].extend(history.epochs.iter().skip(1).map(|epoch| epoch.seconds));
    }
    let [by_hand, fit] = times.map(|mut times| {
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    });
    let (one, other) = (by_hand * 1e3, fit * 1e3);
    writeln!(io::stdout(), "an epoch: {one:.1} ms by hand, {other:.1} ms with Fit ({:.3} ×)", fit / by_hand)?;
    Ok(())
}

/// Trains as `docs/steps.md` shows it, and returns the seconds of each epoch but the first.
fn by_hand(model: &Sequential, train: &Dataset<(Tensor, Tensor)>, device: &Device) -> Result<Vec<f64>> {
    let mut optimizer = AdamW::new_lr(model.trainable(), 1e-4)?;
    let mut step = Step::new(device, |arguments: &[Tensor]| {
        let loss = cross_entropy(&model.forward(&arguments[0], true)?, &arguments[1])?;
        optimizer.backward_step(&loss)?;
        Ok(vec![loss])
    });
    let batches = train.shuffle(ROWS, None).batch(BATCH, false).prefetch(2);
    let mut times = Vec::new();
    for epoch in 0..EPOCHS {
        let begun = Instant::now();
        let mut losses = Vec::new();
        for batch in batches.epoch(epoch as u64) {
            let (inputs, labels) = batch?;
            losses.push(step.run(&[inputs.to_device(device)?, labels.to_device(device)?])?.swap_remove(0));
        }
        Tensor::stack(&losses, 0)?.mean_all()?.to_scalar::<f32>()?;
        times.push(begun.elapsed().as_secs_f64());
    }
    Ok(times.split_off(1))
}
