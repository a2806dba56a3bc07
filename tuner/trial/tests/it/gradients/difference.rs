//! Compares the gradient that candle computes with central differences in f64, and its f32 gradient with its f64 gradient.

use candle_core::{DType, Device, Result, Tensor, Var};

/// The tolerance between a gradient in f64 and central differences, as a part of the largest element.
const F64_TOLERANCE: f64 = 1e-6;
/// The tolerance between a gradient in f32 and the same gradient in f64, as a part of the largest element.
const F32_TOLERANCE: f64 = 1e-5;

/// A generator of numbers that look random and are the same in every run.
pub(super) struct Draws(u64);

impl Draws {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number in `[0, 1)`, by SplitMix64.
    pub(super) fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((bits ^ (bits >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    pub(super) fn below(&mut self, end: usize) -> usize {
        (self.unit() * end as f64) as usize
    }

    /// A tensor of f64 in `[low, high)`.
    pub(super) fn tensor(&mut self, dims: &[usize], (low, high): (f64, f64)) -> Tensor {
        let count = dims.iter().product();
        let values: Vec<f64> = (0..count).map(|_| low + (high - low) * self.unit()).collect();
        Tensor::from_vec(values, dims, &Device::Cpu).unwrap()
    }

    /// A tensor of u32 below `end`.
    pub(super) fn indexes(&mut self, dims: &[usize], end: usize) -> Tensor {
        let count = dims.iter().product();
        let values: Vec<u32> = (0..count).map(|_| self.below(end) as u32).collect();
        Tensor::from_vec(values, dims, &Device::Cpu).unwrap()
    }
}

/// Checks the gradients of `function` at `inputs`, which are f64.
pub(super) fn check(name: &str, inputs: &[Tensor], function: impl Fn(&[Tensor]) -> Result<Tensor>) {
    let gradients = backward(inputs, &function).unwrap_or_else(|error| panic!("{name}: {error}"));
    for (index, gradient) in gradients.iter().enumerate() {
        let expected = central_differences(inputs, index, &function).unwrap();
        assert_close(&format!("{name}, argument {index}"), gradient, &expected, F64_TOLERANCE);
    }
    check_f32(name, inputs, &function, &function);
}

/// Checks the f32 gradients of `function` against the f64 gradients of `reference`.
pub(super) fn check_f32(
    name: &str,
    inputs: &[Tensor],
    function: impl Fn(&[Tensor]) -> Result<Tensor>,
    reference: impl Fn(&[Tensor]) -> Result<Tensor>,
) {
    let single: Vec<Tensor> = inputs.iter().map(|input| input.to_dtype(DType::F32).unwrap()).collect();
    let gradients = backward(&single, &function).unwrap_or_else(|error| panic!("{name}: {error}"));
    let double: Vec<Tensor> = single.iter().map(|input| input.to_dtype(DType::F64).unwrap()).collect();
    let expected = backward(&double, &reference).unwrap();
    for (index, (gradient, expected)) in gradients.iter().zip(&expected).enumerate() {
        assert_eq!(gradient.dtype(), DType::F32);
        assert_close(&format!("{name} in f32, argument {index}"), gradient, expected, F32_TOLERANCE);
    }
}

pub(super) fn assert_close(name: &str, gradient: &Tensor, expected: &Tensor, tolerance: f64) {
    assert_eq!(gradient.dims(), expected.dims(), "{name}: shape");
    let (gradient, expected) = (values(gradient), values(expected));
    let scale = expected.iter().fold(1f64, |scale, value| scale.max(value.abs()));
    for (place, (gradient, expected)) in gradient.iter().zip(&expected).enumerate() {
        assert!(
            (gradient - expected).abs() <= tolerance * scale,
            "{name}: element {place} of the gradient is {gradient}, but {expected} is right"
        );
    }
}

/// The gradients of the loss with respect to each input.
pub(super) fn backward(inputs: &[Tensor], function: impl Fn(&[Tensor]) -> Result<Tensor>) -> Result<Vec<Tensor>> {
    let variables = inputs.iter().map(Var::from_tensor).collect::<Result<Vec<_>>>()?;
    let arguments: Vec<Tensor> = variables.iter().map(|variable| variable.as_tensor().clone()).collect();
    let gradients = loss(&function(&arguments)?)?.backward()?;
    let gradient = |variable: &Var| match gradients.get(variable) {
        Some(gradient) => Ok(gradient.clone()),
        None => candle_core::bail!("a variable has no gradient"),
    };
    variables.iter().map(gradient).collect()
}

pub(super) fn values(tensor: &Tensor) -> Vec<f64> {
    tensor.to_dtype(DType::F64).unwrap().flatten_all().unwrap().to_vec1().unwrap()
}

/// A sum of the result's elements with different weights, so that no error in a gradient cancels another.
fn loss(result: &Tensor) -> Result<Tensor> {
    let weights = Draws::new(7).tensor(result.dims(), (0.5, 1.5));
    result.mul(&weights.to_dtype(result.dtype())?)?.sum_all()
}

fn central_differences(
    inputs: &[Tensor],
    index: usize,
    function: &impl Fn(&[Tensor]) -> Result<Tensor>,
) -> Result<Tensor> {
    const STEP: f64 = 1e-5;
    let values = values(&inputs[index]);
    let loss_at = |place: usize, step: f64| -> Result<f64> {
        let mut moved = values.clone();
        moved[place] += step;
        let mut inputs = inputs.to_vec();
        inputs[index] = Tensor::from_vec(moved, inputs[index].dims(), &Device::Cpu)?;
        loss(&function(&inputs)?)?.to_scalar::<f64>()
    };
    let differences = (0..values.len())
        .map(|place| Ok((loss_at(place, STEP)? - loss_at(place, -STEP)?) / (2. * STEP)))
        .collect::<Result<Vec<f64>>>()?;
    Tensor::from_vec(differences, inputs[index].dims(), &Device::Cpu)
}
