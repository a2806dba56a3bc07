//! Losses of classifiers with a score for each class.

use super::{Loss, LossSettings, check_gamma, constants};
use crate::rows::{ClassRows, is_class};
use candle_core::{D, Error, Result, Tensor, bail};
use serde::{Deserialize, Serialize};

/// The cross-entropy of the softmax, as PyTorch's
/// [`cross_entropy`](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.cross_entropy.html) with the same arguments:
/// logits of shape (…, classes) or one logit for each row of two classes, and labels of an integer type.
///
/// ```
/// use candle_core::{Device, Tensor};
/// use ferrotune_nn::loss::{CrossEntropy, Loss as _};
/// let logits = Tensor::new(&[[0_f32, 0.0], [5.0, 5.0]], &Device::Cpu)?;
/// let labels = Tensor::new(&[0_u32, 1], &Device::Cpu)?;
/// let loss = CrossEntropy { class_weights: Some(vec![1.0, 3.0]), ..CrossEntropy::default() };
/// assert!((loss.loss(&logits, &labels)?.to_scalar::<f32>()? - 2_f32.ln()).abs() < 1e-6);
/// # Ok::<(), candle_core::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CrossEntropy {
    /// The label of rows that are left out, such as -100.
    pub ignore_index: Option<i64>,
    /// The weight of each class. The loss is divided by the sum of the weights of all rows.
    pub class_weights: Option<Vec<f64>>,
    /// The share of a row's probability that is spread over all classes (Szegedy et al. 2016), from 0 to 1.
    pub label_smoothing: f64,
}

/// The focal loss of the softmax (Lin et al. 2017, arXiv:1708.02002): the cross-entropy of a row times `(1 - p)^gamma`, where `p` is
/// the probability of its class. Rows that are easy count less. With `gamma` 0 it is the [`CrossEntropy`].
///
/// ```
/// use candle_core::{Device, Tensor};
/// use ferrotune_nn::loss::{Focal, Loss as _};
/// let logits = Tensor::new(&[[0_f32, 0.0]], &Device::Cpu)?;
/// let loss = Focal::default().loss(&logits, &Tensor::new(&[0_u32], &Device::Cpu)?)?;
/// assert!((loss.to_scalar::<f32>()? - 0.25 * 2_f32.ln()).abs() < 1e-6);
/// # Ok::<(), candle_core::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Focal {
    /// The exponent, at least 0.
    pub gamma: f64,
    /// The label of rows that are left out, such as -100.
    pub ignore_index: Option<i64>,
    /// The weight of each class. The loss is divided by the sum of the weights of all rows.
    pub class_weights: Option<Vec<f64>>,
}

impl Default for Focal {
    fn default() -> Focal {
        Focal { gamma: 2.0, ignore_index: None, class_weights: None }
    }
}

impl Loss for CrossEntropy {
    fn terms(&self, outputs: &Tensor, targets: &Tensor, weights: Option<&Tensor>) -> Result<(Tensor, Tensor)> {
        let smoothing = self.label_smoothing;
        if !(0.0..=1.0).contains(&smoothing) {
            bail!("the cross-entropy has label smoothing {smoothing}; choose a share from 0 to 1")
        }
        let rows = labelled(self.ignore_index, outputs, targets, weights)?;
        let log_probabilities = candle_nn::ops::log_softmax(&rows.scores, D::Minus1)?;
        let (picked, weights, class_weights) = picked(&rows, &log_probabilities, self.class_weights.as_deref())?;
        let sum = (picked * &weights)?.sum_all()?.neg()?;
        let divisor = weights.sum_all()?;
        if smoothing == 0.0 {
            return Ok((sum, divisor));
        }
        let of_classes = match class_weights {
            Some(class_weights) => log_probabilities.broadcast_mul(&class_weights)?,
            None => log_probabilities,
        };
        let spread = (of_classes.sum(1)? * &rows.weights)?.sum_all()?;
        let sum = ((sum * (1.0 - smoothing))? - (spread * (smoothing / rows.classes()? as f64))?)?;
        Ok((sum, divisor))
    }

    fn settings(&self) -> Option<LossSettings> {
        Some(LossSettings::CrossEntropy(self.clone()))
    }
}

impl Loss for Focal {
    fn terms(&self, outputs: &Tensor, targets: &Tensor, weights: Option<&Tensor>) -> Result<(Tensor, Tensor)> {
        check_gamma(self.gamma)?;
        let rows = labelled(self.ignore_index, outputs, targets, weights)?;
        let log_probabilities = candle_nn::ops::log_softmax(&rows.scores, D::Minus1)?;
        let (picked, weights, _) = picked(&rows, &log_probabilities, self.class_weights.as_deref())?;
        // The logarithm of 1 - p is that of the other classes' probabilities. It has digits where p is rounded to 1, and no infinite
        // gradient there.
        let lowest = Tensor::full(f32::MIN / 4.0, rows.scores.shape(), rows.scores.device())?;
        let lowest = lowest.to_dtype(rows.scores.dtype())?;
        let others = is_class(&rows.labels, rows.classes()?)?.where_cond(&lowest, &log_probabilities)?;
        let greatest = others.max_keepdim(1)?.detach();
        let others = (others.broadcast_sub(&greatest)?.exp()?.sum(1)?.log()? + greatest.squeeze(1)?)?;
        let focus = (others * self.gamma)?.exp()?;
        let sum = (picked * focus)?.mul(&weights)?.sum_all()?.neg()?;
        Ok((sum, weights.sum_all()?))
    }

    fn settings(&self) -> Option<LossSettings> {
        Some(LossSettings::Focal(self.clone()))
    }
}

/// The rows with labels that can be indices: in rows that are left out, any label is replaced by the first class.
fn labelled(ignored: Option<i64>, outputs: &Tensor, targets: &Tensor, weights: Option<&Tensor>) -> Result<ClassRows> {
    if targets.dtype().is_float() {
        bail!(
            "the labels of a classifier's loss are {:?}; convert them with `to_dtype(DType::U32)`, or read the table's target as \
             classes with `.category(\"…\")` before `.target`",
            targets.dtype()
        )
    }
    let rows = ClassRows::without(ignored, outputs, targets, weights)?;
    let labels = rows.is_counted.where_cond(&rows.labels, &rows.labels.zeros_like()?)?;
    Ok(ClassRows { labels, ..rows })
}

/// The number of each row at its label, the row's weight, and the weights of classes.
fn picked(
    rows: &ClassRows,
    numbers: &Tensor,
    class_weights: Option<&[f64]>,
) -> Result<(Tensor, Tensor, Option<Tensor>)> {
    let no_class = |error: Error| {
        let classes = rows.classes().unwrap_or(0);
        error.context(format!(
            "a label of the cross-entropy is no class: the outputs have {classes} classes, from 0 on; give the model an output for each \
             class, or `ignore_index` the label that is left out"
        ))
    };
    let picked = numbers.gather(&rows.labels.unsqueeze(1)?, 1).map_err(no_class)?.squeeze(1)?;
    let Some(class_weights) = class_weights else { return Ok((picked, rows.weights.clone(), None)) };
    let class_weights = constants(class_weights, rows.classes()?, numbers, "loss of a classifier")?;
    let weights = (&rows.weights * class_weights.index_select(&rows.labels, 0)?)?;
    Ok((picked, weights, Some(class_weights)))
}
