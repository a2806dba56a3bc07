//! First weights that are the same in all programs: uniform numbers from a file, in the order in which they are asked for.

use burn::module::Param;
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::{Linear, LinearConfig, PaddingConfig2d};
use burn::tensor::{Device, Tensor, TensorData};

/// The numbers, in [-1, 1), and what is made of them.
pub struct Weights {
    numbers: Vec<f32>,
    used: usize,
    pub device: Device,
}

impl Weights {
    pub fn read(path: &str, device: Device) -> std::io::Result<Self> {
        let bytes = std::fs::read(path)?;
        let numbers =
            bytes.chunks_exact(4).map(|four| f32::from_le_bytes(four.try_into().expect("four bytes"))).collect();
        Ok(Self { numbers, used: 0, device })
    }

    /// The first numbers of the file, as inputs.
    pub fn inputs<const D: usize>(&self, shape: [usize; D]) -> Tensor<D> {
        let numbers = self.numbers[..shape.iter().product()].to_vec();
        Tensor::from_data(TensorData::new(numbers, shape), &self.device)
    }

    fn numbers(&mut self, count: usize, fan_in: usize) -> Vec<f32> {
        let begin = self.used;
        self.used += count;
        let scale = 1.0 / (fan_in as f32).sqrt();
        self.numbers[begin..self.used].iter().map(|number| number * scale).collect()
    }

    /// A parameter with the next numbers, divided by the root of `fan_in`.
    pub fn next<const D: usize>(&mut self, shape: [usize; D], fan_in: usize) -> Param<Tensor<D>> {
        let numbers = self.numbers(shape.iter().product(), fan_in);
        Param::from_tensor(Tensor::from_data(TensorData::new(numbers, shape), &self.device))
    }

    /// The file has a row for each output; burn has a column.
    pub fn linear(&mut self, inputs: usize, outputs: usize, bias: bool) -> Linear {
        let rows = self.numbers(inputs * outputs, inputs);
        let columns = (0..inputs * outputs).map(|at| rows[at % outputs * inputs + at / outputs]).collect::<Vec<_>>();
        let mut layer = LinearConfig::new(inputs, outputs).with_bias(bias).init(&self.device);
        let columns = TensorData::new(columns, [inputs, outputs]);
        layer.weight = Param::from_tensor(Tensor::from_data(columns, &self.device));
        layer.bias = bias.then(|| self.zeros(outputs));
        layer
    }

    pub fn convolution(&mut self, inputs: usize, outputs: usize) -> Conv2d {
        let padding = PaddingConfig2d::Explicit(1, 1, 1, 1);
        let mut layer = Conv2dConfig::new([inputs, outputs], [3, 3]).with_padding(padding).init(&self.device);
        layer.weight = self.next([outputs, inputs, 3, 3], inputs * 9);
        layer.bias = Some(self.zeros(outputs));
        layer
    }

    fn zeros(&self, length: usize) -> Param<Tensor<1>> {
        Param::from_tensor(Tensor::zeros([length], &self.device))
    }
}
