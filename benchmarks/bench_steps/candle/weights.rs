//! First weights that are the same in all programs: uniform numbers from a file, in the order in which they are asked for.

use candle_core::{Device, Result, Tensor, Var};

/// The numbers, in [-1, 1), and the variables that are made of them.
pub struct Weights {
    numbers: Vec<f32>,
    used: usize,
    /// Where inputs and variables are.
    pub device: Device,
    pub variables: Vec<Var>,
}

impl Weights {
    pub fn read(path: &str, device: &Device) -> Result<Self> {
        let bytes = std::fs::read(path)?;
        let numbers =
            bytes.chunks_exact(4).map(|four| f32::from_le_bytes(four.try_into().expect("four bytes"))).collect();
        Ok(Self { numbers, used: 0, device: device.clone(), variables: Vec::new() })
    }

    /// The first numbers of the file, as inputs.
    pub fn inputs(&self, shape: &[usize]) -> Result<Tensor> {
        Tensor::from_slice(&self.numbers[..shape.iter().product()], shape, &self.device)
    }

    /// A variable with the next numbers, divided by the root of `fan_in`.
    pub fn next(&mut self, shape: &[usize], fan_in: usize) -> Result<Tensor> {
        let begin = self.used;
        self.used += shape.iter().product::<usize>();
        let scale = 1.0 / (fan_in as f32).sqrt();
        let values: Vec<f32> = self.numbers[begin..self.used].iter().map(|number| number * scale).collect();
        self.variable(Tensor::from_vec(values, shape, &self.device)?)
    }

    /// A variable that is everywhere `value` at first.
    pub fn constant(&mut self, value: f32, length: usize) -> Result<Tensor> {
        self.variable(Tensor::full(value, length, &self.device)?)
    }

    fn variable(&mut self, value: Tensor) -> Result<Tensor> {
        let variable = Var::from_tensor(&value)?;
        self.variables.push(variable.clone());
        Ok(variable.into_inner())
    }
}
