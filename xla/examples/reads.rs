//! Measures loops that read a value in each step without `compile`: `reads PLUGIN [LOOP]` prints for each loop how many programs it
//! compiles, the time of its first 40 steps, and the time of 40 more. benchmarks/steps.md has the figures.

use candle_core::{D, DType, Device, Result, Tensor};
use candle_nn::rnn::{GRUConfig, RNN as _, gru};
use candle_nn::{LayerNorm, Linear, Module as _, Optimizer as _, SGD, VarBuilder, VarMap, layer_norm, linear, ops};
use ferrotune_xla::backend_of;
use std::error::Error;
use std::io::{self, Write as _};
use std::path::Path;
use std::time::{Duration, Instant};

const STEPS: usize = 40;
const WIDTH: usize = 128;
const LAYERS: usize = 4;

/// Makes a loop on a device.
type Make = fn(&Device) -> Result<Step>;

/// One step of a loop, which reads a value.
type Step = Box<dyn FnMut() -> Result<()>>;

fn main() -> std::result::Result<(), Box<dyn Error>> {
    let plugin = std::env::args_os().nth(1).ok_or("usage: reads PLUGIN [LOOP]")?;
    let loops: [(&str, Make); 6] = [
        ("a carried tensor", carried),
        ("two carried tensors", two_carried),
        ("a recurrent network", recurrent),
        ("an evaluation", evaluation),
        ("training without compile", training),
        ("transformer", transformer),
    ];
    let wanted = std::env::args().nth(2);
    for (name, make) in loops.into_iter().filter(|(name, _)| wanted.as_ref().is_none_or(|wanted| wanted == name)) {
        // Each loop has a device of its own, which has compiled nothing.
        let device = ferrotune_xla::open(Path::new(&plugin))?;
        let backend = backend_of(&device).ok_or("the plugin has no device")?;
        let mut step = make(&device)?;
        let first = time(&mut step)?;
        let compiled = backend.compilations();
        let more = time(&mut step)?;
        let later = backend.compilations() - compiled;
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        writeln!(
            io::stdout(),
            "{name}: {compiled} programs, {:.0} ms; {STEPS} more steps: {later} programs, {:.1} ms",
            ms(first),
            ms(more)
        )?;
    }
    let status = std::fs::read_to_string("/proc/self/status")?;
    let peak = status.lines().find(|line| line.starts_with("VmHWM")).unwrap_or_default();
    writeln!(io::stdout(), "the most memory of the process, {peak}")?;
    Ok(())
}

fn time(step: &mut Step) -> Result<Duration> {
    let begun = Instant::now();
    (0..STEPS).try_for_each(|_| step())?;
    Ok(begun.elapsed())
}

fn draws(device: &Device) -> Result<Tensor> {
    Tensor::rand(-0.1f32, 0.1, (WIDTH, WIDTH), &Device::Cpu)?.to_device(device)
}

fn carried(device: &Device) -> Result<Step> {
    let (a, mut x) = (draws(device)?, draws(device)?);
    Ok(Box::new(move || {
        x = x.matmul(&a)?.tanh()?;
        x.sum_all()?.to_scalar::<f32>().map(drop)
    }))
}

fn two_carried(device: &Device) -> Result<Step> {
    let (a, mut x, mut v) = (draws(device)?, draws(device)?, draws(device)?);
    Ok(Box::new(move || {
        v = (&v * 0.9)?.add(&x.matmul(&a)?.tanh()?)?;
        x = (&x - &v)?;
        x.sqr()?.sum_all()?.to_scalar::<f32>().map(drop)
    }))
}

fn recurrent(device: &Device) -> Result<Step> {
    let map = VarMap::new();
    let builder = VarBuilder::from_varmap(&map, DType::F32, device);
    let cell = gru(WIDTH, WIDTH, GRUConfig::default(), builder)?;
    let (input, mut state) = (draws(device)?, cell.zero_state(WIDTH)?);
    Ok(Box::new(move || {
        state = cell.step(&input, &state)?;
        state.h().sum_all()?.to_scalar::<f32>().map(drop)
    }))
}

/// A network of linear layers with ReLU.
struct Network(Vec<Linear>);

