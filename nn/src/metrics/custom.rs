//! Metrics by closures.

use super::{Measured, Meter, Metric};
use candle_core::{DType, Result, Tensor, bail};

/// A metric that is the mean of a number for each row, which a closure of outputs and targets computes as a tensor of shape (n,) or
/// (n, 1). Rows with weight 0 have no influence.
///
/// ```
/// use candle_core::{Device, Tensor};
/// use ferrotune_nn::metrics;
/// let mut within_one = metrics::mean(|outputs, targets| (outputs - targets)?.abs()?.le(1_f32));
/// within_one.update(&Tensor::new(&[1_f32, 2.0], &Device::Cpu)?, &Tensor::new(&[1.5_f32, 9.0], &Device::Cpu)?)?;
/// assert_eq!(within_one.value()?, 0.5);
/// # Ok::<(), candle_core::Error>(())
/// ```
pub fn mean<F>(of_rows: F) -> Meter<Mean<F>>
where
    F: Fn(&Tensor, &Tensor) -> Result<Tensor> + Send + Sync,
{
    Meter::new(Mean { of_rows })
}

/// The metric of [`mean`].
#[derive(Clone, Copy, Debug)]
pub struct Mean<F> {
    of_rows: F,
}

/// A metric by two closures: `measure` makes a tensor of sums of outputs, targets and the weights of rows, all on the device, and
/// `value` makes the metric of these sums over all batches. Where there are weights, each row counts as often as its weight says: a
/// row with weight 0 is padding.
///
/// ```
/// use candle_core::{Device, Tensor};
/// use ferrotune_nn::metrics;
/// let mut bias = metrics::custom(
///     |outputs, targets, weights| {
///         let sum = |rows: &Tensor| weights.map_or_else(|| Ok(rows.clone()), |weights| rows * weights)?.sum_all();
///         Tensor::stack(&[sum(outputs)?, sum(targets)?], 0)
///     },
///     |sums| sums[0] / sums[1],
/// );
/// bias.update(&Tensor::new(&[1_f32, 2.0], &Device::Cpu)?, &Tensor::new(&[2_f32, 4.0], &Device::Cpu)?)?;
/// assert_eq!(bias.value()?, 0.5);
/// # Ok::<(), candle_core::Error>(())
/// ```
pub fn custom<F, V>(measure: F, value: V) -> Meter<Custom<F, V>>
where
    F: Fn(&Tensor, &Tensor, Option<&Tensor>) -> Result<Tensor> + Send + Sync,
    V: Fn(&[f64]) -> f64 + Send + Sync,
{
    Meter::new(Custom { measure, value })
}

/// The metric of [`custom`].
#[derive(Clone, Copy, Debug)]
pub struct Custom<F, V> {
    measure: F,
    value: V,
}

impl<F: Fn(&Tensor, &Tensor) -> Result<Tensor> + Send + Sync> Metric for Mean<F> {
    fn measure(&self, outputs: &Tensor, targets: &Tensor, weights: Option<&Tensor>) -> Result<Tensor> {
        let of_rows = (self.of_rows)(&outputs.detach(), targets)?;
        let rows = match (of_rows.dims(), targets.dims()) {
            ([rows] | [rows, 1], [others, ..]) if rows == others => *rows,
            (dims, targets) => {
                bail!("a metric's closure made {dims:?} of {targets:?} targets; return a number for each row")
            }
        };
        let of_rows = if of_rows.dtype() == DType::F64 { of_rows } else { of_rows.to_dtype(DType::F32)? };
        let of_rows = of_rows.reshape(rows)?;
        let weights = match weights {
            Some(weights) if weights.elem_count() == rows => weights.to_dtype(of_rows.dtype())?.flatten_all()?,
            Some(weights) => {
                bail!("weights of shape {:?} do not fit {rows} rows; give one for each row", weights.dims())
            }
            None => of_rows.ones_like()?,
        };
        let of_rows = weights.ne(0_f64)?.where_cond(&of_rows, &of_rows.zeros_like()?)?;
        Tensor::stack(&[(of_rows * &weights)?.sum_all()?, weights.sum_all()?], 0)
    }

    fn value(&self, total: &Measured) -> Result<f64> {
        Ok(total.numbers[0] / total.numbers[1])
    }
}

impl<F, V> Metric for Custom<F, V>
where
    F: Fn(&Tensor, &Tensor, Option<&Tensor>) -> Result<Tensor> + Send + Sync,
    V: Fn(&[f64]) -> f64 + Send + Sync,
{
    fn measure(&self, outputs: &Tensor, targets: &Tensor, weights: Option<&Tensor>) -> Result<Tensor> {
        (self.measure)(&outputs.detach(), targets, weights)
    }

    fn value(&self, total: &Measured) -> Result<f64> {
        Ok((self.value)(&total.numbers))
    }
}

impl<M: Metric> Meter<M> {
    /// The same metric as an error: a smaller value is better, as early stopping needs to know of a closure's metric.
    ///
    /// ```
    /// use ferrotune_nn::metrics::{self, Metric as _};
    /// let far = metrics::mean(|outputs, targets| (outputs - targets)?.abs()?.gt(1_f32)).error();
    /// assert!(far.metric().is_error());
    /// ```
    #[must_use]
    pub fn error(self) -> Meter<AsError<M>> {
        Meter::new(AsError { metric: self.into_metric() })
    }
}

/// The metric of [`Meter::error`].
#[derive(Clone, Copy, Debug)]
pub struct AsError<M> {
    metric: M,
}

impl<M: Metric> Metric for AsError<M> {
    fn measure(&self, outputs: &Tensor, targets: &Tensor, weights: Option<&Tensor>) -> Result<Tensor> {
        self.metric.measure(outputs, targets, weights)
    }

    fn merge(&self, total: &mut Measured, batch: Measured) -> Result<()> {
        self.metric.merge(total, batch)
    }

    fn value(&self, total: &Measured) -> Result<f64> {
        self.metric.value(total)
    }

    fn per_class(&self, total: &Measured) -> Result<Vec<f64>> {
        self.metric.per_class(total)
    }

    fn is_error(&self) -> bool {
        true
    }
}
