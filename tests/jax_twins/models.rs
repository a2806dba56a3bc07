//! The models of `twins.py` in candle, each with the training step that `%tpu_check` compiles. A cell runs what is below this line.
use candle_core::{DType, Device, Result, Tensor, Var};
use candle_nn::{
    BatchNorm, Conv2d, Conv2dConfig, Embedding, LayerNorm, Linear, Module, ModuleT, Optimizer, VarBuilder, VarMap,
};

type Body = Box<dyn FnMut(&[Tensor]) -> Result<Vec<Tensor>>>;

/// A training step: the mean cross entropy of `logits` against the second argument, and one step of the optimiser.
fn training<O: Optimizer + 'static>(
    map: &VarMap,
    config: O::Config,
    logits: impl Fn(&Tensor) -> Result<Tensor> + 'static,
) -> Result<Body> {
    let mut optimiser = O::new(map.all_vars(), config)?;
    Ok(Box::new(move |args: &[Tensor]| {
        let loss = candle_nn::loss::cross_entropy(&logits(&args[0])?, &args[1])?;
        optimiser.backward_step(&loss)?;
        Ok(vec![loss])
    }))
}

fn adamw() -> candle_nn::ParamsAdamW {
    candle_nn::ParamsAdamW { lr: 1e-3, weight_decay: 0.01, ..Default::default() }
}

/// The first argument is (batch, 784) in f32, the second is (batch) in u32.
fn mlp(device: &Device) -> Result<Body> {
    let map = VarMap::new();
    let builder = VarBuilder::from_varmap(&map, DType::F32, device);
    let sizes = [784, 2048, 2048, 10];
    let layers: Vec<Linear> =
        (0..3).map(|i| candle_nn::linear(sizes[i], sizes[i + 1], builder.pp(i))).collect::<Result<_>>()?;
    training::<ferrotune::AdamW>(&map, adamw(), move |x| {
        let hidden = layers[1].forward(&layers[0].forward(x)?.relu()?)?.relu()?;
        layers[2].forward(&hidden)
    })
}

/// Two convolutions around a shortcut.
struct Residual {
    convolutions: [(Conv2d, BatchNorm); 2],
    shortcut: Option<(Conv2d, BatchNorm)>,
}

fn convolution(from: usize, to: usize, kernel: usize, stride: usize, builder: VarBuilder<'_>) -> Result<(Conv2d, BatchNorm)> {
    let config = Conv2dConfig { padding: kernel / 2, stride, ..Default::default() };
    let convolution = candle_nn::conv2d_no_bias(from, to, kernel, config, builder.pp("conv"))?;
    Ok((convolution, candle_nn::batch_norm(to, 1e-5, builder.pp("norm"))?))
}

fn normalised((convolution, norm): &(Conv2d, BatchNorm), x: &Tensor) -> Result<Tensor> {
    norm.forward_t(&convolution.forward(x)?, true)
}

impl Residual {
    fn new(from: usize, to: usize, stride: usize, builder: VarBuilder<'_>) -> Result<Residual> {
        let convolutions =
            [convolution(from, to, 3, stride, builder.pp("first"))?, convolution(to, to, 3, 1, builder.pp("second"))?];
        let changes = stride != 1 || from != to;
        let shortcut = changes.then(|| convolution(from, to, 1, stride, builder.pp("shortcut"))).transpose()?;
        Ok(Residual { convolutions, shortcut })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let inner = normalised(&self.convolutions[1], &normalised(&self.convolutions[0], x)?.relu()?)?;
        let around = match &self.shortcut {
            Some(shortcut) => normalised(shortcut, x)?,
            None => x.clone(),
        };
        (inner + around)?.relu()
    }
}

