//! How an input lies in memory. Whatever the layout, its shape and values are the same.

use candle_core::{D, Result, Tensor};
use serde::Deserialize;

/// The layout of an input.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum View {
    /// Row after row.
    Whole,
    /// Column after column.
    Transposed,
    /// Behind other elements.
    Offset,
    /// Each element followed by another one.
    Strided,
    /// One row with a stride of 0: only for inputs whose rows are equal.
    Broadcast,
}

impl View {
    /// A view with the values of a contiguous tensor.
    pub(crate) fn of(self, tensor: &Tensor) -> Result<Tensor> {
        if tensor.rank() == 0 {
            return Ok(tensor.clone());
        }
        match self {
            View::Whole => Ok(tensor.clone()),
            View::Transposed => tensor.transpose(0, D::Minus1)?.contiguous()?.transpose(0, D::Minus1),
            View::Offset => {
                let rows = tensor.dim(0)?;
                Tensor::cat(&[&tensor.detach(), tensor], 0)?.narrow(0, rows, rows)
            }
            View::Strided => {
                let pairs = Tensor::stack(&[tensor, &tensor.detach()], tensor.rank())?;
                pairs.narrow(D::Minus1, 0, 1)?.squeeze(D::Minus1)
            }
            View::Broadcast => tensor.narrow(0, 0, 1)?.broadcast_as(tensor.shape()),
        }
    }
}
