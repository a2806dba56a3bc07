//! The models that are trained, on one batch that stays the same.

use crate::weights::Weights;
use candle_core::{D, DType, Device, Module as _, Result, Tensor, Var, bail};
use candle_nn::{Conv2d, Conv2dConfig, Embedding, Linear, loss, ops};

/// A model with its batch.
pub struct Model {
    pub variables: Vec<Var>,
    /// The loss of the batch.
    pub loss: Box<dyn Fn() -> Result<Tensor>>,
}

/// The model of a name such as `mlp128`, which ends with the batch size, on a device.
pub fn make(name: &str, weights: &str, device: &Device) -> Result<Model> {
    let mut weights = Weights::read(weights, device)?;
    let digits = name.find(|letter: char| letter.is_ascii_digit()).unwrap_or(name.len());
    let batch = name[digits..].parse().map_err(candle_core::Error::wrap)?;
    let loss = match &name[..digits] {
        "mlp" => mlp(&mut weights, batch)?,
        "cnn" => cnn(&mut weights, batch)?,
        "transformer" => transformer(&mut weights, batch)?,
        other => bail!("there is no model `{other}`"),
    };
    Ok(Model { variables: weights.variables, loss })
}

type Loss = Box<dyn Fn() -> Result<Tensor>>;

fn labels(weights: &Weights, batch: usize) -> Result<Tensor> {
    Tensor::from_iter((0..batch as u32).map(|row| row * 7 % 10), &weights.device)
}

fn linear(weights: &mut Weights, inputs: usize, outputs: usize) -> Result<Linear> {
    Ok(Linear::new(weights.next(&[outputs, inputs], inputs)?, Some(weights.constant(0.0, outputs)?)))
}

fn mlp(weights: &mut Weights, batch: usize) -> Result<Loss> {
    let inputs = weights.inputs(&[batch, 784])?;
    let labels = labels(weights, batch)?;
    let layers = [linear(weights, 784, 512)?, linear(weights, 512, 512)?, linear(weights, 512, 10)?];
    Ok(Box::new(move || {
        let hidden = layers[0].forward(&inputs)?.relu()?;
        let hidden = layers[1].forward(&hidden)?.relu()?;
        loss::cross_entropy(&layers[2].forward(&hidden)?, &labels)
    }))
}

fn convolution(weights: &mut Weights, inputs: usize, outputs: usize) -> Result<Conv2d> {
    let kernel = weights.next(&[outputs, inputs, 3, 3], inputs * 9)?;
    let bias = weights.constant(0.0, outputs)?;
    Ok(Conv2d::new(kernel, Some(bias), Conv2dConfig { padding: 1, ..Conv2dConfig::default() }))
}

/// Pools by means, since candle's gradient of `max_pool2d` is another one than that of the rivals.
fn cnn(weights: &mut Weights, batch: usize) -> Result<Loss> {
    let inputs = weights.inputs(&[batch, 1, 28, 28])?;
    let labels = labels(weights, batch)?;
    let convolutions = [convolution(weights, 1, 16)?, convolution(weights, 16, 32)?];
    let layers = [linear(weights, 32 * 7 * 7, 128)?, linear(weights, 128, 10)?];
    Ok(Box::new(move || {
        let hidden = convolutions[0].forward(&inputs)?.relu()?.avg_pool2d(2)?;
        let hidden = convolutions[1].forward(&hidden)?.relu()?.avg_pool2d(2)?;
        let hidden = layers[0].forward(&hidden.flatten_from(1)?)?.relu()?;
        loss::cross_entropy(&layers[1].forward(&hidden)?, &labels)
    }))
}

const WIDTH: usize = 128;
const HEADS: usize = 4;
const TIME: usize = 64;
const VOCABULARY: usize = 64;

struct Norm {
    weight: Tensor,
    bias: Tensor,
}

