//! Measures the cost of a compiled step besides its execution: `steps PLUGIN` prints the time to trace GPT-2 small, and the time that
//! a run adds to the plugin's own `Execute`. benchmarks/steps.md has the figures.

use candle_core::{D, DType, Device, Result, Tensor};
use candle_nn::{Embedding, LayerNorm, Linear, Module as _, Optimizer as _, SGD, VarBuilder, VarMap, ops};
use ferrotune_devices::pjrt::{CompileOptions, Literal, Plugin};
use ferrotune_xla::Step;
use std::error::Error;
use std::hint::black_box;
use std::io::{self, Write as _};
use std::path::Path;
use std::time::Instant;

const LAYERS: usize = 12;
const WIDTH: usize = 768;
const HEADS: usize = 12;
const TIME: usize = 1024;
const VOCABULARY: usize = 50_257;

/// The number of runs of the small step.
const RUNS: usize = 1000;

fn main() -> std::result::Result<(), Box<dyn Error>> {
    let plugin = std::env::args_os().nth(1).ok_or("usage: steps PLUGIN")?;
    let plugin = Path::new(&plugin);
    overhead(plugin)?;
    Ok(trace(&ferrotune_xla::open(plugin)?)?)
}

/// The time of a small step, and the time of the same program without this crate.
fn overhead(plugin: &Path) -> std::result::Result<(), Box<dyn Error>> {
    let device = ferrotune_xla::open(plugin)?;
    let mut step = Step::new(&device, |arguments: &[Tensor]| Ok(vec![(&arguments[0] * &arguments[1])?]));
    let arguments = [Tensor::ones(16, DType::F32, &device)?, Tensor::ones(16, DType::F32, &device)?];
    let text = step.stablehlo(&arguments)?;
    let ours = median(|| step.run(&arguments).map(drop))?;

    let client = Plugin::load(plugin)?.client(&[])?;
    let target = client.devices()?.into_iter().next().ok_or("the plugin has no device")?;
    let ones = Literal::f32(&[16], &[1.; 16])?;
    let inputs = [client.upload(&ones, &target)?, client.upload(&ones, &target)?];
    let program = client.compile(text.as_bytes(), &CompileOptions::default())?;
    let bare = median(|| program.run(&[&inputs[0], &inputs[1]]).map(drop))?;
    writeln!(io::stdout(), "a small step: {:.1} µs, its Execute alone: {:.1} µs", ours * 1e6, bare * 1e6)?;
    Ok(())
}

/// The median time of a call, in seconds.
fn median<E>(mut call: impl FnMut() -> std::result::Result<(), E>) -> std::result::Result<f64, E> {
    let mut seconds = Vec::new();
    for _ in 0..RUNS {
        let begun = Instant::now();
        call()?;
        seconds.push(begun.elapsed().as_secs_f64());
    }
    seconds.sort_by(f64::total_cmp);
    Ok(seconds[RUNS / 2])
}

/// The time to make the program of a training step of GPT-2 small.
fn trace(device: &Device) -> Result<()> {
    let map = VarMap::new();
    let builder = VarBuilder::from_varmap(&map, DType::F32, device);
    let model = Gpt2::new(&builder)?;
    let mut optimiser = SGD::new(map.all_vars(), 1e-3)?;
    let mut step = Step::new(device, |arguments: &[Tensor]| {
        let logits = model.forward(&arguments[0])?.flatten_to(1)?;
        let loss = candle_nn::loss::cross_entropy(&logits, &arguments[1].flatten_all()?)?;
        optimiser.backward_step(&loss)?;
        Ok(vec![loss])
    });
    let ids = Tensor::zeros((1, TIME), DType::U32, device)?;
    let mut seconds = Vec::new();
    for _ in 0..3 {
        let begun = Instant::now();
        black_box(step.stablehlo(&[ids.clone(), ids.clone()])?);
        seconds.push(begun.elapsed().as_secs_f64());
    }
    seconds.sort_by(f64::total_cmp);
    writeln!(io::stdout(), "GPT-2 small: traced twice, compared and written in {:.0} ms", seconds[1] * 1e3)?;
    Ok(())
}

struct Gpt2 {
    tokens: Embedding,
    positions: Tensor,
    blocks: Vec<Block>,
    norm: LayerNorm,
}

impl Gpt2 {
    fn new(builder: &VarBuilder<'_>) -> Result<Gpt2> {
        Ok(Gpt2 {
            tokens: candle_nn::embedding(VOCABULARY, WIDTH, builder.pp("tokens"))?,
            positions: builder.get((TIME, WIDTH), "positions")?,
            blocks: (0..LAYERS).map(|layer| Block::new(&builder.pp(layer))).collect::<Result<_>>()?,
            norm: candle_nn::layer_norm(WIDTH, 1e-5, builder.pp("norm"))?,
        })
    }

    fn forward(&self, ids: &Tensor) -> Result<Tensor> {
        let mut hidden = self.tokens.forward(ids)?.broadcast_add(&self.positions)?;
        for block in &self.blocks {
            hidden = block.forward(&hidden)?;
        }
        self.norm.forward(&hidden)?.broadcast_matmul(&self.tokens.embeddings().t()?)
    }
}

struct Block {
    norms: [LayerNorm; 2],
    mixed: Linear,
    output: Linear,
    up: Linear,
    down: Linear,
}

impl Block {
    fn new(builder: &VarBuilder<'_>) -> Result<Block> {
        let norm = |name: &str| candle_nn::layer_norm(WIDTH, 1e-5, builder.pp(name));
        let linear = |name: &str, from: usize, to: usize| candle_nn::linear(from, to, builder.pp(name));
        Ok(Block {
            norms: [norm("first")?, norm("second")?],
            mixed: linear("mixed", WIDTH, 3 * WIDTH)?,
            output: linear("output", WIDTH, WIDTH)?,
            up: linear("up", WIDTH, 4 * WIDTH)?,
            down: linear("down", 4 * WIDTH, WIDTH)?,
        })
    }

    fn forward(&self, hidden: &Tensor) -> Result<Tensor> {
        let hidden = (hidden + self.attend(&self.norms[0].forward(hidden)?)?)?;
        let inner = self.up.forward(&self.norms[1].forward(&hidden)?)?.gelu()?;
        &hidden + self.down.forward(&inner)?
    }

    fn attend(&self, hidden: &Tensor) -> Result<Tensor> {
        let (batch, time, width) = hidden.dims3()?;
        let mixed = self.mixed.forward(hidden)?.reshape((batch, time, 3, HEADS, width / HEADS))?;
        let part = |index: usize| mixed.narrow(2, index, 1)?.squeeze(2)?.transpose(1, 2)?.contiguous();
        let scores = (part(0)?.matmul(&part(1)?.t()?)? * ((width / HEADS) as f64).powf(-0.5))?;
        let row = Tensor::arange(0u32, time as u32, hidden.device())?;
        let seen =
            row.unsqueeze(0)?.broadcast_as((time, time))?.le(&row.unsqueeze(1)?.broadcast_as((time, time))?)?;
        let never = Tensor::full(f32::NEG_INFINITY, (time, time), hidden.device())?;
        let scores = seen.broadcast_as(scores.shape())?.where_cond(&scores, &never.broadcast_as(scores.shape())?)?;
        let heads = ops::softmax(&scores, D::Minus1)?.matmul(&part(2)?)?;
        self.output.forward(&heads.transpose(1, 2)?.reshape((batch, time, width))?)
    }
}
