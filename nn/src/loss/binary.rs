//! Losses of independent yes-or-no targets, with a logit for each.

use super::{Loss, LossSettings, check_gamma, constants};
use crate::rows::NumberRows;
use candle_core::{Result, Tensor, bail};
use candle_nn::ops::softplus;
use serde::{Deserialize, Serialize};

/// The binary cross-entropy of logits, as PyTorch's
/// [`binary_cross_entropy_with_logits`](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.binary_cross_entropy_with_logits.html).
///
/// Logits and targets have shape (n,), (n, 1) or (n, k), where k targets of a row are independent. Targets are from 0 to 1, of any type.
///
/// ```
/// use candle_core::{Device, Tensor};
/// use ferrotune_nn::loss::{BinaryCrossEntropy, Loss as _};
/// let logits = Tensor::new(&[0_f32, 1e4], &Device::Cpu)?;
/// let loss = BinaryCrossEntropy::default().loss(&logits, &Tensor::new(&[0_u32, 1], &Device::Cpu)?)?;
/// assert!((loss.to_scalar::<f32>()? - 2_f32.ln() / 2.0).abs() < 1e-6);
/// # Ok::<(), candle_core::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BinaryCrossEntropy {
    /// The weight of targets that are 1 in each column, to which those that are 0 have the weight 1.
    pub pos_weight: Option<Vec<f64>>,
}

/// The focal loss of logits (Lin et al. 2017, arXiv:1708.02002), as torchvision's `sigmoid_focal_loss` with the mean over all
/// elements. Shapes are those of [`BinaryCrossEntropy`], and targets are 0 or 1.
///
/// ```
/// use candle_core::{Device, Tensor};
/// use ferrotune_nn::loss::{BinaryFocal, Loss as _};
/// let loss = BinaryFocal { alpha: None, gamma: 2.0 };
/// let loss = loss.loss(&Tensor::new(&[0_f32], &Device::Cpu)?, &Tensor::new(&[1_u32], &Device::Cpu)?)?;
/// assert!((loss.to_scalar::<f32>()? - 0.25 * 2_f32.ln()).abs() < 1e-6);
/// # Ok::<(), candle_core::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BinaryFocal {
    /// The weight of targets that are 1, from 0 to 1, to which those that are 0 have the weight `1 - alpha`; no weights if `None`.
    pub alpha: Option<f64>,
    /// The exponent, at least 0.
    pub gamma: f64,
}

impl Default for BinaryFocal {
    fn default() -> BinaryFocal {
        BinaryFocal { alpha: Some(0.25), gamma: 2.0 }
    }
}

impl Loss for BinaryCrossEntropy {
    fn terms(&self, outputs: &Tensor, targets: &Tensor, weights: Option<&Tensor>) -> Result<(Tensor, Tensor)> {
        let rows = logits(outputs, targets, weights)?;
        let Halves { mut ones, zeros } = Halves::of(&rows)?;
        if let Some(weights) = &self.pos_weight {
            let weights = constants(weights, rows.outputs.dim(1)?, &rows.outputs, "binary cross-entropy")?;
            ones = ones.broadcast_mul(&weights)?;
        }
        rows.mean_terms(&(ones + zeros)?)
    }

    fn settings(&self) -> Option<LossSettings> {
        Some(LossSettings::BinaryCrossEntropy(self.clone()))
    }
}

impl Loss for BinaryFocal {
    fn terms(&self, outputs: &Tensor, targets: &Tensor, weights: Option<&Tensor>) -> Result<(Tensor, Tensor)> {
        check_gamma(self.gamma)?;
        if let Some(alpha) = self.alpha.filter(|alpha| !(0.0..=1.0).contains(alpha)) {
            bail!("the binary focal loss has alpha {alpha}; choose a weight from 0 to 1, or `None`")
        }
        let rows = logits(outputs, targets, weights)?;
        let Halves { ones, zeros } = Halves::of(&rows)?;
        // The logarithm of 1 - p is minus the softplus of the other sign. Its exponential has a finite gradient everywhere.
        let focus = |logits: &Tensor| (softplus(logits)? * -self.gamma)?.exp();
        let ones = (ones * focus(&rows.outputs)?)?;
        let zeros = (zeros * focus(&rows.outputs.neg()?)?)?;
        let (of_ones, of_zeros) = self.alpha.map_or((1.0, 1.0), |alpha| (alpha, 1.0 - alpha));
        rows.mean_terms(&((ones * of_ones)? + (zeros * of_zeros)?)?)
    }

    fn settings(&self) -> Option<LossSettings> {
        Some(LossSettings::BinaryFocal(self.clone()))
    }
}

fn logits(outputs: &Tensor, targets: &Tensor, weights: Option<&Tensor>) -> Result<NumberRows> {
    if !outputs.dtype().is_float() {
        bail!("the outputs of a binary loss are {:?}; give logits, not the predicted classes", outputs.dtype())
    }
    NumberRows::new(outputs, targets, weights)
}

/// The cross-entropy as two parts: that of the targets' ones and that of their zeros.
struct Halves {
    ones: Tensor,
    zeros: Tensor,
}

impl Halves {
    fn of(rows: &NumberRows) -> Result<Halves> {
        let ones = (&rows.targets * softplus(&rows.outputs.neg()?)?)?;
        let zeros = (rows.targets.affine(-1.0, 1.0)? * softplus(&rows.outputs)?)?;
        Ok(Halves { ones, zeros })
    }
}
