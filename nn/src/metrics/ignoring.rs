//! Metrics without the rows that have a certain label.

use super::{Measured, Meter, Metric};
use candle_core::{DType, Result, Tensor, bail};

/// The metric of [`Meter::ignore_index`].
#[derive(Clone, Copy, Debug)]
pub struct Ignoring<M> {
    metric: M,
    label: i64,
}

impl<M: Metric> Meter<M> {
    /// The meter without the rows that have this label, such as -100 for the padding of texts. It has seen no batch.
    ///
    /// ```
    /// use candle_core::{Device, Tensor};
    /// let mut accuracy = ferrotune_nn::metrics::accuracy().ignore_index(-100);
    /// let outputs = Tensor::new(&[1_f32, -1.0], &Device::Cpu)?;
    /// accuracy.update(&outputs, &Tensor::new(&[1_i64, -100], &Device::Cpu)?)?;
    /// assert_eq!(accuracy.value()?, 1.0);
    /// # Ok::<(), candle_core::Error>(())
    /// ```
    #[must_use]
    pub fn ignore_index(self, label: i64) -> Meter<Ignoring<M>> {
        Meter::new(Ignoring { metric: self.metric, label })
    }
}

impl<M: Metric> Metric for Ignoring<M> {
    fn measure(&self, outputs: &Tensor, targets: &Tensor, weights: Option<&Tensor>) -> Result<Tensor> {
        let is_kept = match targets.dtype() {
            dtype if dtype.is_float() => targets.ne(self.label as f64)?,
            _ => targets.to_dtype(DType::I64)?.ne(self.label)?,
        };
        let kept = is_kept.to_dtype(DType::F32)?;
        let Some(weights) = weights else { return self.metric.measure(outputs, targets, Some(&kept)) };
        let kept = kept.to_dtype(weights.dtype())?;
        let (rows, size) = (weights.dims(), targets.dims());
        let weights = match (rows, size) {
            (rows, size) if rows == size => weights.clone(),
            ([rows] | [rows, 1], [others, ..]) if rows == others => {
                let mut dims = vec![1; size.len()];
                dims[0] = *rows;
                weights.reshape(dims)?.broadcast_as(size)?
            }
            _ => bail!(
                "weights of shape {rows:?} do not fit {size:?} targets; give one weight for each row, in shape (n,)"
            ),
        };
        self.metric.measure(outputs, targets, Some(&(weights * kept)?))
    }

    fn merge(&self, total: &mut Measured, batch: Measured) -> Result<()> {
        self.metric.merge(total, batch)
    }

    fn value(&self, total: &Measured) -> Result<f64> {
        self.metric.value(total)
    }

    fn is_error(&self) -> bool {
        self.metric.is_error()
    }

    fn per_class(&self, total: &Measured) -> Result<Vec<f64>> {
        self.metric.per_class(total)
    }
}