/// The first stages of ResNet-18 for ImageNet, which has four. The first argument is (batch, 3, 224, 224) in f32, the second is
/// (batch) in u32.
fn resnet18(device: &Device, stages: usize) -> Result<Body> {
    let map = VarMap::new();
    let builder = VarBuilder::from_varmap(&map, DType::F32, device);
    let stem = convolution(3, 64, 7, 2, builder.pp("stem"))?;
    let mut blocks = Vec::new();
    let widths = [64, 64, 128, 256, 512];
    for stage in 0..stages {
        let (from, to) = (widths[stage], widths[stage + 1]);
        let stride = if stage == 0 { 1 } else { 2 };
        blocks.push(Residual::new(from, to, stride, builder.pp(format!("{stage}.0")))?);
        blocks.push(Residual::new(to, to, 1, builder.pp(format!("{stage}.1")))?);
    }
    let head = candle_nn::linear(widths[stages], 1000, builder.pp("head"))?;
    let config = ferrotune::optim::ParamsSGD { lr: 0.1, momentum: 0.9, weight_decay: 1e-4, ..Default::default() };
    training::<ferrotune::optim::SGD>(&map, config, move |x| {
        let x = normalised(&stem, x)?.relu()?;
        let mut x = x.pad_with_zeros(2, 1, 1)?.pad_with_zeros(3, 1, 1)?.max_pool2d_with_stride(3, 2)?;
        for block in &blocks {
            x = block.forward(&x)?;
        }
        head.forward(&x.mean((2, 3))?)
    })
}

struct Block {
    norms: [LayerNorm; 2],
    mixed: Linear,
    output: Linear,
    up: Linear,
    down: Linear,
}

const WIDTH: usize = 768;
const HEADS: usize = 12;

impl Block {
    fn new(builder: VarBuilder<'_>) -> Result<Block> {
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

    fn forward(&self, hidden: &Tensor, seen: &Tensor) -> Result<Tensor> {
        let hidden = (hidden + self.attend(&self.norms[0].forward(hidden)?, seen)?)?;
        let inner = self.up.forward(&self.norms[1].forward(&hidden)?)?.gelu()?;
        &hidden + self.down.forward(&inner)?
    }

    fn attend(&self, hidden: &Tensor, seen: &Tensor) -> Result<Tensor> {
        let (batch, time, width) = hidden.dims3()?;
        let mixed = self.mixed.forward(hidden)?.reshape((batch, time, 3, HEADS, width / HEADS))?;
        let part = |index: usize| mixed.narrow(2, index, 1)?.squeeze(2)?.transpose(1, 2)?.contiguous();
        let scores = (part(0)?.matmul(&part(1)?.t()?)? * ((width / HEADS) as f64).powf(-0.5))?;
        let never = Tensor::full(f32::NEG_INFINITY, (), hidden.device())?.broadcast_as(scores.shape())?;
        let scores = seen.broadcast_as(scores.shape())?.where_cond(&scores, &never)?;
        let heads = candle_nn::ops::softmax_last_dim(&scores)?.matmul(&part(2)?)?;
        self.output.forward(&heads.transpose(1, 2)?.reshape((batch, time, width))?)
    }
}

/// The first layers of GPT-2 small, which has twelve. The first argument is (batch, 1024) in u32, the second is (batch × 1024) in
/// u32.
fn gpt2(device: &Device, layers: usize) -> Result<Body> {
    let (vocabulary, time) = (50_257, 1024);
    let map = VarMap::new();
    let builder = VarBuilder::from_varmap(&map, DType::F32, device);
    let tokens = candle_nn::embedding(vocabulary, WIDTH, builder.pp("tokens"))?;
    let positions = builder.get((time, WIDTH), "positions")?;
    let blocks = (0..layers).map(|layer| Block::new(builder.pp(layer))).collect::<Result<Vec<_>>>()?;
    let norm = candle_nn::layer_norm(WIDTH, 1e-5, builder.pp("norm"))?;
    training::<ferrotune::AdamW>(&map, adamw(), move |ids| {
        let row = Tensor::arange(0u32, time as u32, ids.device())?;
        let column = row.unsqueeze(1)?.broadcast_as((time, time))?;
        let seen = row.unsqueeze(0)?.broadcast_as((time, time))?.le(&column)?;
        let mut hidden = tokens.forward(ids)?.broadcast_add(&positions)?;
        for block in &blocks {
            hidden = block.forward(&hidden, &seen)?;
        }
        norm.forward(&hidden)?.broadcast_matmul(&tokens.embeddings().t()?)?.flatten_to(1)
    })
}
