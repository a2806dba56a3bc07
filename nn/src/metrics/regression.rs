//! Errors of predicted numbers, and the share of variance that they explain.

use super::{Measured, Meter, Metric};
use crate::rows::NumberRows;
use candle_core::{Result, Tensor};

/// The mean absolute error. Outputs and targets have the same shape (n,), (n, 1) or (n, k), or one has (n,) and the other (n, 1). With
/// several columns it is their mean, and [`Meter::per_class`] has the value of each.
///
/// ```
/// use candle_core::{Device, Tensor};
/// let mut mae = ferrotune_nn::metrics::mae();
/// mae.update(&Tensor::new(&[[1_f32], [2.0]], &Device::Cpu)?, &Tensor::new(&[1_f32, 4.0], &Device::Cpu)?)?;
/// assert_eq!(mae.value()?, 1.0);
/// # Ok::<(), candle_core::Error>(())
/// ```
pub fn mae() -> Meter<Errors> {
    Meter::new(Errors { kind: Kind::Absolute })
}

/// The mean squared error, of shapes like those of [`mae`].
pub fn mse() -> Meter<Errors> {
    Meter::new(Errors { kind: Kind::Squared })
}

/// The square root of the mean squared error, of shapes like those of [`mae`]. With several columns it is the mean of their roots, as in
/// scikit-learn.
pub fn rmse() -> Meter<Errors> {
    Meter::new(Errors { kind: Kind::Root })
}

/// The coefficient of determination R², of shapes like those of [`mae`]: 1 minus the squared errors divided by the squared distances of
/// the targets from their mean.
///
/// As in scikit-learn, where all targets are equal it is 1 if the outputs are exact and 0 if not, and it is NaN for fewer than two rows.
///
/// ```
/// use candle_core::{Device, Tensor};
/// let mut r2 = ferrotune_nn::metrics::r2();
/// r2.update(&Tensor::new(&[1_f32, 2.0, 4.0], &Device::Cpu)?, &Tensor::new(&[1_f32, 2.0, 3.0], &Device::Cpu)?)?;
/// assert_eq!(r2.value()?, 0.5);
/// # Ok::<(), candle_core::Error>(())
/// ```
pub fn r2() -> Meter<RSquared> {
    Meter::new(RSquared)
}

/// The metric of [`mae`], [`mse`] and [`rmse`].
#[derive(Clone, Copy, Debug)]
pub struct Errors {
    kind: Kind,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Absolute,
    Squared,
    Root,
}

/// The metric of [`r2`].
#[derive(Clone, Copy, Debug)]
pub struct RSquared;

impl Metric for Errors {
    /// A tensor of shape (2, k): the weighted sums of errors, and the sum of weights.
    fn measure(&self, outputs: &Tensor, targets: &Tensor, weights: Option<&Tensor>) -> Result<Tensor> {
        let rows = NumberRows::new(&outputs.detach(), targets, weights)?;
        let errors = (&rows.outputs - &rows.targets)?;
        let errors = match self.kind {
            Kind::Absolute => errors.abs()?,
            Kind::Squared | Kind::Root => errors.sqr()?,
        };
        let weights = rows.weights.unsqueeze(1)?.broadcast_as(errors.shape())?;
        Tensor::stack(&[(errors * &weights)?.sum(0)?, weights.sum(0)?], 0)
    }

    fn value(&self, total: &Measured) -> Result<f64> {
        self.per_class(total).map(|columns| mean(&columns))
    }

    fn per_class(&self, total: &Measured) -> Result<Vec<f64>> {
        let means = total.row(0).iter().zip(total.row(1)).map(|(errors, weights)| errors / weights);
        Ok(match self.kind {
            Kind::Root => means.map(f64::sqrt).collect(),
            Kind::Absolute | Kind::Squared => means.collect(),
        })
    }

    fn is_error(&self) -> bool {
        true
    }
}

impl Metric for RSquared {
    /// A tensor of shape (6, k): the sum of weights, a target, the distance of the mean from this target, the weighted sum of squared
    /// distances of the targets from the mean, that of squared errors, and the number of rows. Sums of squares, or a mean in one number
    /// of single precision, would lose their digits where targets are far from 0.
    fn measure(&self, outputs: &Tensor, targets: &Tensor, weights: Option<&Tensor>) -> Result<Tensor> {
        let NumberRows { outputs, targets, weights } = NumberRows::new(&outputs.detach(), targets, weights)?;
        let weights = weights.unsqueeze(1)?.broadcast_as(targets.shape())?;
        let is_counted = weights.ne(0_f64)?;
        let (weight, rows) = (weights.sum(0)?, is_counted.to_dtype(weights.dtype())?.sum(0)?);
        let (zeros, lowest) = (targets.zeros_like()?, Tensor::full(f32::MIN, targets.shape(), targets.device())?);
        let near = is_counted.where_cond(&targets, &lowest.to_dtype(targets.dtype())?)?.max(0)?;
        let from_near = is_counted.where_cond(&targets.broadcast_sub(&near)?, &zeros)?;
        // Without any weight the distance is 0, and not NaN, which would spread to other batches.
        let divisor = (&weight + weight.eq(0_f64)?.to_dtype(weight.dtype())?)?;
        let mean = (&from_near * &weights)?.sum(0)?.div(&divisor)?;
        let distances = (from_near.broadcast_sub(&mean)?.sqr()? * &weights)?.sum(0)?;
        let errors = ((outputs - targets)?.sqr()? * &weights)?.sum(0)?;
        Tensor::stack(&[weight, near, mean, distances, errors, rows], 0)
    }

    /// Joins means and squared distances by the rule of Chan, Golub and LeVeque (1983).
    fn merge(&self, total: &mut Measured, batch: Measured) -> Result<()> {
        let before = total.clone();
        total.add(&batch)?;
        let columns = total.columns();
        for column in 0..columns {
            let (one, other, sum) = (before.row(0)[column], batch.row(0)[column], total.row(0)[column]);
            let mean = |of: &Measured| of.row(1)[column] + of.row(2)[column];
            let (first, second) = (mean(&before), mean(&batch));
            // The mean of no row is any number.
            let (joined, between) = match (one, other) {
                (_, 0.0) => (first, 0.0),
                (0.0, _) => (second, 0.0),
                _ => (first + (second - first) * (other / sum), (second - first).powi(2) * one * (other / sum)),
            };
            total.numbers[columns + column] = joined;
            total.numbers[2 * columns + column] = 0.0;
            total.numbers[3 * columns + column] += between;
        }
        Ok(())
    }

    fn value(&self, total: &Measured) -> Result<f64> {
        self.per_class(total).map(|columns| mean(&columns))
    }

    fn per_class(&self, total: &Measured) -> Result<Vec<f64>> {
        let column = |column: usize| match (total.row(3)[column], total.row(4)[column]) {
            _ if total.row(5)[column] < 2.0 => f64::NAN,
            (0.0, 0.0) => 1.0,
            (0.0, errors) if !errors.is_nan() => 0.0,
            (distances, errors) => 1.0 - errors / distances,
        };
        Ok((0..total.columns()).map(column).collect())
    }
}

fn mean(columns: &[f64]) -> f64 {
    columns.iter().sum::<f64>() / columns.len() as f64
}
