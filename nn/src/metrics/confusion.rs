//! The confusion matrix: how many rows of each class are predicted as each class.

mod picture;

use super::accuracy::{check, flaws};
use super::{Ignoring, Measured, Meter, Metric};
use crate::rows::ClassRows;
use candle_core::{D, DType, Result, Tensor, bail};
use ferrotune_display::{Bundle, Show, table};
use std::fmt;

/// The meter of a confusion matrix; [`Meter::matrix`] has the matrix, which a cell shows as a picture. Its value is the accuracy.
///
/// ```
/// use candle_core::{Device, Tensor};
/// let mut confusion = ferrotune_nn::metrics::confusion_matrix();
/// let logits = Tensor::new(&[-2_f32, 0.5, 0.1, 3.0], &Device::Cpu)?;
/// confusion.update(&logits, &Tensor::new(&[0_u32, 0, 1, 1], &Device::Cpu)?)?;
/// let matrix = confusion.matrix()?.with_names(&["cat", "dog"])?;
/// assert_eq!(matrix.counts, [[1.0, 1.0], [0.0, 2.0]]);
/// assert!(matrix.to_svg().starts_with("<svg"));
/// # Ok::<(), candle_core::Error>(())
/// ```
pub fn confusion_matrix() -> Meter<Confusion> {
    Meter::new(Confusion)
}

/// The metric of [`confusion_matrix`].
#[derive(Clone, Copy, Debug)]
pub struct Confusion;

/// The greatest number of classes whose whole matrix is printed.
const PRINTED_CLASSES: usize = 30;
/// The number of pairs of classes that are printed of a larger matrix.
const PRINTED_PAIRS: usize = 20;

/// How many rows of each class are predicted as each class. A cell shows it as a picture, and `{}` prints a table; with more than 30
/// classes the table has the pairs of classes that are confused most.
#[derive(Clone, Debug, PartialEq)]
pub struct ConfusionMatrix {
    /// The rows of each class (the outer index) that are predicted as each class (the inner index); sums of weights, if rows have
    /// weights.
    pub counts: Vec<Vec<f64>>,
    /// The classes' names: their numbers, unless others are given.
    pub names: Vec<String>,
}

impl Metric for Confusion {
    /// A tensor of shape (classes + 1, classes): the matrix, and the flaws.
    fn measure(&self, outputs: &Tensor, targets: &Tensor, weights: Option<&Tensor>) -> Result<Tensor> {
        let rows = ClassRows::new(&outputs.detach(), targets, weights)?;
        let classes = rows.classes()?;
        // Sums of a matrix product would have few digits on devices that multiply in short floats.
        let is_label = rows.is_label()?.to_dtype(DType::F32)?.sum(1)?.ne(0_f64)?;
        let labels = is_label
            .where_cond(&rows.labels.to_dtype(DType::I64)?, &rows.labels.zeros_like()?.to_dtype(DType::I64)?)?;
        let weights = is_label.where_cond(&rows.weights, &rows.weights.zeros_like()?)?;
        let predicted = rows.scores.argmax(D::Minus1)?.to_dtype(DType::I64)?;
        let places = (labels.affine(classes as f64, 0.0)? + predicted)?;
        let zeros = Tensor::zeros(classes * classes, weights.dtype(), weights.device())?;
        let matrix = zeros.index_add(&places, &weights, 0)?.reshape((classes, classes))?;
        let flaws = flaws(&rows)?.unsqueeze(0)?.pad_with_zeros(1, 0, classes - 2)?;
        Tensor::cat(&[matrix, flaws], 0)
    }

    fn value(&self, total: &Measured) -> Result<f64> {
        let classes = total.columns();
        if !check(total.row(classes), Some(classes))? {
            return Ok(f64::NAN);
        }
        let right: f64 = (0..classes).map(|class| total.row(class)[class]).sum();
        Ok(right / (0..classes).flat_map(|class| total.row(class)).sum::<f64>())
    }

    /// The share of each class's rows that are predicted as it, NaN for a class without rows.
    fn per_class(&self, total: &Measured) -> Result<Vec<f64>> {
        Ok(matrix(total)?.shares().into_iter().enumerate().map(|(class, shares)| shares[class]).collect())
    }
}

