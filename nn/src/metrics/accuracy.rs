//! The share of rows whose class is the one with the greatest score, or among the greatest.

use super::{Measured, Meter, Metric};
use crate::rows::{ClassRows, has_nan, is_class};
use candle_core::{D, Result, Tensor, bail};

/// The share of rows whose class has the greatest score. Of equal scores the first class is the predicted one, and with one logit
/// for each row class 1 is predicted if the logit is above 0.
///
/// ```
/// use candle_core::{Device, Tensor};
/// let mut accuracy = ferrotune_nn::metrics::accuracy();
/// let outputs = Tensor::new(&[[2_f32, 0.0, 1.0], [0.0, 1.0, 3.0]], &Device::Cpu)?;
/// accuracy.update(&outputs, &Tensor::new(&[0_u32, 1], &Device::Cpu)?)?;
/// assert_eq!(accuracy.value()?, 0.5);
/// # Ok::<(), candle_core::Error>(())
/// ```
pub fn accuracy() -> Meter<Accuracy> {
    Meter::new(Accuracy)
}

/// The metric of [`accuracy`].
#[derive(Clone, Copy, Debug)]
pub struct Accuracy;

/// The share of rows whose class has one of the `k` greatest scores. Of equal scores the later class counts as the greater, as in
/// scikit-learn's `top_k_accuracy_score`.
///
/// ```
/// use candle_core::{Device, Tensor};
/// let mut top_2 = ferrotune_nn::metrics::top_k(2);
/// let outputs = Tensor::new(&[[2_f32, 0.0, 1.0], [0.0, 1.0, 3.0]], &Device::Cpu)?;
/// top_2.update(&outputs, &Tensor::new(&[1_u32, 1], &Device::Cpu)?)?;
/// assert_eq!(top_2.value()?, 0.5);
/// # Ok::<(), candle_core::Error>(())
/// ```
pub fn top_k(k: usize) -> Meter<TopK> {
    Meter::new(TopK { k })
}

/// The metric of [`top_k`].
#[derive(Clone, Copy, Debug)]
pub struct TopK {
    /// The number of scores among which the class may be.
    pub k: usize,
}

impl Metric for Accuracy {
    fn measure(&self, outputs: &Tensor, targets: &Tensor, weights: Option<&Tensor>) -> Result<Tensor> {
        let rows = ClassRows::new(&outputs.detach(), targets, weights)?;
        let is_right = (rows.is_label()? * is_predicted(&rows)?)?.to_dtype(rows.scores.dtype())?.sum(1)?;
        share_of(&rows, &is_right)
    }

    fn value(&self, total: &Measured) -> Result<f64> {
        share(total)
    }
}

impl Metric for TopK {
    fn measure(&self, outputs: &Tensor, targets: &Tensor, weights: Option<&Tensor>) -> Result<Tensor> {
        if self.k == 0 {
            bail!("the top-k accuracy with k = 0 is 0 for any outputs; choose 1 or more")
        }
        let rows = ClassRows::new(&outputs.detach(), targets, weights)?;
        let (scores, is_label) = (&rows.scores, rows.is_label()?);
        let of_label = is_label.where_cond(scores, &scores.zeros_like()?)?.sum_keepdim(1)?;
        let is_after = after(&rows)?;
        let is_above = scores.broadcast_gt(&of_label)?;
        let is_equal_and_after = (scores.broadcast_eq(&of_label)? * is_after)?;
        let rank = (is_above + is_equal_and_after)?.to_dtype(scores.dtype())?.sum(1)?;
        let is_class = is_label.to_dtype(scores.dtype())?.sum(1)?;
        let is_right = (rank.lt(self.k as f64)?.to_dtype(scores.dtype())? * is_class)?;
        share_of(&rows, &is_right)
    }

    fn value(&self, total: &Measured) -> Result<f64> {
        share(total)
    }
}

/// Whether each class has a greater number than the label of the row.
fn after(rows: &ClassRows) -> Result<Tensor> {
    let classes = rows.classes()? as i64;
    let numbers = Tensor::arange(0_i64, classes, rows.labels.device())?.to_dtype(rows.labels.dtype())?;
    numbers.unsqueeze(0)?.broadcast_gt(&rows.labels.unsqueeze(1)?)
}

/// Whether each class is the predicted one, of shape (n, classes) in `u8`.
pub(super) fn is_predicted(rows: &ClassRows) -> Result<Tensor> {
    is_class(&rows.scores.argmax(D::Minus1)?.to_dtype(candle_core::DType::I64)?, rows.classes()?)
}

/// The number of counted rows without a class and of those with a NaN, of shape (2,).
pub(super) fn flaws(rows: &ClassRows) -> Result<Tensor> {
    let dtype = rows.scores.dtype();
    let is_counted = rows.is_counted.to_dtype(dtype)?;
    let has_no_class = rows.is_label()?.to_dtype(dtype)?.sum(1)?.eq(0_f64)?.to_dtype(dtype)?;
    let has_nan = has_nan(&rows.scores)?.to_dtype(dtype)?;
    let [has_no_class, has_nan] = [has_no_class, has_nan].map(|flaw| (flaw * &is_counted)?.sum_all());
    Tensor::stack(&[has_no_class?, has_nan?], 0)
}

/// Fails if a target is no class. Returns whether all scores are numbers.
pub(super) fn check(flaws: &[f64], classes: Option<usize>) -> Result<bool> {
    let [has_no_class, has_nan, ..] = *flaws else { bail!("numbers of another metric; please report this") };
    if has_no_class > 0.0 {
        let classes = classes.map_or_else(String::new, |classes| format!("{classes} "));
        bail!("{has_no_class} targets are none of the {classes}classes; correct them, or give these rows the weight 0")
    }
    Ok(has_nan == 0.0)
}

/// The weighted sum of right rows, that of all rows, and the flaws.
fn share_of(rows: &ClassRows, is_right: &Tensor) -> Result<Tensor> {
    let right = (is_right * &rows.weights)?.sum_all()?.reshape(1)?;
    Tensor::cat(&[right, rows.weights.sum_all()?.reshape(1)?, flaws(rows)?], 0)
}

fn share(total: &Measured) -> Result<f64> {
    let [right, all, flaws @ ..] = total.numbers.as_slice() else {
        bail!("numbers of another metric; please report this")
    };
    Ok(if check(flaws, None)? { right / all } else { f64::NAN })
}
