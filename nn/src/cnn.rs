//! Convolutional networks by the sizes of their layers, which a search may choose.

use crate::mlp::{Options, dense};
use crate::sequential::{Sequential, flatten, max_pool2d, model, seq};
use candle_core::{DType, Device, Result, bail};
use candle_nn::{Activation, Conv2dConfig, conv2d};

/// A convolutional network for images of shape (channels, height, width), with a block for each of these numbers of channels, and
/// `outputs` numbers without an activation after them.
///
/// Each block is a convolution that keeps height and width, then batch norm if chosen, the activation (ReLU unless another is chosen), a
/// maximum over squares of 2 × 2, which halves both, and dropout if chosen. After the blocks come the hidden layers of
/// [`Cnn::hidden`], as in an [`mlp`](crate::mlp()), and the last layer. A batch has shape (n, channels, height, width).
///
/// ```
/// use candle_core::{DType, Device, Tensor};
/// use ferrotune_nn::{self as nn, Model as _};
/// let model = nn::cnn([3, 32, 32], &[16, 32], 10).batch_norm().hidden(&[64]).dropout(0.25).build(&Device::Cpu)?;
/// let images = Tensor::zeros((5, 3, 32, 32), DType::F32, &Device::Cpu)?;
/// assert_eq!(model.predict(&images)?.dims(), [5, 10]);
/// # Ok::<(), candle_core::Error>(())
/// ```
pub fn cnn(input: [usize; 3], channels: &[usize], outputs: usize) -> Cnn {
    Cnn { input, channels: channels.to_vec(), hidden: Vec::new(), outputs, kernel: 3, options: Options::default() }
}

/// The choices for a [`cnn`], until [`Cnn::build`] makes its variables.
#[derive(Clone, Debug)]
#[must_use = "`build(&device)` makes the model"]
pub struct Cnn {
    input: [usize; 3],
    channels: Vec<usize>,
    hidden: Vec<usize>,
    outputs: usize,
    kernel: usize,
    options: Options,
}

impl Cnn {
    /// The side of each convolution's kernel: an odd number, 3 unless another is chosen.
    pub fn kernel(mut self, size: usize) -> Cnn {
        self.kernel = size;
        self
    }

    /// Hidden layers of these sizes between the blocks and the last layer.
    pub fn hidden(mut self, sizes: &[usize]) -> Cnn {
        self.hidden = sizes.to_vec();
        self
    }

    /// The activation of each block and hidden layer.
    pub fn activation(mut self, activation: Activation) -> Cnn {
        self.options.activation = activation;
        self
    }

    /// The probability with which training drops an output of a block or a hidden layer, at least 0 and less than 1.
    pub fn dropout(mut self, probability: f64) -> Cnn {
        self.options.dropout = probability;
        self
    }

    /// Adds a batch norm to each block and hidden layer, before its activation.
    pub fn batch_norm(mut self) -> Cnn {
        self.options.has_batch_norm = true;
        self
    }

    /// The type of the variables instead of `f32`.
    pub fn dtype(mut self, dtype: DType) -> Cnn {
        self.options.dtype = dtype;
        self
    }

    /// Makes the model with new random variables on this device.
    ///
    /// # Errors
    /// If a size is 0, the kernel's side is even, the image is too small for so many blocks, or the dropout is no probability below 1;
    /// and the errors of the device.
    pub fn build(&self, device: &Device) -> Result<Sequential> {
        self.check()?;
        let options = &self.options;
        let [mut channels, mut height, mut width] = self.input;
        let model = model(device, |vb| {
            let vb = vb.to_dtype(options.dtype);
            let mut layers = seq();
            let config = Conv2dConfig { padding: self.kernel / 2, ..Conv2dConfig::default() };
            for &size in &self.channels {
                let place = layers.len();
                layers = layers.add(conv2d(channels, size, self.kernel, config, vb.pp(place))?);
                layers = options.drop(options.activate(layers, &vb, size)?.add(max_pool2d(2)));
                (channels, height, width) = (size, height / 2, width / 2);
            }
            dense(layers.add(flatten()), &vb, channels * height * width, &self.hidden, self.outputs, options)
        })?;
        Ok(model.input(&self.input))
    }

    fn check(&self) -> Result<()> {
        let Cnn { input, channels, hidden, outputs, kernel, options } = self;
        if input.iter().chain(channels).chain(hidden).chain([outputs]).any(|size| *size == 0) {
            bail!("the cnn {input:?} → {channels:?} → {hidden:?} → {outputs} has a size of 0; give each 1 or more")
        }
        if kernel % 2 == 0 {
            bail!("the kernel of the cnn has side {kernel}; an odd one, such as {}, keeps height and width", kernel + 1)
        }
        let [_, height, width] = *input;
        let most = height.min(width).ilog2() as usize;
        if channels.len() > most {
            bail!(
                "the cnn has {} blocks, and images of {height} × {width} can be halved {most} times; take fewer blocks or larger images",
                channels.len()
            )
        }
        options.check("cnn")
    }
}
