//! A search with a process for each trial: a small network that learns to read handwritten digits.
//!
//! `cargo run --release -p ferrotune-study --example digits [TRIALS] [FOLDER]`. Run again with more trials, the search continues.

use candle_core::{D, DType, Device, Tensor};
use candle_nn::{Linear, Module as _, Optimizer as _, ParamsAdamW, VarBuilder, VarMap};
use ferrotune_study::{Callback, Control, Direction, Result, Study, TrialRecord};
use ferrotune_trial::AdamW;
use std::io::{Write as _, stdout};

/// The UCI optical digits: each line has 64 shades from 0 to 16, then the digit.
const DIGITS: &str = include_str!("../../../data/src/ready/digits.csv");
const EPOCHS: usize = 9;

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let trials = arguments.next().map_or(Ok(20), |trials| trials.parse())?;
    let directory = arguments.next().unwrap_or_else(|| "studies".to_owned());
    // The study is built first, because the program is started again for the search and for each of its trials.
    let mut study = Study::builder()
        .project("digits")
        .directory(directory)
        .objective("val_accuracy", Direction::Max)
        .oracle("hyperband")
        .max_trials(trials)
        .concurrency(2)
        .seed(7)
        .callback(Narrator)
        .build()?;
    let finish = study.optimize(|trial| {
        let units = trial.int("units", 16..=128).step(16).get()?;
        let rate: f64 = trial.float("rate", 1e-4..=1e-1).log().get()?;
        let device = trial.device()?;
        let (images, digits) = load(&device)?;
        let (vars, mut seen) = (VarMap::new(), 0_usize);
        let model = Mlp::new(units, VarBuilder::from_varmap(&vars, DType::F32, &device))?;
        let mut optimiser = AdamW::new(vars.all_vars(), ParamsAdamW { lr: rate, ..ParamsAdamW::default() })?;
        trial.restore((&vars, &mut optimiser, &mut seen))?;
        let train = digits.dim(0)? * 4 / 5;
        for epoch in trial.epochs(EPOCHS) {
            for start in (0..train).step_by(64) {
                let count = 64.min(train - start);
                let (batch, answers) = (images.narrow(0, start, count)?, digits.narrow(0, start, count)?);
                optimiser.backward_step(&candle_nn::loss::cross_entropy(&model.forward(&batch)?, &answers)?)?;
                seen += count;
            }
            let valid = digits.dim(0)? - train;
            let guesses = model.forward(&images.narrow(0, train, valid)?)?.argmax(D::Minus1)?;
            let right = guesses.eq(&digits.narrow(0, train, valid)?)?.to_dtype(DType::F64)?.mean_all()?;
            trial.report(epoch, [("val_accuracy", right.to_scalar::<f64>()?), ("seen", seen as f64)])?;
            trial.checkpoint((&vars, &optimiser, &seen))?;
        }
        trial.best("val_accuracy")
    })?;
    let best = study.best_trial()?.ok_or("no trial has finished")?;
    writeln!(stdout(), "{finish:?}: best {:?} in trial {}", best.values, best.number)?;
    Ok(())
}

/// A callback that prints how each trial ended.
#[derive(Debug)]
struct Narrator;

impl Callback for Narrator {
    fn on_trial_end(&mut self, trial: &TrialRecord) -> Control {
        if let Some(ending) = &trial.ending {
            eprintln!("trial {}: {ending} {:?}", trial.number, trial.values);
        }
        Control::Continue
    }
}

fn load(device: &Device) -> Result<(Tensor, Tensor)> {
    let rows = DIGITS.lines().map(|line| line.split(',').map(str::parse).collect());
    let rows: Vec<Vec<u8>> = rows.collect::<std::result::Result<_, _>>()?;
    let shades: Vec<f32> = rows.iter().flat_map(|row| &row[..64]).map(|shade| f32::from(*shade) / 16.0).collect();
    let digits: Vec<u32> = rows.iter().map(|row| u32::from(row[64])).collect();
    Ok((Tensor::from_vec(shades, (rows.len(), 64), device)?, Tensor::from_vec(digits, rows.len(), device)?))
}

/// A network with 64 pixels, one hidden layer and ten digits.
struct Mlp {
    hidden: Linear,
    output: Linear,
}

impl Mlp {
    fn new(units: usize, vars: VarBuilder<'_>) -> Result<Mlp> {
        let hidden = candle_nn::linear(64, units, vars.pp("hidden"))?;
        Ok(Mlp { hidden, output: candle_nn::linear(units, 10, vars.pp("output"))? })
    }

    fn forward(&self, images: &Tensor) -> Result<Tensor> {
        Ok(self.output.forward(&self.hidden.forward(images)?.relu()?)?)
    }
}