impl Network {
    fn new(map: &VarMap, device: &Device) -> Result<Network> {
        let builder = VarBuilder::from_varmap(map, DType::F32, device);
        let layer = |place: usize| linear(WIDTH, WIDTH, builder.pp(place));
        (0..LAYERS).map(layer).collect::<Result<_>>().map(Network)
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.0.iter().try_fold(x.clone(), |x, layer| layer.forward(&x)?.relu())
    }
}

fn evaluation(device: &Device) -> Result<Step> {
    let map = VarMap::new();
    let network = Network::new(&map, device)?;
    Ok(Box::new(move || {
        let x = draws(map.all_vars()[0].device())?;
        let logits = network.forward(&x)?;
        let right = logits.argmax(1)?.eq(&x.argmax(1)?)?.to_dtype(DType::F32)?;
        right.sum_all()?.to_scalar::<f32>().map(drop)
    }))
}

/// A block of a transformer.
struct Block {
    norms: [LayerNorm; 2],
    /// The queries, keys and values, their projection, and the two layers of the perceptron.
    layers: [Linear; 4],
}

impl Block {
    const BATCH: usize = 16;
    const TIME: usize = 128;
    const WIDTH: usize = 256;
    const HEADS: usize = 4;

    fn new(builder: &VarBuilder<'_>) -> Result<Block> {
        let (width, wide) = (Block::WIDTH, 4 * Block::WIDTH);
        let norm = |name| layer_norm(width, 1e-5, builder.pp(name));
        let layer = |name, inputs, outputs| linear(inputs, outputs, builder.pp(name));
        let layers = [
            layer("attend", width, 3 * width)?,
            layer("project", width, width)?,
            layer("widen", width, wide)?,
            layer("narrow", wide, width)?,
        ];
        Ok(Block { norms: [norm("first")?, norm("second")?], layers })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let ([first, second], [attend, project, widen, narrow]) = (&self.norms, &self.layers);
        let (batch, time, width, heads) = (Block::BATCH, Block::TIME, Block::WIDTH, Block::HEADS);
        let all = attend.forward(&first.forward(x)?)?.reshape((batch, time, 3, heads, width / heads))?;
        let all = all.permute((2, 0, 3, 1, 4))?;
        let (queries, keys, values) = (all.get(0)?.contiguous()?, all.get(1)?.contiguous()?, all.get(2)?.contiguous()?);
        let weights = ops::softmax(&(queries.matmul(&keys.t()?)? * 0.125)?, D::Minus1)?;
        let mixed = weights.matmul(&values)?.transpose(1, 2)?.reshape((batch, time, width))?;
        let x = (x + project.forward(&mixed)?)?;
        &x + narrow.forward(&widen.forward(&second.forward(&x)?)?.gelu()?)?
    }
}

fn transformer(device: &Device) -> Result<Step> {
    let map = VarMap::new();
    let builder = VarBuilder::from_varmap(&map, DType::F32, device);
    let blocks = (0..LAYERS).map(|place| Block::new(&builder.pp(place))).collect::<Result<Vec<_>>>()?;
    let mut optimiser = SGD::new(map.all_vars(), 0.01)?;
    let dims = (Block::BATCH, Block::TIME, Block::WIDTH);
    let x = Tensor::rand(-1f32, 1., dims, &Device::Cpu)?.to_device(device)?;
    Ok(Box::new(move || {
        let loss = blocks.iter().try_fold(x.clone(), |x, block| block.forward(&x))?.sqr()?.mean_all()?;
        optimiser.backward_step(&loss)?;
        loss.to_scalar::<f32>().map(drop)
    }))
}

fn training(device: &Device) -> Result<Step> {
    let map = VarMap::new();
    let network = Network::new(&map, device)?;
    let mut optimiser = SGD::new(map.all_vars(), 0.1)?;
    let (x, y) = (draws(device)?, draws(device)?);
    Ok(Box::new(move || {
        let loss = ops::softmax(&network.forward(&x)?, 1)?.sub(&y)?.sqr()?.mean_all()?;
        optimiser.backward_step(&loss)?;
        loss.to_scalar::<f32>().map(drop)
    }))
}
