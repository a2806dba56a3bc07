//! Layers without variables that candle has as functions only.

use candle_core::{Module, Result, Tensor};

/// A layer that makes one dimension of all dimensions but the first; see [`flatten`].
#[derive(Clone, Copy, Debug)]
pub struct Flatten;

/// A layer that makes one dimension of all dimensions but the first, the rows: (n, 8, 5, 5) becomes (n, 200).
///
/// ```
/// use candle_core::{DType, Device, Module as _, Tensor};
/// let xs = Tensor::zeros((2, 8, 5, 5), DType::F32, &Device::Cpu)?;
/// assert_eq!(ferrotune_nn::flatten().forward(&xs)?.dims(), [2, 200]);
/// # Ok::<(), candle_core::Error>(())
/// ```
pub fn flatten() -> Flatten {
    Flatten
}

impl Module for Flatten {
    fn forward(&self, xs: &Tensor) -> Result<Tensor> {
        xs.flatten_from(1)
    }
}

/// A layer that takes the greatest element of each square; see [`max_pool2d`].
#[derive(Clone, Copy, Debug)]
pub struct MaxPool2d {
    /// The length of a square's side, and the distance from one square to the next.
    pub size: usize,
}

/// A layer that takes the greatest element of each square of this size: with 2, (n, 8, 10, 10) becomes (n, 8, 5, 5).
///
/// ```
/// use candle_core::{DType, Device, Module as _, Tensor};
/// let xs = Tensor::zeros((2, 8, 10, 10), DType::F32, &Device::Cpu)?;
/// assert_eq!(ferrotune_nn::max_pool2d(2).forward(&xs)?.dims(), [2, 8, 5, 5]);
/// # Ok::<(), candle_core::Error>(())
/// ```
pub fn max_pool2d(size: usize) -> MaxPool2d {
    MaxPool2d { size }
}

impl Module for MaxPool2d {
    fn forward(&self, xs: &Tensor) -> Result<Tensor> {
        xs.max_pool2d(self.size)
    }
}
