//! Precision, recall and F-scores, for each class or as an average.

use super::accuracy::{check, flaws, is_predicted};
use super::{Measured, Meter, Metric};
use crate::rows::ClassRows;
use candle_core::{Result, Tensor, bail};

/// The share of rows predicted as a class that are of the class: `true positives / predicted`. [`ClassScore`] has the options.
pub fn precision() -> Meter<ClassScore> {
    of(Score::Precision)
}

/// The share of rows of a class that are predicted as the class: `true positives / rows of the class`. [`ClassScore`] has the options.
pub fn recall() -> Meter<ClassScore> {
    of(Score::Recall)
}

/// The harmonic mean of precision and recall. [`ClassScore`] has the options.
///
/// ```
/// use candle_core::{Device, Tensor};
/// use ferrotune_nn::metrics::{Average, f1};
/// let mut f1 = f1().average(Average::Weighted);
/// let outputs = Tensor::new(&[[2_f32, 0.0, 1.0], [0.0, 1.0, 3.0], [0.0, 1.0, 3.0]], &Device::Cpu)?;
/// f1.update(&outputs, &Tensor::new(&[0_u32, 1, 2], &Device::Cpu)?)?;
/// assert_eq!(f1.per_class()?, [1.0, 0.0, 2.0 / 3.0]);
/// assert!((f1.value()? - 5.0 / 9.0).abs() < 1e-12);
/// # Ok::<(), candle_core::Error>(())
/// ```
pub fn f1() -> Meter<ClassScore> {
    f_beta(1.0)
}

/// The weighted harmonic mean of precision and recall, where recall has `beta` times the weight of precision.
pub fn f_beta(beta: f64) -> Meter<ClassScore> {
    of(Score::F { beta })
}

fn of(score: Score) -> Meter<ClassScore> {
    Meter::new(ClassScore { score, average: None, zero_division: 0.0 })
}

/// How the values of classes become one value. Averages are over the classes that occur in targets or predictions, as in
/// scikit-learn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Average {
    /// The value of this class alone.
    Of(usize),
    /// The mean over the classes.
    Macro,
    /// The value of the sums over all classes. For precision, recall and F-scores this is the accuracy.
    Micro,
    /// The mean over the classes, each weighted by its rows.
    Weighted,
}

/// The metric of [`precision`], [`recall`], [`f1`] and [`f_beta`].
#[derive(Clone, Copy, Debug)]
pub struct ClassScore {
    score: Score,
    average: Option<Average>,
    zero_division: f64,
}

#[derive(Clone, Copy, Debug)]
enum Score {
    Precision,
    Recall,
    F { beta: f64 },
}

impl Meter<ClassScore> {
    /// The average. Without this choice it is the value of class 1 if there are two classes, and [`Average::Macro`] if there are more.
    #[must_use]
    pub fn average(mut self, average: Average) -> Self {
        self.metric.average = Some(average);
        self
    }

    /// The value of a class where the definition divides by 0, such as the precision of a class that is never predicted: 0 unless
    /// another is chosen. With NaN such a class is left out of averages.
    #[must_use]
    pub fn zero_division(mut self, value: f64) -> Self {
        self.metric.zero_division = value;
        self
    }
}

/// The counts of one class, or of all classes together.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    right: f64,
    predicted: f64,
    actual: f64,
}

impl ClassScore {
    fn score(&self, counts: Counts) -> f64 {
        let Counts { right, predicted, actual } = counts;
        let (above, below) = match self.score {
            Score::Precision => (right, predicted),
            Score::Recall => (right, actual),
            Score::F { beta } if beta.is_infinite() => (right, actual),
            Score::F { beta } => ((1.0 + beta * beta) * right, beta * beta * actual + predicted),
        };
        if below == 0.0 { self.zero_division } else { above / below }
    }

    /// The mean of the classes' values, without those that are left out because they are NaN.
    fn mean(&self, classes: &[Counts], weight: impl Fn(&Counts) -> f64) -> f64 {
        let scores = classes.iter().map(|counts| (self.score(*counts), weight(counts)));
        let scores: Vec<(f64, f64)> = scores.filter(|(score, _)| !score.is_nan()).collect();
        let weights: f64 = scores.iter().map(|(_, weight)| weight).sum();
        match weights {
            0.0 => scores.iter().map(|(score, _)| score).sum::<f64>() / scores.len() as f64,
            weights => scores.iter().map(|(score, weight)| score * weight).sum::<f64>() / weights,
        }
    }
}

impl Metric for ClassScore {
    /// A tensor of shape (4, classes): the weights of right rows, of rows predicted as a class, of rows of a class, and the flaws.
    fn measure(&self, outputs: &Tensor, targets: &Tensor, weights: Option<&Tensor>) -> Result<Tensor> {
        if let Score::F { beta } = self.score
            && (beta.is_nan() || beta < 0.0)
        {
            bail!("the F-score has beta {beta}; choose 0 or more")
        }
        let rows = ClassRows::new(&outputs.detach(), targets, weights)?;
        let (is_label, is_predicted) = (rows.is_label()?, is_predicted(&rows)?);
        let is_right = (&is_label * &is_predicted)?;
        let weights = rows.weights.unsqueeze(1)?;
        let sum = |which: &Tensor| which.to_dtype(weights.dtype())?.broadcast_mul(&weights)?.sum_keepdim(0);
        let flaws = flaws(&rows)?.unsqueeze(0)?.pad_with_zeros(1, 0, rows.classes()? - 2)?;
        Tensor::cat(&[sum(&is_right)?, sum(&is_predicted)?, sum(&is_label)?, flaws], 0)
    }

    fn value(&self, total: &Measured) -> Result<f64> {
        let Some(classes) = counts(total)? else { return Ok(f64::NAN) };
        let chosen = self.average.unwrap_or(if classes.len() == 2 { Average::Of(1) } else { Average::Macro });
        let present: Vec<Counts> =
            classes.iter().copied().filter(|counts| counts.actual > 0.0 || counts.predicted > 0.0).collect();
        if present.is_empty() {
            return Ok(f64::NAN);
        }
        Ok(match chosen {
            Average::Of(class) => match classes.get(class) {
                Some(counts) => self.score(*counts),
                None => {
                    bail!("the average is that of class {class}, and there are {}; choose one of them", classes.len())
                }
            },
            Average::Macro => self.mean(&present, |_| 1.0),
            Average::Weighted => self.mean(&present, |counts| counts.actual),
            Average::Micro => self.score(classes.iter().fold(Counts::default(), |sum, counts| Counts {
                right: sum.right + counts.right,
                predicted: sum.predicted + counts.predicted,
                actual: sum.actual + counts.actual,
            })),
        })
    }

    fn per_class(&self, total: &Measured) -> Result<Vec<f64>> {
        Ok(match counts(total)? {
            Some(classes) => classes.into_iter().map(|counts| self.score(counts)).collect(),
            None => vec![f64::NAN; total.columns()],
        })
    }
}

/// The counts of each class, and `None` if an output was NaN.
fn counts(total: &Measured) -> Result<Option<Vec<Counts>>> {
    let are_numbers = check(total.row(3), Some(total.columns()))?;
    let classes = (0..total.columns()).map(|class| Counts {
        right: total.row(0)[class],
        predicted: total.row(1)[class],
        actual: total.row(2)[class],
    });
    Ok(are_numbers.then(|| classes.collect()))
}
