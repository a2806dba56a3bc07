//! The loss of a training: one of `nn::loss`, or a closure of the user's.

use candle_core::{DType, Result, Tensor, bail};
use ferrotune_nn::loss::{Loss, terms_of_rows};
use std::cell::Cell;

type Closure<'a> = Box<dyn Fn(&Tensor, &Tensor) -> Result<Tensor> + 'a>;

/// What a training minimises.
pub(crate) enum Criterion<'a> {
    /// No loss was chosen.
    None,
    /// A loss that knows weights of rows.
    Loss(Box<dyn Loss + 'a>),
    /// A closure of outputs and targets, which returns a number for each row, or the mean of all rows. Which of both is known after the
    /// first batch.
    Closure(Closure<'a>, Cell<Option<Returned>>),
}

/// What a closure returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Returned {
    Rows,
    Mean,
}

impl<'a> Criterion<'a> {
    pub(crate) fn closure(closure: impl Fn(&Tensor, &Tensor) -> Result<Tensor> + 'a) -> Criterion<'a> {
        Criterion::Closure(Box::new(closure), Cell::new(None))
    }

    /// Whether it is known that rows may have weights. A mean has them no more.
    pub(crate) fn knows_weights(&self) -> bool {
        !matches!(self, Criterion::Closure(_, returned) if returned.get() != Some(Returned::Rows))
    }

    /// The weighted sum of the rows' losses, and the sum of the weights, as tensors without dimensions.
    ///
    /// # Errors
    /// If no loss was chosen, if a closure returns another shape, and the errors of the loss.
    pub(crate) fn terms(
        &self,
        outputs: &Tensor,
        targets: &Tensor,
        weights: Option<&Tensor>,
    ) -> Result<(Tensor, Tensor)> {
        let (closure, returned) = match self {
            Criterion::None => bail!("this training has no loss; choose one with `.loss(|outputs, targets| …)`"),
            Criterion::Loss(loss) => return loss.terms(outputs, targets, weights),
            Criterion::Closure(closure, returned) => (closure, returned),
        };
        let losses = closure(outputs, targets)?;
        let losses = if losses.dtype() == DType::F64 { losses } else { losses.to_dtype(DType::F32)? };
        let rows = targets.dims().first().copied().unwrap_or(1);
        returned.set(Some(if losses.rank() == 0 { Returned::Mean } else { Returned::Rows }));
        match (losses.dims(), weights) {
            ([], None) => {
                let count = Tensor::full(rows as f32, (), losses.device())?.to_dtype(losses.dtype())?;
                Ok(((&losses * &count)?, count))
            }
            // A batch is filled up only where the closure returns rows, so that all weights are 1.
            ([], Some(weights)) => {
                let count = weights.to_dtype(losses.dtype())?.sum_all()?;
                Ok(((&losses * &count)?, count))
            }
            ([count] | [count, 1], _) if *count == rows => terms_of_rows(&losses, rows, weights),
            (dims, _) => {
                bail!("the loss's closure made {dims:?} of {rows} rows; return a number for each row, or their mean")
            }
        }
    }
}