impl Meter<Confusion> {
    /// The matrix of all batches.
    ///
    /// # Errors
    /// If there was no batch, a target is no class, an output is NaN, and the errors of the device.
    pub fn matrix(&mut self) -> Result<ConfusionMatrix> {
        self.collect()?;
        matrix(self.seen()?)
    }
}

impl Meter<Ignoring<Confusion>> {
    /// The matrix of all batches, without the rows that are left out.
    ///
    /// # Errors
    /// As without [`Meter::ignore_index`].
    pub fn matrix(&mut self) -> Result<ConfusionMatrix> {
        self.collect()?;
        matrix(self.seen()?)
    }
}

fn matrix(total: &Measured) -> Result<ConfusionMatrix> {
    let classes = total.columns();
    if !check(total.row(classes), Some(classes))? {
        bail!("some outputs are NaN, so that rows have no predicted class; look at the loss, or at `debug_nans`")
    }
    let counts = (0..classes).map(|class| total.row(class).to_vec()).collect();
    Ok(ConfusionMatrix { counts, names: (0..classes).map(|class| class.to_string()).collect() })
}

impl ConfusionMatrix {
    /// The matrix with names of its classes.
    ///
    /// # Errors
    /// If there are more or fewer names than classes.
    pub fn with_names(mut self, names: &[impl AsRef<str>]) -> Result<ConfusionMatrix> {
        if names.len() != self.counts.len() {
            bail!(
                "{} names do not fit a confusion matrix of {} classes; give one for each",
                names.len(),
                self.counts.len()
            )
        }
        self.names = names.iter().map(|name| name.as_ref().to_owned()).collect();
        Ok(self)
    }

    /// Each row divided by its sum: the share of a class's rows that are predicted as each class. NaN for a class without rows.
    pub fn shares(&self) -> Vec<Vec<f64>> {
        let share = |row: &Vec<f64>| {
            let sum: f64 = row.iter().sum();
            row.iter().map(|count| count / sum).collect()
        };
        self.counts.iter().map(share).collect()
    }

    /// The pairs of different classes that are confused most, with the number of rows of the first that are predicted as the second.
    pub fn most_confused(&self, pairs: usize) -> Vec<(&str, &str, f64)> {
        let of_row = |(class, counts): (usize, &Vec<f64>)| -> Vec<(usize, usize, f64)> {
            let others = counts.iter().enumerate().filter(|(other, count)| *other != class && **count > 0.0);
            others.map(|(other, count)| (class, other, *count)).collect()
        };
        let mut confused: Vec<(usize, usize, f64)> = self.counts.iter().enumerate().flat_map(of_row).collect();
        confused.sort_by(|(.., one), (.., other)| other.total_cmp(one));
        confused.truncate(pairs);
        confused.into_iter().map(|(class, other, count)| (&*self.names[class], &*self.names[other], count)).collect()
    }

    /// The picture as SVG: a square for each pair of classes, the darker the greater its share of the class's rows.
    pub fn to_svg(&self) -> String {
        picture::svg(self)
    }
}

impl Show for ConfusionMatrix {
    fn bundle(&self) -> Bundle {
        let table = if self.counts.len() > PRINTED_CLASSES { self.pairs() } else { self.whole() };
        Bundle::text(table.text_of("text/plain")).with("image/svg+xml", self.to_svg())
    }
}

impl ConfusionMatrix {
    fn whole(&self) -> Bundle {
        let header: Vec<&str> =
            std::iter::once("class \\ predicted").chain(self.names.iter().map(String::as_str)).collect();
        let row = |(name, counts): (&String, &Vec<f64>)| {
            std::iter::once(name.clone()).chain(counts.iter().map(|count| text_of(*count))).collect()
        };
        let rows: Vec<Vec<String>> = self.names.iter().zip(&self.counts).map(row).collect();
        table(&header, &rows)
    }

    fn pairs(&self) -> Bundle {
        let pairs = self.most_confused(PRINTED_PAIRS).into_iter();
        let rows: Vec<Vec<String>> =
            pairs.map(|(class, other, count)| vec![class.to_owned(), other.to_owned(), text_of(count)]).collect();
        table(&["class", "predicted", "rows"], &rows)
    }
}

impl fmt::Display for ConfusionMatrix {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.bundle().text_of("text/plain"))
    }
}

/// A count without decimals, and a sum of weights with at most three.
fn text_of(count: f64) -> String {
    let text = format!("{count:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}
