//! A batch as a step of the user's own sees it, and the values that the step adds to the metrics.

use crate::history::is_reserved;
use crate::optimizers::Optimizers;
use candle_core::{DType, Result, Tensor, bail};
use ferrotune_nn::loss::terms_of_rows;
use std::cell::{Cell, RefCell};

/// What a closure returns for a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Returned {
    /// A number for each row.
    Rows,
    /// The mean of all rows, somewhere.
    Mean,
}

/// A sum over rows and the number by which it is divided: tensors without dimensions.
pub(crate) type Terms = [Tensor; 2];

/// A batch in [`Fit::step`](crate::Fit::step) and [`Fit::steps`](crate::Fit::steps), on the model's device.
pub struct Batch<'b> {
    /// The inputs; the first dimension is the rows.
    pub inputs: Tensor,
    /// The targets; the first dimension is the rows.
    pub targets: Tensor,
    /// A number for each row, of shape (rows,): 1, and 0 for rows that only fill up a batch. Without it, all rows count. A step that
    /// computes each row by itself needs no weights: [`Fit`](crate::Fit) leaves the other rows out. One whose rows depend on each other
    /// uses them, or returns the mean, so that no batch is filled up.
    pub weights: Option<Tensor>,
    /// Whether this is a step of training, not of validation.
    pub train: bool,
    logs: RefCell<Vec<(String, Terms)>>,
    minimized: RefCell<Vec<Terms>>,
    returned: &'b Cell<Option<Returned>>,
    optimizers: Option<&'b Optimizers>,
}

impl<'b> Batch<'b> {
    pub(crate) fn new(
        [inputs, targets]: [&Tensor; 2],
        weights: Option<&Tensor>,
        train: bool,
        returned: &'b Cell<Option<Returned>>,
        optimizers: Option<&'b Optimizers>,
    ) -> Batch<'b> {
        let (inputs, targets, weights) = (inputs.clone(), targets.clone(), weights.cloned());
        let (logs, minimized) = (RefCell::default(), RefCell::default());
        Batch { inputs, targets, weights, train, logs, minimized, returned, optimizers }
    }

    /// Adds a number to the metrics of the epoch, by its name: its mean over the rows, in validation as `val_NAME`. `value` is a number
    /// for each row, of shape (rows,) or (rows, 1), or their mean, a tensor without dimensions.
    ///
    /// # Errors
    /// If the name stands for something else, or the tensor has another shape.
    pub fn log(&self, name: &str, value: &Tensor) -> Result<()> {
        if is_reserved(name) {
            bail!("`{name}` stands for the loss or for validation data; log the value under another name")
        }
        let terms = self.terms(value)?.map(|term| term.detach());
        let mut logs = self.logs.borrow_mut();
        if logs.iter().any(|(other, _)| other == name) {
            bail!("a step has logged `{name}` twice; give each value a name of its own")
        }
        logs.push((name.to_owned(), terms));
        Ok(())
    }

    /// Makes this loss smaller by a step of the optimiser with this prefix, which [`Fit::optimizer_of`](crate::Fit::optimizer_of) has set;
    /// that of [`Fit::optimizer`](crate::Fit::optimizer) has the prefix `""`. In validation no variable changes. The loss of an epoch is
    /// the sum of all losses that its steps have minimised.
    ///
    /// # Errors
    /// If there is no such optimiser, if this is a step of [`Fit::step`](crate::Fit::step), and the errors of [`Batch::log`].
    pub fn minimize(&self, prefix: &str, loss: &Tensor) -> Result<()> {
        let [sum, divisor] = self.terms(loss)?;
        if let Some(optimizers) = self.optimizers {
            optimizers.step_one(prefix, &mut (&sum / &divisor)?.backward()?)?;
        }
        self.minimized.borrow_mut().push([sum.detach(), divisor.detach()]);
        Ok(())
    }

    /// The terms of a number for each row, or of their mean. Records which of both it is.
    pub(crate) fn terms(&self, value: &Tensor) -> Result<Terms> {
        let value = if value.dtype() == DType::F64 { value.clone() } else { value.to_dtype(DType::F32)? };
        let rows = rows_of(&self.targets);
        let is_mean = value.rank() == 0;
        // One mean is enough: its batch cannot be filled up.
        if is_mean || self.returned.get().is_none() {
            self.returned.set(Some(if is_mean { Returned::Mean } else { Returned::Rows }));
        }
        match value.dims() {
            [] => {
                // A batch is filled up only where everything is a number for each row, so that all weights are 1.
                let count = match &self.weights {
                    Some(weights) => weights.to_dtype(value.dtype())?.sum_all()?,
                    None => Tensor::full(rows as f32, (), value.device())?.to_dtype(value.dtype())?,
                };
                Ok([(&value * &count)?, count])
            }
            [count] | [count, 1] if *count == rows => {
                let (sum, divisor) = terms_of_rows(&value, rows, self.weights.as_ref())?;
                Ok([sum, divisor])
            }
            dims => bail!("a closure made {dims:?} of {rows} rows; return a number for each row, or their mean"),
        }
    }

    /// What the step has logged.
    pub(crate) fn logged(&self) -> Vec<(String, Terms)> {
        self.logs.take()
    }

    /// The sum of all losses that were minimised.
    ///
    /// # Errors
    /// If there was none.
    pub(crate) fn minimized(&self) -> Result<Terms> {
        let mut all = self.minimized.take().into_iter();
        let Some([mut sum, divisor]) = all.next() else {
            bail!("a step of `.steps` has minimised nothing; call `batch.minimize(\"\", &loss)?` in it")
        };
        for [other, divided_by] in all {
            sum = (sum + ((other / divided_by)? * &divisor)?)?;
        }
        Ok([sum, divisor])
    }
}

/// The number of rows of a batch's tensor.
pub(crate) fn rows_of(tensor: &Tensor) -> usize {
    tensor.dims().first().copied().unwrap_or(1)
}
