//! Losses of regressions. The mean is over all elements.

use super::{Loss, LossSettings};
use crate::rows::NumberRows;
use candle_core::{Result, Tensor, bail};
use serde::{Deserialize, Serialize};

/// The mean squared error. Outputs and targets have the same shape (n,), (n, 1) or (n, k), or one has (n,) and the other (n, 1).
///
/// ```
/// use candle_core::{Device, Tensor};
/// use ferrotune_nn::loss::{Loss as _, Mse};
/// let outputs = Tensor::new(&[[1_f32], [2.0]], &Device::Cpu)?;
/// assert_eq!(Mse.loss(&outputs, &Tensor::new(&[1_f32, 4.0], &Device::Cpu)?)?.to_scalar::<f32>()?, 2.0);
/// # Ok::<(), candle_core::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mse;

/// The mean absolute error, of shapes like those of [`Mse`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mae;

/// The Huber loss: half the squared error up to `delta`, and linear in the error beyond, of shapes like those of [`Mse`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Huber {
    /// The error at which the loss becomes linear, above 0.
    pub delta: f64,
}

impl Default for Huber {
    fn default() -> Huber {
        Huber { delta: 1.0 }
    }
}

impl Loss for Mse {
    fn terms(&self, outputs: &Tensor, targets: &Tensor, weights: Option<&Tensor>) -> Result<(Tensor, Tensor)> {
        let rows = NumberRows::new(outputs, targets, weights)?;
        rows.mean_terms(&(&rows.outputs - &rows.targets)?.sqr()?)
    }

    fn settings(&self) -> Option<LossSettings> {
        Some(LossSettings::Mse(*self))
    }
}

impl Loss for Mae {
    fn terms(&self, outputs: &Tensor, targets: &Tensor, weights: Option<&Tensor>) -> Result<(Tensor, Tensor)> {
        let rows = NumberRows::new(outputs, targets, weights)?;
        rows.mean_terms(&(&rows.outputs - &rows.targets)?.abs()?)
    }

    fn settings(&self) -> Option<LossSettings> {
        Some(LossSettings::Mae(*self))
    }
}

impl Loss for Huber {
    fn terms(&self, outputs: &Tensor, targets: &Tensor, weights: Option<&Tensor>) -> Result<(Tensor, Tensor)> {
        if !self.delta.is_finite() || self.delta <= 0.0 {
            bail!("the Huber loss has delta {}; choose a finite number above 0", self.delta)
        }
        let rows = NumberRows::new(outputs, targets, weights)?;
        let errors = (&rows.outputs - &rows.targets)?.abs()?;
        let near = errors.minimum(self.delta)?;
        rows.mean_terms(&(&near * (&errors - (&near * 0.5)?)?)?)
    }

    fn settings(&self) -> Option<LossSettings> {
        Some(LossSettings::Huber(*self))
    }
}

impl NumberRows {
    /// The weighted sum of losses of shape (n, k), and the number of elements, each with the weight of its row.
    pub(super) fn mean_terms(&self, losses: &Tensor) -> Result<(Tensor, Tensor)> {
        let sum = losses.broadcast_mul(&self.weights.unsqueeze(1)?)?.sum_all()?;
        Ok((sum, (self.weights.sum_all()? * losses.dim(1)? as f64)?))
    }
}
