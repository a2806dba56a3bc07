//! Measures a training step with candle's AdamW and with ours, in turn, in milliseconds. Prints rows of a Markdown table.
//! `cargo xtask bench steps` runs it.

use candle_core::{DType, Device, Result, Tensor};
use candle_nn::{Linear, Module as _, Optimizer, ParamsAdamW, VarBuilder, VarMap, linear, loss};
use ferrotune_trial::optim::AdamW;
use std::time::{Duration, Instant};

const LAYERS: [usize; 4] = [784, 512, 512, 10];
const ROUNDS: usize = 200;

/// A network with an optimiser of its own.
struct Training<O> {
    layers: Vec<Linear>,
    optimiser: O,
}

impl<O: Optimizer<Config = ParamsAdamW>> Training<O> {
    fn new() -> Result<Training<O>> {
        let vars = VarMap::new();
        let builder = VarBuilder::from_varmap(&vars, DType::F32, &Device::Cpu);
        let layer = |(index, sizes): (usize, &[usize])| linear(sizes[0], sizes[1], builder.pp(index));
        let layers = LAYERS.windows(2).enumerate().map(layer).collect::<Result<_>>()?;
        Ok(Training { layers, optimiser: O::new(vars.all_vars(), ParamsAdamW::default())? })
    }

    /// The times of a whole step, and of the optimiser in it.
    fn step(&mut self, inputs: &Tensor, labels: &Tensor) -> Result<[Duration; 2]> {
        let begun = Instant::now();
        let (last, hidden) = self.layers.split_last().expect("a network has layers");
        let values = hidden.iter().try_fold(inputs.clone(), |values, layer| layer.forward(&values)?.relu())?;
        let grads = loss::cross_entropy(&last.forward(&values)?, labels)?.backward()?;
        let differentiated = Instant::now();
        self.optimiser.step(&grads)?;
        Ok([begun.elapsed(), differentiated.elapsed()])
    }
}

fn main() -> Result<()> {
    for batch in [128, 512] {
        let inputs = Tensor::rand(0_f32, 1.0, (batch, LAYERS[0]), &Device::Cpu)?;
        let labels = Tensor::from_iter((0..batch as u32).map(|row| row % 10), &Device::Cpu)?;
        let (mut candle, mut ours) = (Training::<candle_nn::AdamW>::new()?, Training::<AdamW>::new()?);
        let mut times = Vec::new();
        for _ in 0..ROUNDS {
            times.push([candle.step(&inputs, &labels)?, ours.step(&inputs, &labels)?]);
        }
        for (part, name) in ["whole step", "AdamW alone"].into_iter().enumerate() {
            let [candle, ours] = [0, 1].map(|which| median(times.iter().map(|pair| pair[which][part])));
            line(&format!("{name}, batch {batch}"), candle, ours);
        }
    }
    Ok(())
}

#[expect(clippy::print_stdout, reason = "the table is what this program is for")]
fn line(name: &str, candle: f64, ours: f64) {
    println!("| {name} | {candle:.2} ms | {ours:.2} ms | {:.2} |", ours / candle);
}

fn median(times: impl Iterator<Item = Duration>) -> f64 {
    let mut times: Vec<f64> = times.map(|time| time.as_secs_f64() * 1e3).collect();
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}
