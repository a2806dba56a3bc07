//! Metrics that accumulate over batches of any size. A batch is reduced to a small tensor on its device, by operations with static
//! shapes and without a read, so that a compiled step can contain a metric. The host adds these tensors in `f64`.
//!
//! A classifier's outputs are scores (logits) of shape (n, classes), or one logit for each row of two classes, of shape (n,) or (n, 1);
//! the targets are classes of shape (n,). Outputs may have more dimensions before the last, such as (n, time, classes), and targets then
//! have these. Definitions are those of scikit-learn. Rows with weight 0, such as padding, have no influence.
//!
//! An output that is NaN makes a metric NaN. A target that is no class is an error of the metric's value, because this needs a read.
//!
//! ```
//! use candle_core::{Device, Tensor};
//! use ferrotune_nn::metrics;
//! let mut f1 = metrics::f1();
//! for (outputs, targets) in [([-1.0_f32, 2.0, 0.5], [0_u32, 1, 0]), ([3.0, -0.5, -2.0], [1, 1, 0])] {
//!     f1.update(&Tensor::new(&outputs, &Device::Cpu)?, &Tensor::new(&targets, &Device::Cpu)?)?;
//! }
//! assert_eq!(f1.value()?, 2.0 / 3.0);
//! f1.reset();
//! # Ok::<(), candle_core::Error>(())
//! ```

mod accuracy;
mod auc;
mod class_scores;
mod confusion;
mod custom;
mod ignoring;
mod regression;

pub use accuracy::{Accuracy, TopK, accuracy, top_k};
pub use auc::{Auc, auc};
use candle_core::{DType, Result, Tensor, bail};
pub use class_scores::{Average, ClassScore, f_beta, f1, precision, recall};
pub use confusion::{Confusion, ConfusionMatrix, confusion_matrix};
pub use custom::{AsError, Custom, Mean, custom, mean};
pub use ignoring::Ignoring;
pub use regression::{Errors, RSquared, mae, mse, r2, rmse};

/// The number of tensors of compiled steps that a [`Meter`] keeps on a device before it reads them.
const PENDING_TENSORS: usize = 64;

/// A metric as functions: of a batch on its device, and of the sums of all batches on the host. [`Meter`] uses both in a loop.
pub trait Metric: Send + Sync {
    /// The numbers that the metric needs of a batch, as a tensor on its device, without a read. `weights` has one number for each row.
    ///
    /// # Errors
    /// If the shapes or types of outputs, targets and weights do not fit.
    fn measure(&self, outputs: &Tensor, targets: &Tensor, weights: Option<&Tensor>) -> Result<Tensor>;

    /// Adds a batch's numbers to those of all batches before. These are sums, unless a metric has another rule.
    ///
    /// # Errors
    /// If the batch has another number of classes.
    fn merge(&self, total: &mut Measured, batch: Measured) -> Result<()> {
        total.add(&batch)
    }

    /// The value for all batches.
    ///
    /// # Errors
    /// If a target is no class.
    fn value(&self, total: &Measured) -> Result<f64>;

    /// The value of each class, or of each column of a regression.
    ///
    /// # Errors
    /// If the metric has no such values, or a target is no class.
    fn per_class(&self, _total: &Measured) -> Result<Vec<f64>> {
        bail!("this metric has no values for single classes; use its value, or precision, recall, f1 or auc")
    }

    /// Whether a smaller value is better, as of an error.
    fn is_error(&self) -> bool {
        false
    }
}

/// The numbers of batches, as [`Metric::measure`] made them, on the host.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// The shape of the numbers.
    pub dims: Vec<usize>,
    /// The numbers, row after row.
    pub numbers: Vec<f64>,
}

impl Measured {
    /// Reads a tensor.
    ///
    /// # Errors
    /// The errors of the device.
    pub fn read(tensor: &Tensor) -> Result<Measured> {
        // Devices without `f64` can still be read.
        let numbers = match tensor.dtype() {
            DType::F64 => tensor.flatten_all()?.to_vec1::<f64>()?,
            _ => tensor.to_dtype(DType::F32)?.flatten_all()?.to_vec1::<f32>()?.into_iter().map(f64::from).collect(),
        };
        Ok(Measured { dims: tensor.dims().to_vec(), numbers })
    }

    /// Row `index` of numbers with two dimensions.
    fn row(&self, index: usize) -> &[f64] {
        let columns = self.columns();
        &self.numbers[index * columns..(index + 1) * columns]
    }

    fn columns(&self) -> usize {
        self.dims.last().copied().unwrap_or(1)
    }

    fn add(&mut self, batch: &Measured) -> Result<()> {
        if self.dims != batch.dims {
            bail!(
                "a batch has numbers of shape {:?} after batches with {:?}; give all the same outputs",
                batch.dims,
                self.dims
            )
        }
        self.numbers.iter_mut().zip(&batch.numbers).for_each(|(sum, number)| *sum += number);
        Ok(())
    }
}

