//! A training program of `cargo xtask bench steps`: burn, on the backend that it recommends for the CPU. Reads lines
//! `MODEL STEPS`, and answers each with the losses of the first and last step and the milliseconds of all.

mod models;
mod weights;

use burn::module::Module;
use burn::optim::{AdamWConfig, GradientsParams};
use burn::tensor::{Device, Int, Tensor, TensorData};
use std::io::{BufRead as _, Write as _};
use std::time::Instant;
use weights::Weights;

type Failure = Box<dyn std::error::Error>;

/// One step of training; returns its loss.
type Step = Box<dyn FnMut() -> Result<f32, Failure>>;

fn train<M: Module + 'static>(model: M, loss: impl Fn(&M) -> Tensor<1> + 'static) -> Step {
    let mut optimiser = AdamWConfig::new().with_weight_decay(0.01).with_epsilon(1e-8).init();
    let mut model = Some(model);
    Box::new(move || {
        let trained = model.take().ok_or("a step has failed")?;
        let value = loss(&trained);
        let gradients = GradientsParams::from_grads(value.backward(), &trained);
        model = Some(optimiser.step(1e-3, trained, gradients));
        Ok(value.into_scalar::<f32>())
    })
}

fn make(name: &str, path: &str) -> Result<Step, Failure> {
    let digits = name.find(|letter: char| letter.is_ascii_digit()).unwrap_or(name.len());
    let batch: usize = name[digits..].parse()?;
    let mut weights = Weights::read(path, Device::flex().autodiff())?;
    match &name[..digits] {
        "mlp" => {
            let (inputs, labels) = (weights.inputs([batch, 784]), labels(batch, &weights.device));
            let model = models::Mlp::new(&mut weights);
            Ok(train(model, move |model| cross_entropy(model.forward(inputs.clone()), &labels)))
        }
        "cnn" => {
            let (inputs, labels) = (weights.inputs([batch, 1, 28, 28]), labels(batch, &weights.device));
            let model = models::Cnn::new(&mut weights);
            Ok(train(model, move |model| cross_entropy(model.forward(inputs.clone()), &labels)))
        }
        "transformer" => {
            let (ids, targets) = models::tokens(batch, &weights.device);
            let model = models::Transformer::new(&mut weights);
            Ok(train(model, move |model| cross_entropy(model.forward(ids.clone()), &targets)))
        }
        other => Err(format!("there is no model `{other}`").into()),
    }
}

fn labels(batch: usize, device: &Device) -> Tensor<1, Int> {
    let labels: Vec<i32> = (0..batch as i32).map(|row| row * 7 % 10).collect();
    Tensor::from_data(TensorData::new(labels, [batch]), device)
}

fn cross_entropy(scores: Tensor<2>, labels: &Tensor<1, Int>) -> Tensor<1> {
    burn::nn::loss::CrossEntropyLossConfig::new().init(&scores.device()).forward(scores, labels.clone())
}

fn main() -> Result<(), Failure> {
    let weights = std::env::args().nth(2).ok_or("usage: PROGRAM MODE WEIGHTS")?;
    let mut current: Option<(String, Step)> = None;
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let (name, steps) = line.split_once(' ').ok_or("a line is MODEL STEPS")?;
        let (_, step) = match current.take() {
            Some(kept) if kept.0 == name => current.insert(kept),
            other => {
                drop(other);
                current.insert((name.to_owned(), make(name, &weights)?))
            }
        };
        answer(step, steps.parse()?)?;
    }
    Ok(())
}

fn answer(step: &mut Step, steps: usize) -> Result<(), Failure> {
    let (mut losses, mut times) = (Vec::new(), Vec::new());
    for _ in 0..steps {
        let begun = Instant::now();
        losses.push(step()?);
        times.push(format!("{:.4}", begun.elapsed().as_secs_f64() * 1e3));
    }
    let (first, last) = (losses.first().ok_or("no steps")?, losses.last().ok_or("no steps")?);
    println!("{first} {last} {}", times.join(" "));
    Ok(std::io::stdout().flush()?)
}
