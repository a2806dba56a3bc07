//! A benchmark with real training on the notebooks' digits, searched by Ferrotune's oracles and by Optuna's. `search ORACLE
//! FIRST_SEED SEEDS` prints a line of CSV for each search; `train` reads lines of parameters and answers each with the loss, so that
//! benchmarks/bench_hpo.py can search with the same objective. `cargo xtask bench digits` runs both.
#![expect(clippy::print_stdout, reason = "what it prints is what it is for")]

use candle_core::{D, DType, Device, Tensor, Var};
use candle_nn::{AdamW, Linear, Module as _, Optimizer, ParamsAdamW, SGD};
use ferrotune_study::{Direction, Result, Study, Trial, TrialRecord};
use rand::seq::SliceRandom as _;
use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64;
use serde::Deserialize;
use std::io::BufRead as _;

/// The UCI optical digits: each line has 64 shades from 0 to 16, then the digit.
const DIGITS: &str = include_str!("../../../data/src/ready/digits.csv");
const TRIALS: usize = 40;
/// The numbers of trials after which the best loss is recorded.
const COUNTED: [usize; 3] = [10, 20, TRIALS];
const EPOCHS: usize = 5;

/// The hyper-parameters of one training.
#[derive(Deserialize)]
struct Setting {
    units: usize,
    layers: usize,
    lr: f64,
    batch: usize,
    /// The weight decay of AdamW; without a weight decay, plain gradient descent trains.
    decay: Option<f64>,
}

impl Setting {
    /// Asks for the hyper-parameters, in the same space as benchmarks/bench_hpo.py.
    fn ask(trial: &Trial) -> Result<Setting> {
        let units = trial.int("units", 8..=128).log().get()?;
        let layers = trial.int("layers", 1..=3).get()?;
        let lr = trial.float("lr", 1e-4..=1.0).log().get()?;
        let batch = trial.choice("batch", [16, 32, 64, 128]).get()?;
        let decay = match trial.choice("optimizer", ["adamw", "sgd"]).get()?.as_str() {
            "adamw" => Some(trial.float("decay", 1e-4..=1.0).log().get()?),
            _ => None,
        };
        Ok(Setting { units, layers, lr, batch, decay })
    }
}

fn main() -> Result<()> {
    // Cargo adds a --bench of its own.
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let data = Data::read()?;
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["search", oracle, first, count] => {
            let (first, count): (u64, u64) = (first.parse()?, count.parse()?);
            (first..first + count).try_for_each(|seed| search(oracle, seed, &data))
        }
        ["train", seed] => {
            let seed = seed.parse()?;
            for line in std::io::stdin().lock().lines() {
                println!("{}", train(&serde_json::from_str(&line?)?, seed, &data)?);
            }
            Ok(())
        }
        _ => Err("usage: search ORACLE FIRST_SEED SEEDS, or train SEED".into()),
    }
}

fn search(oracle: &str, seed: u64, data: &Data) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let builder = Study::builder().directory(folder.path()).objective("loss", Direction::Min).oracle(oracle);
    let mut study = builder.seed(seed).max_trials(TRIALS as u64).in_process().build()?;
    study.optimize(|trial| train(&Setting::ask(trial)?, seed, data))?;
    let records = study.trials()?;
    let best = |count: usize| {
        let losses = records.iter().take(count).filter_map(TrialRecord::value);
        losses.fold(f64::INFINITY, f64::min).to_string()
    };
    println!("{oracle},digits,{seed},{}", COUNTED.map(best).join(","));
    Ok(())
}

/// The lowest validation loss of a training; a training that diverges gets ten times the loss of a uniform guess.
fn train(setting: &Setting, seed: u64, data: &Data) -> Result<f64> {
    let mut random = Pcg64::seed_from_u64(seed);
    let sizes = [vec![64], vec![setting.units; setting.layers], vec![10]].concat();
    let (mut linears, mut variables) = (Vec::new(), Vec::new());
    for size in sizes.windows(2) {
        let bound = (6.0 / size[0] as f32).sqrt();
        let weights = (0..size[0] * size[1]).map(|_| random.random_range(-bound..bound)).collect();
        let weight = Var::from_vec(weights, (size[1], size[0]), &Device::Cpu)?;
        let bias = Var::zeros(size[1], DType::F32, &Device::Cpu)?;
        linears.push(Linear::new(weight.as_tensor().clone(), Some(bias.as_tensor().clone())));
        variables.extend([weight, bias]);
    }
    let model = Mlp { linears };
    let lr = setting.lr;
    match setting.decay {
        Some(weight_decay) => {
            let parameters = ParamsAdamW { lr, weight_decay, ..ParamsAdamW::default() };
            fit(&model, AdamW::new(variables, parameters)?, setting.batch, &mut random, data)
        }
        None => fit(&model, SGD::new(variables, lr)?, setting.batch, &mut random, data),
    }
}

fn fit(model: &Mlp, mut steps: impl Optimizer, batch: usize, random: &mut Pcg64, data: &Data) -> Result<f64> {
    let mut lowest = 10.0 * 10_f64.ln();
    let mut order: Vec<u32> = (0..u32::try_from(data.train)?).collect();
    for _ in 0..EPOCHS {
        order.shuffle(random);
        for rows in order.chunks(batch) {
            let index = Tensor::new(rows, &Device::Cpu)?;
            let (images, digits) = (data.images.index_select(&index, 0)?, data.digits.index_select(&index, 0)?);
            steps.backward_step(&candle_nn::loss::cross_entropy(&model.forward(&images)?, &digits)?)?;
        }
        let held_out = data.digits.dim(0)? - data.train;
        let logits = model.forward(&data.images.narrow(0, data.train, held_out)?)?.to_dtype(DType::F64)?;
        let truth = data.digits.narrow(0, data.train, held_out)?.unsqueeze(1)?;
        let loss = candle_nn::ops::log_softmax(&logits, D::Minus1)?.gather(&truth, 1)?.mean_all()?.neg()?;
        // A loss that is NaN does not lower the minimum.
        lowest = lowest.min(loss.to_scalar::<f64>()?);
    }
    Ok(lowest)
}

struct Mlp {
    linears: Vec<Linear>,
}

impl Mlp {
    fn forward(&self, images: &Tensor) -> candle_core::Result<Tensor> {
        let mut x = images.clone();
        for (index, linear) in self.linears.iter().enumerate() {
            x = if index == 0 { linear.forward(&x)? } else { linear.forward(&x.relu()?)? };
        }
        Ok(x)
    }
}

/// The images, each with 64 shades, and their digits; the first `train` images are for training.
struct Data {
    images: Tensor,
    digits: Tensor,
    train: usize,
}

impl Data {
    fn read() -> Result<Data> {
        let rows = DIGITS.lines().map(|line| line.split(',').map(str::parse).collect());
        let mut rows: Vec<Vec<u8>> = rows.collect::<std::result::Result<_, _>>()?;
        rows.shuffle(&mut Pcg64::seed_from_u64(7));
        let shades: Vec<f32> = rows.iter().flat_map(|row| &row[..64]).map(|shade| f32::from(*shade) / 16.0).collect();
        let digits: Vec<u32> = rows.iter().map(|row| u32::from(row[64])).collect();
        let images = Tensor::from_vec(shades, (rows.len(), 64), &Device::Cpu)?;
        Ok(Data { images, digits: Tensor::from_vec(digits, rows.len(), &Device::Cpu)?, train: rows.len() * 4 / 5 })
    }
}
