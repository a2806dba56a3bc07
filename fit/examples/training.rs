//! The training of `benchmarks/training.md` with `Fit`: `training [PLUGIN]` trains an MLP on `inputs.npy` and `labels.npy` of the working
//! folder, on the CPU or on a plugin's device, and prints its seconds, and the loss and accuracy of the trained model, as JSON. It compares
//! nothing: `benchmarks/bench_training.py` runs it beside other libraries.

use candle_core::{Device, Tensor};
use ferrotune_data::Dataset;
use ferrotune_fit::Fit;
use ferrotune_nn::{self as nn, loss::CrossEntropy};
use ferrotune_state::Result;
use ferrotune_trial::AdamW;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::time::Instant;

const BATCH: usize = 128;
const EPOCHS: usize = 5;

fn main() -> Result<()> {
    let begun = Instant::now();
    let device = match std::env::args_os().nth(1) {
        Some(plugin) => ferrotune_xla::open(&PathBuf::from(plugin))?,
        None => Device::Cpu,
    };
    let device_seconds = begun.elapsed().as_secs_f64();
    let (inputs, labels) = (Tensor::read_npy("inputs.npy")?, Tensor::read_npy("labels.npy")?);

    // The first epoch begins here: it contains the making of the model and all compilation.
    let mut ends = vec![Instant::now()];
    let train = Dataset::from_tensors((inputs, labels))?;
    let model = nn::mlp(784, &[128], 10).build(&device)?;
    let history = Fit::new(&model)
        .criterion(CrossEntropy::default())
        .optimizer(AdamW::lr(1e-3))
        .batch(BATCH)
        .epochs(EPOCHS)
        .on_epoch(|_epoch, _logs| {
            ends.push(Instant::now());
            Ok(())
        })
        .run(&train, None)?;
    let seconds: Vec<f64> = ends.windows(2).map(|pair| (pair[1] - pair[0]).as_secs_f64()).collect();

    let measured = Fit::classifier(&model).batch(512).evaluate(&train)?;
    let (losses, loss, accuracy) = (history.get("loss"), measured["loss"], measured["accuracy"]);
    writeln!(
        io::stdout(),
        "{{\"device\": {device_seconds}, \"epochs\": {seconds:?}, \"losses\": {losses:?}, \"loss\": {loss}, \"accuracy\": {accuracy}}}"
    )?;
    Ok(())
}
