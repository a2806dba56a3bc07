//! The settings of a loss as files have them.

use super::{BinaryCrossEntropy, BinaryFocal, CrossEntropy, Focal, Huber, Loss, Mae, Mse};
use candle_core::{Result, Tensor};
use serde::{Deserialize, Serialize};

/// A loss of this module with its options, as files have them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Settings {
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

impl Settings {
    fn loss(&self) -> &dyn Loss {
        match self {
            Settings::CrossEntropy(loss) => loss,
            Settings::Focal(loss) => loss,
            Settings::BinaryCrossEntropy(loss) => loss,
            Settings::BinaryFocal(loss) => loss,
            Settings::Mse(loss) => loss,
            Settings::Mae(loss) => loss,
            Settings::Huber(loss) => loss,
        }
    }
}

impl Loss for Settings {
    fn terms(&self, outputs: &Tensor, targets: &Tensor, weights: Option<&Tensor>) -> Result<(Tensor, Tensor)> {
        self.loss().terms(outputs, targets, weights)
    }

    fn settings(&self) -> Option<Settings> {
        Some(self.clone())
    }
}
