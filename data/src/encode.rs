//! Encodings of data for a model: classes as vectors, and features on the same scale.

use candle_core::{DType, Result, Tensor, bail};
use ferrotune_state::share_fields;

/// One-hot vectors of classes: 1 at the place of the class, and 0 elsewhere. `labels` has any shape and an integer dtype.
/// The result is f32 and has one more dimension, of size `classes`.
///
/// Fails if a label is negative, or is not below `classes`.
///
/// ```
/// # use candle_core::{Device, Tensor};
/// let labels = Tensor::new(&[2u32, 0], &Device::Cpu)?;
/// assert_eq!(ferrotune_data::one_hot(&labels, 3)?.to_vec2::<f32>()?, [[0., 0., 1.], [1., 0., 0.]]);
/// # Ok::<(), candle_core::Error>(())
/// ```
pub fn one_hot(labels: &Tensor, classes: usize) -> Result<Tensor> {
    if !labels.dtype().is_int() {
        bail!("one_hot: labels of {:?} are no classes; convert them with .to_dtype(DType::U32)", labels.dtype());
    }
    let numbers = labels.to_dtype(DType::I64)?.flatten_all()?.to_vec1::<i64>()?;
    if let Some((index, label)) = numbers.iter().enumerate().find(|(_, label)| !(0..classes as i64).contains(label)) {
        bail!("one_hot: label {index} is {label}; {classes} classes are numbered from 0");
    }
    let mut vectors = vec![0f32; numbers.len() * classes];
    for (row, label) in numbers.iter().enumerate() {
        vectors[row * classes + *label as usize] = 1.;
    }
    Tensor::from_vec(vectors, [labels.dims(), &[classes]].concat(), labels.device())
}

/// The standardisation of scikit-learn's `StandardScaler`: on the examples of the fit, every feature gets the mean 0 and the
/// standard deviation 1. Fit it only on the training examples. `%%tune` can capture
/// it.
///
/// ```
/// use ferrotune_data::{StandardScaler, wine};
/// let [train, valid] = wine()?.split([0.8, 0.2], 7)?;
/// let (features, _) = train.to_tensors()?;
/// let scaler = StandardScaler::fit(&features)?;
/// let valid = valid.map(1, move |(features, grower)| Ok((scaler.transform(&features)?, grower)));
/// # let (features, _) = valid.to_tensors()?;
/// # assert!(features.abs()?.max_all()?.to_scalar::<f32>()? < 6.);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct StandardScaler {
    /// The mean of each feature, with the shape of one example.
    pub mean: Tensor,
    /// The standard deviation of each feature, or 1 if the deviation is 0.
    pub std: Tensor,
}

share_fields!(StandardScaler { mean, std });

impl StandardScaler {
    /// Fits a scaler to examples, which are in the first dimension. Results have the examples' dtype.
    ///
    /// Fails if there are no examples, or if their dtype is not a float.
    pub fn fit(examples: &Tensor) -> Result<StandardScaler> {
        if !examples.dtype().is_float() || examples.dims().first().is_none_or(|count| *count == 0) {
            let (dtype, dims) = (examples.dtype(), examples.dims());
            bail!("StandardScaler: {dtype:?} {dims:?} has no examples of floats in its first dimension");
        }
        let exact = examples.to_dtype(DType::F64)?;
        let mean = exact.mean(0)?;
        let std = exact.broadcast_sub(&mean)?.sqr()?.mean(0)?.sqrt()?;
        let std = std.eq(0.)?.where_cond(&std.ones_like()?, &std)?;
        Ok(StandardScaler { mean: mean.to_dtype(examples.dtype())?, std: std.to_dtype(examples.dtype())? })
    }

    /// Standardises the features of one example, or of examples in the first dimension.
    pub fn transform(&self, examples: &Tensor) -> Result<Tensor> {
        examples.broadcast_sub(&self.mean)?.broadcast_div(&self.std)
    }

    /// Reverses [`StandardScaler::transform`].
    pub fn inverse_transform(&self, examples: &Tensor) -> Result<Tensor> {
        examples.broadcast_mul(&self.std)?.broadcast_add(&self.mean)
    }
}
