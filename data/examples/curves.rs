//! Prints the table of learning curves `candle-digits`, which `cargo bench -p ferrotune-oracle --bench curves` searches: the
//! validation loss of small candle networks on the digits after each of 27 epochs, a line for each combination of levels.
//! Every combination is trained once, with one split; the weights' first values differ from run to run.
//!
//! `cargo run --release -p ferrotune-data --example curves > benchmarks/curves/candle-digits.csv`
#![expect(clippy::print_stdout, reason = "the table is what it is for")]

use candle_core::{DType, Device, Result, Tensor};
use candle_nn::{AdamW, Dropout, Module as _, Optimizer, SGD, VarBuilder, VarMap, linear, loss};
use std::error::Error;

const EPOCHS: usize = 27;
/// The parameters, each with the number of its levels.
const LEVELS: [(&str, usize); 5] = [("width", 4), ("rate", 7), ("dropout", 3), ("batch", 3), ("optimizer", 2)];
/// The loss of a network that diverges, and the upper limit of all losses.
const WORST: f32 = 9.999;

/// The images and digits for training and for validation.
struct Data {
    train: (Tensor, Tensor),
    valid: (Tensor, Tensor),
}

fn main() -> std::result::Result<(), Box<dyn Error>> {
    let [train, valid] = ferrotune_data::digits()?.split([0.6, 0.4], 7)?;
    let data = Data { train: train.to_tensors()?, valid: valid.to_tensors()? };
    println!("{}", LEVELS.map(|(name, count)| format!("{name}:{count}")).join(","));
    for index in 0..LEVELS.iter().map(|(_, count)| count).product() {
        let mut rest = index;
        let mut combination = LEVELS.map(|_| 0);
        for (level, (_, count)) in combination.iter_mut().zip(LEVELS).rev() {
            *level = rest % count;
            rest /= count;
        }
        let levels = combination.iter().map(ToString::to_string);
        let curve = curve(&data, combination)?.into_iter().map(|loss| format!("{loss:.4}"));
        println!("{}", levels.chain(curve).collect::<Vec<_>>().join(","));
    }
    Ok(())
}

/// The validation losses of a network with one hidden layer, one for each epoch.
fn curve(data: &Data, [width, rate, dropout, batch, optimizer]: [usize; 5]) -> Result<Vec<f32>> {
    let variables = VarMap::new();
    let builder = VarBuilder::from_varmap(&variables, DType::F32, &Device::Cpu);
    let units = 16 << width;
    let (hidden, out) = (linear(64, units, builder.pp("hidden"))?, linear(units, 10, builder.pp("out"))?);
    let dropout = Dropout::new(0.3 * dropout as f32);
    let forward = |images: &Tensor, is_training: bool| {
        let features = hidden.forward(images)?.relu()?;
        out.forward(&dropout.forward(&features, is_training)?)
    };
    let rate = 10f64.powf(0.5 * rate as f64 - 4.0);
    let batch = 16 << (2 * batch);
    if optimizer == 0 {
        let optimizer = AdamW::new_lr(variables.all_vars(), rate)?;
        train(data, batch, optimizer, forward)
    } else {
        // A rate that is good for AdamW is too small for plain gradients.
        let optimizer = SGD::new(variables.all_vars(), 30.0 * rate)?;
        train(data, batch, optimizer, forward)
    }
}

fn train(
    data: &Data,
    batch: usize,
    mut optimizer: impl Optimizer,
    forward: impl Fn(&Tensor, bool) -> Result<Tensor>,
) -> Result<Vec<f32>> {
    let (images, digits) = &data.train;
    let count = images.dim(0)?;
    let mut losses = Vec::with_capacity(EPOCHS);
    for _ in 0..EPOCHS {
        for start in (0..count).step_by(batch) {
            let length = batch.min(count - start);
            let (images, digits) = (images.narrow(0, start, length)?, digits.narrow(0, start, length)?);
            optimizer.backward_step(&loss::cross_entropy(&forward(&images, true)?, &digits)?)?;
        }
        let loss = loss::cross_entropy(&forward(&data.valid.0, false)?, &data.valid.1)?.to_scalar::<f32>()?;
        losses.push(if loss.is_finite() { loss.min(WORST) } else { WORST });
    }
    Ok(losses)
}
