//! Outputs and targets of a batch in one form, for metrics and losses. Only shapes that leave no doubt are accepted: nothing is
//! broadcast from (n,) and (n, 1) to (n, n). Rows with weight 0 have no influence, even where they are NaN.

use candle_core::{D, DType, Result, Tensor, bail};

/// The rows of a classifier.
pub(crate) struct ClassRows {
    /// The scores (logits), of shape (n, classes), in `f32` or `f64`. A single logit per row is the second of two classes, and the first
    /// has the logit 0.
    pub(crate) scores: Tensor,
    /// The labels, of shape (n,), in `i64`, or in a floating-point type if they were given so.
    pub(crate) labels: Tensor,
    /// The weights, of shape (n,), in the type of the scores.
    pub(crate) weights: Tensor,
    /// Which rows have a weight other than 0, in `u8`.
    pub(crate) is_counted: Tensor,
}

/// The rows of a regression: outputs and targets of shape (n, k), and weights of shape (n,), all of one type, `f32` or `f64`.
pub(crate) struct NumberRows {
    pub(crate) outputs: Tensor,
    pub(crate) targets: Tensor,
    pub(crate) weights: Tensor,
}

impl ClassRows {
    pub(crate) fn new(outputs: &Tensor, targets: &Tensor, weights: Option<&Tensor>) -> Result<ClassRows> {
        ClassRows::without(None, outputs, targets, weights)
    }

    /// The rows, where those with the label `ignored` have weight 0.
    pub(crate) fn without(
        ignored: Option<i64>,
        outputs: &Tensor,
        targets: &Tensor,
        weights: Option<&Tensor>,
    ) -> Result<ClassRows> {
        if !outputs.dtype().is_float() {
            bail!(
                "the outputs of a classifier are {:?}; give the scores (logits) of the classes, not the predicted classes",
                outputs.dtype()
            )
        }
        let scores = match class_layout(outputs.dims(), targets.dims()) {
            Some(Layout::Classes(rows, classes)) => wide(outputs)?.reshape((rows, classes))?,
            Some(Layout::OneLogit(rows)) => {
                let logit = wide(outputs)?.reshape((rows, 1))?;
                Tensor::cat(&[&logit.zeros_like()?, &logit], 1)?
            }
            None => bail!(
                "a classifier's outputs of shape {:?} do not fit targets of shape {:?}; targets have one class for each row: shape (n,) \
                 for outputs (n, classes), (n,) or (n, 1)",
                outputs.dims(),
                targets.dims()
            ),
        };
        let labels = match targets.dtype() {
            dtype if !dtype.is_float() => targets.to_dtype(DType::I64)?,
            _ => wide(targets)?,
        };
        let labels = labels.flatten_all()?;
        let mut weights = row_weights(weights, targets.dims(), &scores)?;
        if let Some(ignored) = ignored {
            weights = labels.eq(ignored)?.where_cond(&weights.zeros_like()?, &weights)?;
        }
        let is_counted = weights.ne(0_f64)?;
        let is_counted_score = is_counted.unsqueeze(1)?.broadcast_as(scores.shape())?;
        let scores = is_counted_score.where_cond(&scores, &scores.zeros_like()?)?;
        Ok(ClassRows { scores, labels, weights, is_counted })
    }

    pub(crate) fn classes(&self) -> Result<usize> {
        self.scores.dim(1)
    }

    /// Whether a row has a class, of shape (n, classes) in `u8`. Rows whose label is no class have none.
    pub(crate) fn is_label(&self) -> Result<Tensor> {
        is_class(&self.labels, self.classes()?)
    }
}

/// Whether each label is each of the classes, of shape (n, classes) in `u8`.
pub(crate) fn is_class(labels: &Tensor, classes: usize) -> Result<Tensor> {
    let numbers = Tensor::arange(0_i64, classes as i64, labels.device())?.to_dtype(labels.dtype())?;
    labels.unsqueeze(1)?.broadcast_eq(&numbers.unsqueeze(0)?)
}