/// A metric with what it has seen so far. The functions of [this module](self), such as [`accuracy`], make meters.
pub struct Meter<M> {
    metric: M,
    /// The numbers of the last batches, which are still on the device.
    pending: Vec<Tensor>,
    total: Option<Measured>,
}

impl<M: Metric> Meter<M> {
    /// A meter that has seen no batch.
    pub fn new(metric: M) -> Meter<M> {
        Meter { metric, pending: Vec::new(), total: None }
    }

    /// Adds a batch, and reads the few numbers that the metric needs of it. The last batch may be smaller, and an empty one changes
    /// nothing. The targets go to the device of the outputs.
    ///
    /// # Errors
    /// If the shapes or types do not fit; see [`Metric::measure`].
    pub fn update(&mut self, outputs: &Tensor, targets: &Tensor) -> Result<()> {
        self.update_weighted(outputs, targets, None)
    }

    /// Adds a batch whose rows have these weights; a row with weight 0 is ignored.
    ///
    /// # Errors
    /// If the shapes or types do not fit; see [`Metric::measure`].
    pub fn update_weighted<'a>(
        &mut self,
        outputs: &Tensor,
        targets: &Tensor,
        weights: impl Into<Option<&'a Tensor>>,
    ) -> Result<()> {
        let device = outputs.device();
        if targets.elem_count() > 0 {
            let weights = weights.into().map(|weights| weights.to_device(device)).transpose()?;
            let targets = targets.to_device(device)?;
            self.pending.push(self.metric.measure(&outputs.detach(), &targets, weights.as_ref())?);
        }
        // A device that computes when values are needed would otherwise compute many batches at once, with the memory for all.
        self.collect()
    }

    /// Adds what [`Metric::measure`] made of a batch in a compiled step. It is read later: with the value, or with others.
    ///
    /// # Errors
    /// The errors of [`Metric::merge`] and of the device.
    pub fn add(&mut self, measured: Tensor) -> Result<()> {
        let is_near = measured.device().is_cpu();
        self.pending.push(measured);
        if is_near || self.pending.len() >= PENDING_TENSORS { self.collect() } else { Ok(()) }
    }

    /// Adds the numbers of a batch that were read already.
    #[doc(hidden)]
    pub fn merge(&mut self, batch: Measured) -> Result<()> {
        match &mut self.total {
            Some(total) => self.metric.merge(total, batch)?,
            None => self.total = Some(batch),
        }
        Ok(())
    }

    /// The value for all batches since the last [`Meter::reset`].
    ///
    /// # Errors
    /// If there was no batch, a target is no class, and the errors of the device.
    pub fn value(&mut self) -> Result<f64> {
        self.collect()?;
        self.metric.value(self.seen()?)
    }

    /// The value of each class, or of each column of a regression.
    ///
    /// # Errors
    /// If the metric has no such values, and the errors of [`Meter::value`].
    pub fn per_class(&mut self) -> Result<Vec<f64>> {
        self.collect()?;
        self.metric.per_class(self.seen()?)
    }

    /// Whether there was no batch since the last [`Meter::reset`].
    pub fn is_empty(&self) -> bool {
        self.total.is_none() && self.pending.is_empty()
    }

    /// Forgets all batches.
    pub fn reset(&mut self) {
        self.pending.clear();
        self.total = None;
    }

    /// The metric as functions.
    pub fn metric(&self) -> &M {
        &self.metric
    }

    /// The metric as functions, without what the meter has seen.
    pub fn into_metric(self) -> M {
        self.metric
    }

    /// A meter of any metric, so that different ones fit into one list.
    pub fn boxed(self) -> Meter<Box<dyn Metric>>
    where
        M: 'static,
    {
        Meter { metric: Box::new(self.metric), pending: self.pending, total: self.total }
    }

    fn seen(&self) -> Result<&Measured> {
        match &self.total {
            Some(total) => Ok(total),
            None => bail!("the metric has seen no row; call `update` with a batch before its value is read"),
        }
    }

    fn collect(&mut self) -> Result<()> {
        for tensor in std::mem::take(&mut self.pending) {
            self.merge(Measured::read(&tensor)?)?;
        }
        Ok(())
    }
}

macro_rules! forwarded {
    ($($kind:ty),+) => {$(
        impl<M: Metric + ?Sized> Metric for $kind {
            fn measure(&self, outputs: &Tensor, targets: &Tensor, weights: Option<&Tensor>) -> Result<Tensor> {
                (**self).measure(outputs, targets, weights)
            }

            fn merge(&self, total: &mut Measured, batch: Measured) -> Result<()> {
                (**self).merge(total, batch)
            }

            fn value(&self, total: &Measured) -> Result<f64> {
                (**self).value(total)
            }

            fn per_class(&self, total: &Measured) -> Result<Vec<f64>> {
                (**self).per_class(total)
            }

            fn is_error(&self) -> bool {
                (**self).is_error()
            }
        }
    )+};
}

forwarded!(&M, Box<M>, std::sync::Arc<M>);
