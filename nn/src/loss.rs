//! Losses that candle-nn does not have, and those that it has with weights of rows. All are finite for any finite outputs, and none
//! reads a value, so that compiled steps can contain them.
//!
//! Each is a [`Loss`] with options. Outputs and targets have the shapes of the [metrics](crate::metrics). A row with weight 0, such as
//! the padding of a batch, changes neither the loss nor a gradient, even if it is NaN. If all rows have weight 0, the loss is NaN.
//!
//! ```
//! use candle_core::{Device, Tensor};
//! use ferrotune_nn::loss::{CrossEntropy, Loss as _};
//! let logits = Tensor::new(&[[0_f32, 0.0], [2.0, 1.0], [9.0, 9.0]], &Device::Cpu)?;
//! let labels = Tensor::new(&[1_u32, 0, 0], &Device::Cpu)?;
//! let loss = CrossEntropy { label_smoothing: 0.1, ..CrossEntropy::default() };
//! let mask = Tensor::new(&[1_f32, 1.0, 0.0], &Device::Cpu)?;
//! let masked = loss.weighted(&logits, &labels, &mask)?.to_scalar::<f32>()?;
//! let first = loss.loss(&logits.narrow(0, 0, 2)?, &labels.narrow(0, 0, 2)?)?.to_scalar::<f32>()?;
//! assert!((masked - first).abs() < 1e-6);
//! # Ok::<(), candle_core::Error>(())
//! ```

mod binary;
mod classes;
mod custom;
mod numbers;
mod settings;

pub use binary::{BinaryCrossEntropy, BinaryFocal};
use candle_core::{DType, Result, Tensor, bail};
pub use classes::{CrossEntropy, Focal};
pub use custom::{Custom, custom, terms_of_rows};
pub use numbers::{Huber, Mae, Mse};
#[doc(hidden)]
pub use settings::LossSettings;

/// A loss: the mean over rows, of which some may have other weights.
pub trait Loss: Send + Sync {
    /// The weighted sum of the rows' losses, and the number by which it is divided: two tensors without dimensions, in `f32`, or in `f64`
    /// if the outputs are. The loss of several batches is the sum of the first divided by the sum of the second. `weights` has one
    /// number for each row.
    ///
    /// # Errors
    /// If the shapes or types of outputs, targets and weights do not fit, or an option of the loss has no such value.
    fn terms(&self, outputs: &Tensor, targets: &Tensor, weights: Option<&Tensor>) -> Result<(Tensor, Tensor)>;

    /// The loss of a batch: a tensor without dimensions, in `f32`, or in `f64` if the outputs are.
    ///
    /// # Errors
    /// The errors of [`Loss::terms`].
    fn loss(&self, outputs: &Tensor, targets: &Tensor) -> Result<Tensor> {
        let (sum, divisor) = self.terms(outputs, targets, None)?;
        sum.div(&divisor)
    }

    /// The loss of a batch whose rows have weights; a row with weight 0 is ignored.
    ///
    /// # Errors
    /// The errors of [`Loss::terms`].
    fn weighted(&self, outputs: &Tensor, targets: &Tensor, weights: &Tensor) -> Result<Tensor> {
        let (sum, divisor) = self.terms(outputs, targets, Some(weights))?;
        sum.div(&divisor)
    }

    /// The loss with its options for a file; none of a loss of one's own.
    #[doc(hidden)]
    fn settings(&self) -> Option<LossSettings> {
        None
    }
}

macro_rules! forwarded {
    ($($kind:ty),+) => {$(
        impl<L: Loss + ?Sized> Loss for $kind {
            fn terms(&self, outputs: &Tensor, targets: &Tensor, weights: Option<&Tensor>) -> Result<(Tensor, Tensor)> {
                (**self).terms(outputs, targets, weights)
            }

            fn settings(&self) -> Option<LossSettings> {
                (**self).settings()
            }
        }
    )+};
}

forwarded!(&L, Box<L>, std::sync::Arc<L>);

