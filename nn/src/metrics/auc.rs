//! The area under the ROC curve, exactly: scores and targets of all rows are kept, and compared on the host.

use super::accuracy::check;
use super::{Measured, Meter, Metric};
use crate::rows::ClassRows;
use candle_core::{Result, Tensor, bail};

/// The area under the receiver operating characteristic: the probability that a row of a class has a greater score than a row of
/// another class, where equal scores count half. With more than two classes it is the mean over the classes of each against the
/// others, by the probabilities of the softmax.
///
/// The value is that of scikit-learn's `roc_auc_score` (with `multi_class="ovr"`). It is NaN if a class has no rows, or all rows. The
/// meter keeps the scores of all rows in memory, 8 bytes each.
///
/// ```
/// use candle_core::{Device, Tensor};
/// let mut auc = ferrotune_nn::metrics::auc();
/// let logits = Tensor::new(&[-2_f32, 0.5, 0.1, 3.0], &Device::Cpu)?;
/// auc.update(&logits, &Tensor::new(&[0_u32, 0, 1, 1], &Device::Cpu)?)?;
/// assert_eq!(auc.value()?, 0.75);
/// # Ok::<(), candle_core::Error>(())
/// ```
pub fn auc() -> Meter<Auc> {
    Meter::new(Auc)
}

/// The metric of [`auc`].
#[derive(Clone, Copy, Debug)]
pub struct Auc;

impl Metric for Auc {
    /// A tensor of shape (n, classes + 2): the scores, the label and the weight of each row.
    fn measure(&self, outputs: &Tensor, targets: &Tensor, weights: Option<&Tensor>) -> Result<Tensor> {
        let rows = ClassRows::new(&outputs.detach(), targets, weights)?;
        let labels = rows.labels.to_dtype(rows.scores.dtype())?.unsqueeze(1)?;
        Tensor::cat(&[&rows.scores, &labels, &rows.weights.unsqueeze(1)?], 1)
    }

    /// The rows of all batches, one after the other.
    fn merge(&self, total: &mut Measured, batch: Measured) -> Result<()> {
        if total.columns() != batch.columns() {
            bail!(
                "a batch has {} classes after batches with {}; give all the same outputs",
                batch.columns() - 2,
                total.columns() - 2
            )
        }
        total.dims[0] += batch.dims[0];
        total.numbers.extend(batch.numbers);
        Ok(())
    }

    fn value(&self, total: &Measured) -> Result<f64> {
        let areas = self.per_class(total)?;
        Ok(match areas.as_slice() {
            [_, second] => *second,
            areas => areas.iter().sum::<f64>() / areas.len() as f64,
        })
    }

    fn per_class(&self, total: &Measured) -> Result<Vec<f64>> {
        let classes = total.columns() - 2;
        let rows: Vec<Row<'_>> = total.numbers.chunks_exact(classes + 2).filter_map(Row::of).collect();
        let is_class = |row: &&Row<'_>| row.label >= 0.0 && row.label < classes as f64 && row.label.fract() == 0.0;
        let others = rows.len() - rows.iter().filter(is_class).count();
        check(&[others as f64, 0.0], Some(classes))?;
        Ok((0..classes).map(|class| area(&rows, class)).collect())
    }
}

struct Row<'a> {
    scores: &'a [f64],
    label: f64,
    weight: f64,
}

impl Row<'_> {
    /// A counted row.
    fn of(numbers: &[f64]) -> Option<Row<'_>> {
        match numbers {
            [scores @ .., label, weight] if *weight != 0.0 => Some(Row { scores, label: *label, weight: *weight }),
            _ => None,
        }
    }

    /// A number that grows with the class's probability of the softmax, and differs where probabilities near 1 are rounded to 1.
    fn score(&self, class: usize) -> f64 {
        let others = || self.scores.iter().enumerate().filter(|(other, _)| *other != class).map(|(_, score)| *score);
        if self.scores.iter().any(|score| score.is_nan()) {
            return f64::NAN;
        }
        let greatest = others().fold(f64::NEG_INFINITY, f64::max);
        if greatest.is_infinite() {
            return if self.scores[class] == greatest { 0.0 } else { self.scores[class] - greatest };
        }
        self.scores[class] - greatest - others().map(|score| (score - greatest).exp()).sum::<f64>().ln()
    }
}

/// The area of a class against the others.
fn area(rows: &[Row<'_>], class: usize) -> f64 {
    let mut scored: Vec<(f64, bool, f64)> =
        rows.iter().map(|row| (row.score(class), row.label == class as f64, row.weight)).collect();
    if scored.iter().any(|(score, _, weight)| score.is_nan() || weight.is_nan()) {
        return f64::NAN;
    }
    scored.sort_by(|(one, ..), (other, ..)| one.total_cmp(other));
    // The weights of the other classes' rows with lower scores, and of pairs in the right order.
    let (mut below, mut pairs, mut of_class) = (0.0, 0.0, 0.0);
    for equal in scored.chunk_by(|(one, ..), (other, ..)| one == other) {
        let sum =
            |wanted: bool| equal.iter().filter(|(_, is, _)| *is == wanted).map(|(.., weight)| weight).sum::<f64>();
        let (same, others) = (sum(true), sum(false));
        pairs += same * (below + others / 2.0);
        below += others;
        of_class += same;
    }
    pairs / (below * of_class)
}
