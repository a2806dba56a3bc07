//! The models that are trained, on one batch that stays the same.

use crate::weights::Weights;
use burn::module::{Module, Param};
use burn::nn::conv::Conv2d;
use burn::nn::pool::{AvgPool2d, AvgPool2dConfig};
use burn::nn::{Embedding, EmbeddingConfig, LayerNorm, LayerNormConfig, Linear};
use burn::tensor::activation::{gelu, relu, softmax};
use burn::tensor::{Device, Int, Tensor, TensorData};

#[derive(Module, Debug)]
pub struct Mlp {
    layers: Vec<Linear>,
}

impl Mlp {
    pub fn new(weights: &mut Weights) -> Self {
        let layers = [(784, 512), (512, 512), (512, 10)];
        Self { layers: layers.into_iter().map(|(inputs, outputs)| weights.linear(inputs, outputs, true)).collect() }
    }

    pub fn forward(&self, inputs: Tensor<2>) -> Tensor<2> {
        let hidden = relu(self.layers[0].forward(inputs));
        self.layers[2].forward(relu(self.layers[1].forward(hidden)))
    }
}

#[derive(Module, Debug)]
pub struct Cnn {
    convolutions: Vec<Conv2d>,
    pool: AvgPool2d,
    layers: Vec<Linear>,
}

impl Cnn {
    pub fn new(weights: &mut Weights) -> Self {
        Self {
            convolutions: vec![weights.convolution(1, 16), weights.convolution(16, 32)],
            pool: AvgPool2dConfig::new([2, 2]).with_strides([2, 2]).init(),
            layers: vec![weights.linear(32 * 7 * 7, 128, true), weights.linear(128, 10, true)],
        }
    }

    pub fn forward(&self, inputs: Tensor<4>) -> Tensor<2> {
        let convolved = self.convolutions.iter();
        let hidden = convolved.fold(inputs, |values, layer| self.pool.forward(relu(layer.forward(values))));
        self.layers[1].forward(relu(self.layers[0].forward(hidden.flatten(1, 3))))
    }
}

const WIDTH: usize = 128;
const HEADS: usize = 4;
const TIME: usize = 64;
const VOCABULARY: usize = 64;

#[derive(Module, Debug)]
pub struct Block {
    norms: Vec<LayerNorm>,
    queries_keys_values: Linear,
    output: Linear,
    up: Linear,
    down: Linear,
}

impl Block {
    fn new(weights: &mut Weights) -> Self {
        Self {
            norms: (0..2).map(|_| norm(weights)).collect(),
            queries_keys_values: weights.linear(WIDTH, 3 * WIDTH, true),
            output: weights.linear(WIDTH, WIDTH, true),
            up: weights.linear(WIDTH, 4 * WIDTH, true),
            down: weights.linear(4 * WIDTH, WIDTH, true),
        }
    }

    fn forward(&self, values: Tensor<3>, mask: &Tensor<4>) -> Tensor<3> {
        let values = values.clone() + self.attend(self.norms[0].forward(values), mask);
        let hidden = gelu(self.up.forward(self.norms[1].forward(values.clone())));
        values + self.down.forward(hidden)
    }

    fn attend(&self, values: Tensor<3>, mask: &Tensor<4>) -> Tensor<3> {
        let [batch, time, width] = values.dims();
        let split = self.queries_keys_values.forward(values).reshape([batch, time, 3, HEADS, width / HEADS]);
        let part = |index: usize| split.clone().narrow(2, index, 1).squeeze_dim::<4>(2).swap_dims(1, 2);
        let scale = 1.0 / ((width / HEADS) as f32).sqrt();
        let scores = part(0).matmul(part(1).swap_dims(2, 3)) * scale + mask.clone();
        let mixed = softmax(scores, 3).matmul(part(2));
        self.output.forward(mixed.swap_dims(1, 2).reshape([batch, time, width]))
    }
}

fn norm(weights: &Weights) -> LayerNorm {
    LayerNormConfig::new(WIDTH).with_epsilon(1e-5).init(&weights.device)
}

#[derive(Module, Debug)]
pub struct Transformer {
    tokens: Embedding,
    positions: Param<Tensor<2>>,
    blocks: Vec<Block>,
    norm: LayerNorm,
    head: Linear,
}

impl Transformer {
    pub fn new(weights: &mut Weights) -> Self {
        let mut tokens = EmbeddingConfig::new(VOCABULARY, WIDTH).init(&weights.device);
        tokens.weight = weights.next([VOCABULARY, WIDTH], WIDTH);
        Self {
            tokens,
            positions: weights.next([TIME, WIDTH], WIDTH),
            blocks: (0..6).map(|_| Block::new(weights)).collect(),
            norm: norm(weights),
            head: weights.linear(WIDTH, VOCABULARY, false),
        }
    }

    pub fn forward(&self, ids: Tensor<2, Int>) -> Tensor<2> {
        let later = (0..TIME * TIME).map(|at| if at % TIME > at / TIME { -1e9_f32 } else { 0.0 }).collect::<Vec<_>>();
        let mask = Tensor::<4>::from_data(TensorData::new(later, [1, 1, TIME, TIME]), &ids.device());
        let begin = self.tokens.forward(ids) + self.positions.val().unsqueeze_dim::<3>(0);
        let end = self.blocks.iter().fold(begin, |values, block| block.forward(values, &mask));
        self.head.forward(self.norm.forward(end)).flatten(0, 1)
    }
}

/// Ids, and for each place the id of the next one.
pub fn tokens(batch: usize, device: &Device) -> (Tensor<2, Int>, Tensor<1, Int>) {
    let token = |at: usize| {
        let (row, time) = (at / TIME, at % TIME);
        ((row * 31 + time * time * 7 + time) % VOCABULARY) as i32
    };
    let ids: Vec<i32> = (0..batch * TIME).map(token).collect();
    let next: Vec<i32> = (0..batch * TIME).map(|at| token(at / TIME * TIME + (at + 1) % TIME)).collect();
    let ids = Tensor::from_data(TensorData::new(ids, [batch, TIME]), device);
    (ids, Tensor::from_data(TensorData::new(next, [batch * TIME]), device))
}
