//! Multilayer perceptrons by the sizes of their layers, which a search may choose.

use crate::sequential::{Sequential, model, seq};
use candle_core::{DType, Device, Result, bail};
use candle_nn::{Activation, BatchNormConfig, Dropout, VarBuilder, batch_norm, linear};

/// A multilayer perceptron: `inputs` numbers in a row, hidden layers of these sizes, and `outputs` numbers without an activation after
/// them (the logits of a classifier, or the predictions of a regression). Without hidden layers it is a linear model.
///
/// Each hidden layer is a `Linear`, then batch norm if chosen, the activation (ReLU unless another is chosen), and dropout if chosen. Its
/// variables have the names of PyTorch's `nn.Sequential` of the same layers, such as `0.weight`, so that its files load.
///
/// ```
/// use candle_core::Device;
/// use candle_nn::Activation;
/// use ferrotune_nn::{self as nn, Model as _};
/// let model = nn::mlp(784, &[128, 64], 10).activation(Activation::Gelu).dropout(0.2).build(&Device::Cpu)?;
/// assert_eq!(model.parameters(), 784 * 128 + 128 + 128 * 64 + 64 + 64 * 10 + 10);
/// # Ok::<(), candle_core::Error>(())
/// ```
pub fn mlp(inputs: usize, hidden: &[usize], outputs: usize) -> Mlp {
    Mlp { inputs, hidden: hidden.to_vec(), outputs, options: Options::default() }
}

/// The choices for an [`mlp`], until [`Mlp::build`] makes its variables.
#[derive(Clone, Debug)]
#[must_use = "`build(&device)` makes the model"]
pub struct Mlp {
    inputs: usize,
    hidden: Vec<usize>,
    outputs: usize,
    options: Options,
}

/// What the hidden layers of [`Mlp`] and [`Cnn`](crate::Cnn) have in common.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) activation: Activation,
    pub(crate) dropout: f64,
    pub(crate) has_batch_norm: bool,
    pub(crate) dtype: DType,
}

impl Default for Options {
    fn default() -> Options {
        Options { activation: Activation::Relu, dropout: 0.0, has_batch_norm: false, dtype: DType::F32 }
    }
}

impl Mlp {
    /// The activation after each hidden layer.
    pub fn activation(mut self, activation: Activation) -> Mlp {
        self.options.activation = activation;
        self
    }

    /// The probability with which training drops an output of a hidden layer, at least 0 and less than 1.
    pub fn dropout(mut self, probability: f64) -> Mlp {
        self.options.dropout = probability;
        self
    }

    /// Adds a batch norm to each hidden layer, before its activation.
    pub fn batch_norm(mut self) -> Mlp {
        self.options.has_batch_norm = true;
        self
    }

    /// The type of the variables instead of `f32`.
    pub fn dtype(mut self, dtype: DType) -> Mlp {
        self.options.dtype = dtype;
        self
    }

    /// Makes the model with new random variables on this device.
    ///
    /// # Errors
    /// If a size is 0, or the dropout is no probability below 1; and the errors of the device.
    pub fn build(&self, device: &Device) -> Result<Sequential> {
        let Mlp { inputs, hidden, outputs, options } = self;
        if let Some(place) = [inputs].into_iter().chain(hidden).chain([outputs]).position(|size| *size == 0) {
            bail!("layer {place} of the mlp {inputs} → {hidden:?} → {outputs} has size 0; give it 1 or more")
        }
        options.check("mlp")?;
        let model = model(device, |vb| dense(seq(), &vb.to_dtype(options.dtype), *inputs, hidden, *outputs, options))?;
        Ok(model.input(&[*inputs]))
    }
}

impl Options {
    pub(crate) fn check(&self, model: &str) -> Result<()> {
        if !(0.0..1.0).contains(&self.dropout) {
            bail!("the dropout of the {model} is {}; choose a probability of at least 0 and less than 1", self.dropout)
        }
        Ok(())
    }

    /// Appends what follows a layer with this number of features or channels: batch norm, if chosen, and the activation.
    pub(crate) fn activate(&self, mut layers: Sequential, vb: &VarBuilder<'_>, features: usize) -> Result<Sequential> {
        if self.has_batch_norm {
            let place = layers.len();
            layers = layers.add(batch_norm(features, BatchNormConfig::default(), vb.pp(place))?);
        }
        Ok(layers.add(self.activation))
    }

    pub(crate) fn drop(&self, layers: Sequential) -> Sequential {
        match self.dropout {
            0.0 => layers,
            probability => layers.add(Dropout::new(probability as f32)),
        }
    }
}

/// Appends hidden layers and the last layer. The variables of a layer have its place as their name.
pub(crate) fn dense(
    mut layers: Sequential,
    vb: &VarBuilder<'_>,
    inputs: usize,
    hidden: &[usize],
    outputs: usize,
    options: &Options,
) -> Result<Sequential> {
    let mut width = inputs;
    for &size in hidden {
        let place = layers.len();
        layers = layers.add(linear(width, size, vb.pp(place))?);
        layers = options.drop(options.activate(layers, vb, size)?);
        width = size;
    }
    let place = layers.len();
    Ok(layers.add(linear(width, outputs, vb.pp(place))?))
}
