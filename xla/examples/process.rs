//! What the device process costs: `process PLUGIN PROGRAM` does the same with a plugin that this process has opened, and with one that the
//! device process of `PROGRAM` (`ferrotune`) has opened, in turns, and prints both times. benchmarks/steps.md has the figures.

use candle_core::{DType, Device, Tensor};
use candle_nn::{Linear, Module as _, Optimizer as _, SGD, VarBuilder, VarMap, linear, loss, ops};
use ferrotune_devices::pjrt::Plugin;
use ferrotune_devices::process::MemoryClaim;
use ferrotune_devices::runtime::{Client, Route};
use ferrotune_xla::{Options, Step, device_on, identity};
use std::error::Error;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::time::Instant;

/// The number of turns, of which the median counts.
const TURNS: usize = 15;

/// The number of steps in a turn.
const STEPS: usize = 200;

/// The bytes of the array that is copied.
const BYTES: usize = 64 << 20;

/// A training step, which returns its loss.
type Train = Box<dyn FnMut(&[Tensor]) -> candle_core::Result<Vec<Tensor>>>;

type Outcome<T> = std::result::Result<T, Box<dyn Error>>;

/// One of the two forms.
struct Bench {
    device: Device,
    steps: Vec<Step<Train>>,
    batches: Vec<[Tensor; 2]>,
}

fn main() -> Outcome<()> {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let (Some(plugin), Some(program)) = (arguments.next(), arguments.next()) else {
        return Err("usage: process PLUGIN PROGRAM".into());
    };
    let route = Route {
        device: "xla:cpu".to_owned(),
        plugin: plugin.clone(),
        program: Some(program),
        client: "bench".to_owned(),
        memory: MemoryClaim::Free,
    };
    if let Some(earlier) = Client::join(route.clone()) {
        earlier.close()?;
    }
    let begun = Instant::now();
    let far = Client::far(route)?;
    let first = device_on(far.clone(), "", Options::default())?;
    Tensor::ones(4, DType::F32, &first)?.to_vec1::<f32>()?;
    writeln!(
        io::stdout(),
        "the first value, with the start of the process: {:.0} ms",
        begun.elapsed().as_secs_f64() * 1e3
    )?;
    let here = Client::from(Plugin::load(&plugin)?.client(&[])?);
    let mut forms = [Bench::new(here, &identity(&plugin))?, Bench::new(far, &identity(&plugin))?];
    for (index, name) in ["MLP 16-16-4", "MLP 784-128-10"].into_iter().enumerate() {
        compare(&format!("{name}, losses read at the end, a step"), &mut forms, |bench| bench.train(index, false))?;
        compare(&format!("{name}, loss read in each step, a step"), &mut forms, |bench| bench.train(index, true))?;
    }
    compare("64 MiB to the device", &mut forms, |bench| bench.copies().map(|times| times.0))?;
    compare("64 MiB to the host", &mut forms, |bench| bench.copies().map(|times| times.1))?;
    Ok(())
}

/// Measures both forms in turns, and prints the medians in microseconds.
fn compare(name: &str, forms: &mut [Bench; 2], mut measure: impl FnMut(&mut Bench) -> Outcome<f64>) -> Outcome<()> {
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..TURNS {
        for (form, times) in forms.iter_mut().zip(&mut times) {
            times.push(measure(form)? * 1e6);
        }
    }
    let [here, far] = times.map(|mut times| {
        times.sort_by(f64::total_cmp);
        times[TURNS / 2]
    });
    writeln!(
        io::stdout(),
        "{name}: {here:.1} µs here, {far:.1} µs in the device process (+{:.1}, {:.2} ×)",
        far - here,
        far / here
    )?;
    Ok(())
}

impl Bench {
    fn new(client: Client, plugin: &str) -> Outcome<Bench> {
        let device = device_on(client, plugin, Options::default())?;
        let mut bench = Bench { device, steps: Vec::new(), batches: Vec::new() };
        for [inputs, hidden, outputs, rows] in [[16, 16, 4, 16], [784, 128, 10, 64]] {
            let map = VarMap::new();
            let builder = VarBuilder::from_varmap(&map, DType::F32, &bench.device);
            let layers: [Linear; 2] =
                [linear(inputs, hidden, builder.pp("a"))?, linear(hidden, outputs, builder.pp("b"))?];
            let mut optimiser = SGD::new(map.all_vars(), 1e-3)?;
            let train: Train = Box::new(move |arguments| {
                let out = layers[1].forward(&layers[0].forward(&arguments[0])?.relu()?)?;
                let loss = loss::nll(&ops::log_softmax(&out, 1)?, &arguments[1])?;
                optimiser.backward_step(&loss)?;
                Ok(vec![loss])
            });
            bench.steps.push(Step::new(&bench.device, train));
            let x = Tensor::rand(0f32, 1., (rows, inputs), &bench.device)?;
            bench.batches.push([x, Tensor::zeros(rows, DType::U32, &bench.device)?]);
        }
        Ok(bench)
    }

    /// The seconds of a training step.
    fn train(&mut self, index: usize, reads_each: bool) -> Outcome<f64> {
        let begun = Instant::now();
        let mut losses = Vec::new();
        for _ in 0..STEPS {
            let loss = self.steps[index].run(&self.batches[index])?.swap_remove(0);
            if reads_each {
                loss.to_scalar::<f32>()?;
            } else {
                losses.push(loss);
            }
        }
        if !reads_each {
            Tensor::stack(&losses, 0)?.to_vec1::<f32>()?;
        }
        Ok(begun.elapsed().as_secs_f64() / STEPS as f64)
    }

    /// The seconds in which a tensor goes to the device, and those in which it comes back.
    fn copies(&mut self) -> Outcome<(f64, f64)> {
        let values = Tensor::full(7f32, BYTES / size_of::<f32>(), &Device::Cpu)?.force_contiguous()?;
        let begun = Instant::now();
        let there = values.to_device(&self.device)?;
        // Only the sum of the last element and 1 is read; the read of a view would copy the whole tensor.
        (there.narrow(0, BYTES / size_of::<f32>() - 1, 1)? + 1.)?.to_vec1::<f32>()?;
        let up = begun.elapsed().as_secs_f64();
        let begun = Instant::now();
        let back = there.to_vec1::<f32>()?;
        let down = begun.elapsed().as_secs_f64();
        if back.iter().all(|value| *value == 7.) { Ok((up, down)) } else { Err("the array has changed".into()) }
    }
}