impl NumberRows {
    pub(crate) fn new(outputs: &Tensor, targets: &Tensor, weights: Option<&Tensor>) -> Result<NumberRows> {
        let Some((rows, columns)) = number_layout(outputs.dims(), targets.dims()) else {
            bail!(
                "a regression's outputs of shape {:?} do not fit targets of shape {:?}; give both the same shape, such as (n, 1), with \
                 `reshape` or `unsqueeze(1)`",
                outputs.dims(),
                targets.dims()
            )
        };
        let is_double = [outputs, targets].iter().any(|tensor| tensor.dtype() == DType::F64);
        let dtype = if is_double { DType::F64 } else { DType::F32 };
        let outputs = outputs.to_dtype(dtype)?.reshape((rows, columns))?;
        let targets = targets.to_dtype(dtype)?.reshape((rows, columns))?;
        let weights = row_weights(weights, &[rows], &outputs)?;
        let is_counted = weights.ne(0_f64)?.unsqueeze(1)?.broadcast_as(outputs.shape())?;
        let zeros = outputs.zeros_like()?;
        let [outputs, targets] = [outputs, targets].map(|numbers| is_counted.where_cond(&numbers, &zeros));
        Ok(NumberRows { outputs: outputs?, targets: targets?, weights })
    }
}

enum Layout {
    Classes(usize, usize),
    OneLogit(usize),
}

fn class_layout(outputs: &[usize], targets: &[usize]) -> Option<Layout> {
    let rows = targets.iter().product();
    let (&last, leading) = outputs.split_last()?;
    let is_column =
        |column: &[usize], rows: &[usize]| column.split_last().is_some_and(|(one, of)| *one == 1 && of == rows);
    if leading.is_empty() {
        return (outputs == targets || is_column(targets, outputs)).then_some(Layout::OneLogit(rows));
    }
    let fits = targets == leading || is_column(targets, leading);
    fits.then_some(if last == 1 { Layout::OneLogit(rows) } else { Layout::Classes(rows, last) })
}

fn number_layout(outputs: &[usize], targets: &[usize]) -> Option<(usize, usize)> {
    match (outputs, targets) {
        ([rows], [others] | [others, 1]) | ([rows, 1], [others]) => (rows == others).then_some((*rows, 1)),
        ([rows, columns @ ..], others) => (outputs == others).then(|| (*rows, columns.iter().product())),
        ([], _) => None,
    }
}

/// The weights of all rows: ones if none are given. `targets` is the shape of the targets, and weights may have only its first
/// dimension, as where a row is a sequence of labels.
pub(crate) fn row_weights(weights: Option<&Tensor>, targets: &[usize], like: &Tensor) -> Result<Tensor> {
    let Some(weights) = weights else { return Tensor::ones(like.dim(0)?, like.dtype(), like.device()) };
    let (given, weights) = (weights.dims().to_vec(), weights.to_dtype(like.dtype())?.detach());
    let is_for_rows = matches!((given.as_slice(), targets), ([rows] | [rows, 1], [others, ..]) if rows == others);
    if given == targets || (is_for_rows && targets.len() <= 1) {
        return weights.flatten_all();
    }
    if !is_for_rows {
        bail!("weights of shape {given:?} do not fit {targets:?} targets; give one weight for each row, in shape (n,)")
    }
    let mut dims = vec![1; targets.len()];
    dims[0] = targets[0];
    weights.reshape(dims)?.broadcast_as(targets)?.flatten_all()
}

/// The tensor in `f32` or `f64`.
pub(crate) fn wide(tensor: &Tensor) -> Result<Tensor> {
    match tensor.dtype() {
        DType::F64 => Ok(tensor.clone()),
        _ => tensor.to_dtype(DType::F32),
    }
}

/// Whether a row of shape (n, k) has a NaN, of shape (n,) in `u8`.
pub(crate) fn has_nan(rows: &Tensor) -> Result<Tensor> {
    rows.ne(rows)?.to_dtype(DType::F32)?.sum(D::Minus1)?.gt(0_f64)
}
