//! Losses by closures.

use super::Loss;
use crate::rows::{row_weights, wide};
use candle_core::{Result, Tensor, bail};

/// A loss that is the mean of a number for each row, which a closure of outputs and targets computes as a tensor of shape (n,) or
/// (n, 1). In rows with weight 0 the closure gets outputs of 0.
///
/// ```
/// use candle_core::{Device, Tensor};
/// use ferrotune_nn::loss::{self, Loss as _};
/// let fourth = loss::custom(|outputs, targets| (outputs - targets)?.powf(4.0));
/// let (outputs, targets) = (Tensor::new(&[1_f32, 2.0], &Device::Cpu)?, Tensor::new(&[1_f32, 0.0], &Device::Cpu)?);
/// assert_eq!(fourth.loss(&outputs, &targets)?.to_scalar::<f32>()?, 8.0);
/// # Ok::<(), candle_core::Error>(())
/// ```
pub fn custom<F: Fn(&Tensor, &Tensor) -> Result<Tensor> + Send + Sync>(of_rows: F) -> Custom<F> {
    Custom { of_rows }
}

/// The loss of [`custom`].
#[derive(Clone, Copy, Debug)]
pub struct Custom<F> {
    of_rows: F,
}

impl<F: Fn(&Tensor, &Tensor) -> Result<Tensor> + Send + Sync> Loss for Custom<F> {
    fn terms(&self, outputs: &Tensor, targets: &Tensor, weights: Option<&Tensor>) -> Result<(Tensor, Tensor)> {
        let Some(&rows) = outputs.dims().first() else { bail!("the outputs of a loss are a scalar, without rows") };
        let mut outputs = outputs.clone();
        if let Some(weights) = weights {
            let mut dims = vec![1; outputs.rank()];
            dims[0] = rows;
            let is_counted = row_weights(Some(weights), &[rows], &outputs)?.ne(0_f64)?.reshape(dims)?;
            outputs = is_counted.broadcast_as(outputs.shape())?.where_cond(&outputs, &outputs.zeros_like()?)?;
        }
        let losses = wide(&(self.of_rows)(&outputs, targets)?)?;
        if !matches!(losses.dims(), [others] | [others, 1] if *others == rows) {
            bail!("a loss's closure made {:?} of {rows} rows; return a number for each row", losses.dims())
        }
        terms_of_rows(&losses, rows, weights)
    }
}

/// The terms of a loss that is the mean of these numbers, one for each of so many rows, of which those with weight 0 are left out.
#[doc(hidden)]
pub fn terms_of_rows(losses: &Tensor, rows: usize, weights: Option<&Tensor>) -> Result<(Tensor, Tensor)> {
    let losses = losses.reshape(rows)?;
    let weights = row_weights(weights, &[rows], &losses)?;
    let losses = weights.ne(0_f64)?.where_cond(&losses, &losses.zeros_like()?)?;
    Ok(((losses * &weights)?.sum_all()?, weights.sum_all()?))
}
