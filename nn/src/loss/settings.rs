//! The settings of a loss as files have them.

use super::{BinaryCrossEntropy, BinaryFocal, CrossEntropy, Focal, Huber, Loss, Mae, Mse};
use candle_core::{Result, Tensor};
use serde::{Deserialize, Serialize};

/// A loss of this module with its options, as files have them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LossSettings {
    /// [`CrossEntropy`].
    CrossEntropy(CrossEntropy),
    /// [`Focal`].
    Focal(Focal),
    /// [`BinaryCrossEntropy`].
    BinaryCrossEntropy(BinaryCrossEntropy),
    /// [`BinaryFocal`].
    BinaryFocal(BinaryFocal),
    /// [`Mse`].
    Mse(Mse),
    /// [`Mae`].
    Mae(Mae),
    /// [`Huber`].
    Huber(Huber),
}

impl LossSettings {
    fn loss(&self) -> &dyn Loss {
        match self {
            LossSettings::CrossEntropy(loss) => loss,
            LossSettings::Focal(loss) => loss,
            LossSettings::BinaryCrossEntropy(loss) => loss,
            LossSettings::BinaryFocal(loss) => loss,
            LossSettings::Mse(loss) => loss,
            LossSettings::Mae(loss) => loss,
            LossSettings::Huber(loss) => loss,
        }
    }
}

impl Loss for LossSettings {
    fn terms(&self, outputs: &Tensor, targets: &Tensor, weights: Option<&Tensor>) -> Result<(Tensor, Tensor)> {
        self.loss().terms(outputs, targets, weights)
    }

    fn settings(&self) -> Option<LossSettings> {
        Some(self.clone())
    }
}