/// The mean cross-entropy of the rows whose label is not `ignore_index`, such as the padding of a text.
///
/// `logits` has shape (…, classes) and a floating-point type, `labels` has shape (…) and an integer type. The result has no
/// dimensions and the type of the logits; sums of 16-bit floats are computed in `f32`. If all rows are ignored, the result is NaN.
/// The gradient of an ignored row is 0. This is PyTorch's
/// [`cross_entropy`](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.cross_entropy.html) with
/// `ignore_index`, except that there the classes are the second dimension.
///
/// # Errors
/// If the shapes do not match, or if another label is not a class. On a plugin's device the second error comes when the loss is read.
///
/// ```
/// use candle_core::{Device, Tensor};
/// use ferrotune_nn::loss::cross_entropy;
/// let logits = Tensor::new(&[[0_f32, 0.0], [2.0, 1.0]], &Device::Cpu)?;
/// let labels = Tensor::new(&[1_i64, -100], &Device::Cpu)?;
/// let loss = cross_entropy(&logits, &labels, -100)?.to_scalar::<f32>()?;
/// assert!((loss - 2_f32.ln()).abs() < 1e-6);
/// # Ok::<(), candle_core::Error>(())
/// ```
pub fn cross_entropy(logits: &Tensor, labels: &Tensor, ignore_index: i64) -> Result<Tensor> {
    if logits.rank() == 0 {
        bail!("the logits of a cross-entropy have no classes")
    }
    let loss = CrossEntropy { ignore_index: Some(ignore_index), ..CrossEntropy::default() };
    loss.loss(logits, labels)?.to_dtype(logits.dtype())
}

/// Weights of classes or columns as a tensor like the outputs, where `of` names the loss for errors.
fn constants(values: &[f64], count: usize, like: &Tensor, of: &str) -> Result<Tensor> {
    if values.len() != count {
        bail!("the {of} has {} weights for {count} classes; give one for each", values.len())
    }
    if let Some(wrong) = values.iter().find(|value| !value.is_finite() || **value < 0.0) {
        bail!("the {of} has the weight {wrong}; give finite numbers of at least 0")
    }
    match like.dtype() {
        DType::F64 => Tensor::new(values, like.device()),
        _ => Tensor::new(values.iter().map(|value| *value as f32).collect::<Vec<_>>(), like.device()),
    }
}

/// Fails unless the exponent of a focal loss is a finite number of at least 0.
fn check_gamma(gamma: f64) -> Result<()> {
    if !gamma.is_finite() || gamma < 0.0 {
        bail!("the focal loss has gamma {gamma}; choose a finite number of at least 0")
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::{DType, Device, Var};

    #[test]
    fn rows_that_are_left_out_count_neither_in_the_loss_nor_in_the_gradient() -> Result<()> {
        let numbers = [[[0.5_f32, -1.0, 2.0], [f32::NAN, 0.0, 0.0]], [[1.0, 1.0, 1.0], [3.0, -2.0, 0.0]]];
        let logits = Var::new(&numbers, &Device::Cpu)?;
        for ignored in [-100_i64, 4_294_967_295] {
            let labels = Tensor::new(&[[2_i64, ignored], [0, 1]], &Device::Cpu)?;
            let loss = cross_entropy(&logits, &labels, ignored)?;
            let counted = logits.flatten_to(1)?.index_select(&Tensor::new(&[0_u32, 2, 3], &Device::Cpu)?, 0)?;
            let expected = candle_nn::loss::cross_entropy(&counted, &Tensor::new(&[2_u32, 0, 1], &Device::Cpu)?)?;
            assert_eq!(loss.to_scalar::<f32>()?, expected.to_scalar::<f32>()?);
            let gradients = loss.backward()?;
            let gradient = gradients.get(&logits).expect("a variable has a gradient").to_vec3::<f32>()?;
            assert_eq!(gradient[0][1], [0.0; 3]);
            let sum: f32 = gradient[0][0].iter().chain(&gradient[1][0]).chain(&gradient[1][1]).sum();
            assert!(sum.abs() < 1e-6, "{gradient:?}");
        }
        Ok(())
    }

    #[test]
    fn no_row_at_all_is_nan_and_another_label_an_error() -> Result<()> {
        let logits = Tensor::zeros((1, 3), DType::F32, &Device::Cpu)?;
        let label = |label: i64| Tensor::new(&[label], &Device::Cpu);
        assert!(cross_entropy(&logits, &label(-1)?, -1)?.to_scalar::<f32>()?.is_nan());
        let error = cross_entropy(&logits, &label(-2)?, -1).expect_err("-2 is no class").to_string();
        assert!(error.contains("invalid index -2") && error.contains("a label of the cross-entropy"), "{error}");
        let error = cross_entropy(&logits, &Tensor::zeros((1, 2), DType::I64, &Device::Cpu)?, -1);
        assert!(error.expect_err("the shapes differ").to_string().contains("do not fit targets of shape [1, 2]"));
        Ok(())
    }
}