impl Norm {
    fn new(weights: &mut Weights) -> Result<Self> {
        Ok(Self { weight: weights.constant(1.0, WIDTH)?, bias: weights.constant(0.0, WIDTH)? })
    }

    /// `candle_nn::LayerNorm` has no gradient.
    fn forward(&self, values: &Tensor) -> Result<Tensor> {
        ops::layer_norm_slow(values, &self.weight, &self.bias, 1e-5)
    }
}

struct Block {
    norms: [Norm; 2],
    queries_keys_values: Linear,
    output: Linear,
    up: Linear,
    down: Linear,
}

impl Block {
    fn new(weights: &mut Weights) -> Result<Self> {
        Ok(Self {
            norms: [Norm::new(weights)?, Norm::new(weights)?],
            queries_keys_values: linear(weights, WIDTH, 3 * WIDTH)?,
            output: linear(weights, WIDTH, WIDTH)?,
            up: linear(weights, WIDTH, 4 * WIDTH)?,
            down: linear(weights, 4 * WIDTH, WIDTH)?,
        })
    }

    fn forward(&self, values: &Tensor, mask: &Tensor) -> Result<Tensor> {
        let values = (values + self.attend(&self.norms[0].forward(values)?, mask)?)?;
        let hidden = self.up.forward(&self.norms[1].forward(&values)?)?.gelu_erf()?;
        &values + self.down.forward(&hidden)?
    }

    fn attend(&self, values: &Tensor, mask: &Tensor) -> Result<Tensor> {
        let (batch, time, width) = values.dims3()?;
        let split = self.queries_keys_values.forward(values)?.reshape((batch, time, 3, HEADS, width / HEADS))?;
        let part = |index: usize| split.narrow(2, index, 1)?.squeeze(2)?.transpose(1, 2)?.contiguous();
        let scale = 1.0 / ((width / HEADS) as f64).sqrt();
        let scores = (part(0)?.matmul(&part(1)?.transpose(2, 3)?)? * scale)?.broadcast_add(mask)?;
        let mixed = ops::softmax(&scores, D::Minus1)?.matmul(&part(2)?)?;
        self.output.forward(&mixed.transpose(1, 2)?.contiguous()?.reshape((batch, time, width))?)
    }
}

fn transformer(weights: &mut Weights, batch: usize) -> Result<Loss> {
    let token = |index: usize| {
        let (row, time) = (index / TIME, index % TIME);
        ((row * 31 + time * time * 7 + time) % VOCABULARY) as u32
    };
    let ids = Tensor::from_iter((0..batch * TIME).map(token), &weights.device)?.reshape((batch, TIME))?;
    let targets = (0..batch * TIME).map(|index| token(index / TIME * TIME + (index + 1) % TIME));
    let targets = Tensor::from_iter(targets, &weights.device)?;
    let later = (0..TIME * TIME).map(|index| if index % TIME > index / TIME { -1e9_f32 } else { 0.0 });
    let mask = Tensor::from_iter(later, &weights.device)?.reshape((TIME, TIME))?.to_dtype(DType::F32)?;
    let tokens = Embedding::new(weights.next(&[VOCABULARY, WIDTH], WIDTH)?, WIDTH);
    let positions = weights.next(&[TIME, WIDTH], WIDTH)?;
    let blocks = (0..6).map(|_| Block::new(weights)).collect::<Result<Vec<_>>>()?;
    let norm = Norm::new(weights)?;
    let head = Linear::new(weights.next(&[VOCABULARY, WIDTH], WIDTH)?, None);
    Ok(Box::new(move || {
        let begin = tokens.forward(&ids)?.broadcast_add(&positions)?;
        let end = blocks.iter().try_fold(begin, |values, block| block.forward(&values, &mask))?;
        let scores = head.forward(&norm.forward(&end)?)?.reshape((batch * TIME, VOCABULARY))?;
        loss::cross_entropy(&scores, &targets)
    }))
}
