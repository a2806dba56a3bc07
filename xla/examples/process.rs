//! What the device process costs: `process PLUGIN PROGRAM` does the same in a process that has opened the plugin, and in one that uses the
//! device process of `PROGRAM` (`ferrotune`), in turns, and prints both times. benchmarks/steps.md has the figures.

use candle_core::{DType, Device, Tensor};
use candle_nn::{Linear, Module as _, Optimizer as _, SGD, VarBuilder, VarMap, linear, loss, ops};
use ferrotune_devices::pjrt::Plugin;
use ferrotune_devices::process::MemoryClaim;
use ferrotune_devices::runtime::{Client, Route};
use ferrotune_xla::{Options, Step, device_on, identity};
use std::error::Error;
use std::ffi::{OsStr, OsString};
use std::io::{self, BufRead as _, BufReader, Lines, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

/// The number of turns, of which the median counts.
const TURNS: usize = 31;

/// The number of steps in a turn.
const STEPS: usize = 1000;

/// The bytes of the array that is copied.
const BYTES: usize = 64 << 20;

/// The arguments of the processes that measure.
const FORMS: [&str; 2] = ["here", "far"];

/// What is measured, and its request.
const MEASURED: [(&str, &str); 6] = [
    ("MLP 16-16-4, losses read at the end, a step", "0 end"),
    ("MLP 16-16-4, loss read in each step, a step", "0 each"),
    ("MLP 784-128-10, losses read at the end, a step", "1 end"),
    ("MLP 784-128-10, loss read in each step, a step", "1 each"),
    ("64 MiB to the device", "up"),
    ("64 MiB to the host", "down"),
];

/// A training step, which returns its loss.
type Train = Box<dyn FnMut(&[Tensor]) -> candle_core::Result<Vec<Tensor>>>;

type Outcome<T> = std::result::Result<T, Box<dyn Error>>;

/// What one form computes with.
struct Bench {
    device: Device,
    steps: Vec<Step<Train>>,
    batches: Vec<[Tensor; 2]>,
}

fn main() -> Outcome<()> {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    match arguments.as_slice() {
        [plugin, program] => compare_all(plugin.as_ref(), program.as_ref()),
        [plugin, program, form] => serve(plugin.as_ref(), program.as_ref(), form == FORMS[1]),
        _ => Err("usage: process PLUGIN PROGRAM".into()),
    }
}

fn compare_all(plugin: &Path, program: &Path) -> Outcome<()> {
    let start = |form| Running::start(&[plugin.as_os_str(), program.as_os_str(), OsStr::new(form)]);
    let mut here = start(FORMS[0])?;
    here.number()?;
    let mut far = start(FORMS[1])?;
    let first = far.number()?;
    let mut forms = [here, far];
    writeln!(io::stdout(), "the first value, with the start of the process: {:.0} ms", first * 1e3)?;
    for (name, request) in MEASURED {
        let mut turns = [[0.; TURNS]; 2];
        for turn in 0..TURNS {
            for (form, turns) in forms.iter_mut().zip(&mut turns) {
                writeln!(form.requests, "{request}")?;
                turns[turn] = form.number()? * 1e6;
            }
        }
        // The machine's speed changes from one turn to the next ones.
        let more = median(std::array::from_fn(|turn| turns[1][turn] - turns[0][turn]));
        let [here, far] = turns.map(median);
        let ratio = far / here;
        writeln!(
            io::stdout(),
            "{name}: {here:.1} µs here, {far:.1} µs in the device process ({more:+.1}, {ratio:.2} ×)"
        )?;
    }
    Ok(())
}

fn median(mut values: [f64; TURNS]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[TURNS / 2]
}

/// A process of this program that measures one form. In a process that has opened the plugin, the plugin's threads would disturb the other
/// form.
struct Running {
    child: Child,
    requests: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Running {
    fn start(arguments: &[&OsStr]) -> Outcome<Running> {
        let mut command = Command::new(std::env::current_exe()?);
        let mut child = command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (requests, answers) = child.stdin.take().zip(child.stdout.take()).ok_or("a process without pipes")?;
        Ok(Running { child, requests, answers: BufReader::new(answers).lines() })
    }

    fn number(&mut self) -> Outcome<f64> {
        Ok(self.answers.next().ok_or("a form has ended")??.parse()?)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // A form that has failed has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Writes the seconds until the first value, and then those of each request.
fn serve(plugin: &Path, program: &Path, is_far: bool) -> Outcome<()> {
    let begun = Instant::now();
    let client = if is_far {
        let route = Route {
            device: "xla:cpu".to_owned(),
            plugin: plugin.to_owned(),
            program: Some(program.to_owned()),
            client: "bench".to_owned(),
            memory: MemoryClaim::Free,
        };
        if let Some(earlier) = Client::join(route.clone()) {
            earlier.close()?;
        }
        Client::far(route)?
    } else {
        Client::from(Plugin::load(plugin)?.client(&[])?)
    };
    let mut bench = Bench::new(client, &identity(plugin))?;
    Tensor::ones(4, DType::F32, &bench.device)?.to_vec1::<f32>()?;
    writeln!(io::stdout(), "{}", begun.elapsed().as_secs_f64())?;
    for request in io::stdin().lines() {
        let seconds = match request?.as_str() {
            "up" => bench.copies()?.0,
            "down" => bench.copies()?.1,
            step => {
                let (index, reads) = step.split_once(' ').ok_or("an unknown request")?;
                bench.train(index.parse()?, reads == "each")?
            }
        };
        writeln!(io::stdout(), "{seconds}")?;
    }
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
