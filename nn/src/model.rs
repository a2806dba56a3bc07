//! The trait of models: a forward pass that knows training from evaluation, and the variables by name. Everything else follows from
//! these: files, predictions, the count of parameters and a summary. No training: an optimiser takes [`Model::trainable`].

mod description;
mod file;
mod predict;
mod summary;

use crate::sequential::Sequential;
use candle_core::{DType, Device, Result, Tensor, Var};
use candle_nn::VarMap;
#[doc(hidden)]
pub use description::description;
pub use file::open;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::PoisonError;
pub use summary::{LayerSummary, Summary};
pub(crate) use summary::{is_of_layer, row_shape};

/// The number of rows that [`Model::predict`] computes at once.
const PREDICTED_ROWS: usize = 512;

/// A model that carries its variables: [`Sequential`](crate::Sequential), or a struct of your own with [`Model::forward`] and
/// [`Model::vars`].
///
/// ```
/// use candle_core::{DType, Device, Result, Tensor};
/// use candle_nn::{Linear, Module as _, VarBuilder, VarMap, linear};
/// use ferrotune_nn::Model;
///
/// struct Residual {
///     vars: VarMap,
///     inner: Linear,
/// }
///
/// impl Residual {
///     fn new(width: usize, device: &Device) -> Result<Residual> {
///         let vars = VarMap::new();
///         let vb = VarBuilder::from_varmap(&vars, DType::F32, device);
///         Ok(Residual { inner: linear(width, width, vb.pp("inner"))?, vars })
///     }
/// }
///
/// impl Model for Residual {
///     fn forward(&self, xs: &Tensor, _train: bool) -> Result<Tensor> {
///         xs + self.inner.forward(xs)?.relu()?
///     }
///
///     fn vars(&self) -> &VarMap {
///         &self.vars
///     }
/// }
///
/// let model = Residual::new(8, &Device::Cpu)?;
/// assert_eq!(model.parameters(), 8 * 8 + 8);
/// let rows = Tensor::zeros((1000, 8), DType::F32, &Device::Cpu)?;
/// assert_eq!(model.predict(&rows)?.dims(), [1000, 8]);
/// # Ok::<(), candle_core::Error>(())
/// ```
pub trait Model {
    /// The outputs for a batch, whose first dimension is the rows. `train` is true only in a step of training: dropout then drops, and
    /// batch norm uses the statistics of the batch and updates its own.
    ///
    /// # Errors
    /// If a layer refuses the shape or type of its input, and the errors of the device.
    fn forward(&self, xs: &Tensor, train: bool) -> Result<Tensor>;

    /// The variables by name, trainable or not, as a file has them. `trial.checkpoint` takes this map.
    fn vars(&self) -> &VarMap;

    /// The variables that an optimiser changes, in the order of their names.
    ///
    /// These are all with a floating-point type, except those whose last name is `running_mean` or `running_var`: the statistics of
    /// candle's and PyTorch's batch norm. A model with frozen layers implements this itself.
    fn trainable(&self) -> Vec<Var> {
        trained(self.vars()).into_iter().map(|(_, var)| var).collect()
    }

    /// The number of elements of the trainable variables.
    fn parameters(&self) -> usize {
        self.trainable().iter().map(|var| var.elem_count()).sum()
    }

    /// The device of the variables; of the first one by name, if there are several devices, and `None` without variables.
    fn device(&self) -> Option<Device> {
        named(self.vars()).first().map(|(_, var)| var.device().clone())
    }

    /// The layers with the shapes of their outputs and their parameters, as Keras prints them. A struct of your own has a line for each
    /// group of variables, without shapes.
    ///
    /// # Errors
    /// The errors of [`Model::forward`], where the shape of the input is known.
    fn summary(&self) -> Result<Summary> {
        Ok(Summary::of_vars(self.vars(), &self.trainable()))
    }

    /// The layers, where the model has nothing but layers: its description then says how to build it again.
    #[doc(hidden)]
    fn as_sequential(&self) -> Option<&Sequential> {
        None
    }

    /// The summary with the shapes that the layers give for a batch like `xs`.
    ///
    /// # Errors
    /// The errors of [`Model::forward`].
    fn summary_of(&self, xs: &Tensor) -> Result<Summary> {
        let output = predict::without_gradients(self, xs)?;
        Ok(Summary { output: Some(summary::row_shape(&output)), ..self.summary()? })
    }

    /// The outputs for all rows, as in evaluation: nothing is dropped, no statistic changes, and nothing is kept for gradients.
    ///
    /// `rows` has shape (rows, …) on any device. The model takes 512 rows at once, which bounds the memory, on its own device; there the
    /// outputs are.
    ///
    /// # Errors
    /// If `rows` has no dimensions, and the errors of [`Model::forward`].
    fn predict(&self, rows: &Tensor) -> Result<Tensor> {
        self.predict_in_batches(rows, PREDICTED_ROWS)
    }

    /// [`Model::predict`] with another number of rows at once.
    ///
    /// # Errors
    /// If `batch` is 0, and the errors of [`Model::predict`].
    fn predict_in_batches(&self, rows: &Tensor, batch: usize) -> Result<Tensor> {
        predict::in_batches(self, rows, batch)
    }

    /// Saves the variables as safetensors, and beside them a description: `model.safetensors` and `model.safetensors.json`. Each file is
    /// written under another name and then renamed, so that a crash leaves the old file or the new one. The function
    /// [`open`](crate::open) builds the model from both files, if the description has its layers.
    ///
    /// # Errors
    /// If a file cannot be written, and the errors of the device.
    ///
    /// ```
    /// # use candle_core::{Device, Tensor};
    /// use ferrotune_nn::{self as nn, Model as _};
    /// let folder = tempfile::tempdir()?;
    /// let file = folder.path().join("model.safetensors");
    /// let model = nn::mlp(4, &[8], 1).build(&Device::Cpu)?;
    /// model.save(&file)?;
    /// let other = nn::mlp(4, &[8], 1).build(&Device::Cpu)?;
    /// other.load(&file)?;
    /// let rows = Tensor::ones((1, 4), candle_core::DType::F32, &Device::Cpu)?;
    /// assert_eq!(model.predict(&rows)?.to_vec2::<f32>()?, other.predict(&rows)?.to_vec2::<f32>()?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    fn save(&self, path: impl AsRef<Path>) -> Result<()>
    where
        Self: Sized,
    {
        file::save(self, path.as_ref())
    }

    /// Loads the variables that [`Model::save`] or another program saved as safetensors; a description is not necessary. PyTorch's
    /// `num_batches_tracked` is left out.
    ///
    /// # Errors
    /// If a name, shape or type of a variable differs between file and model, or the file is damaged or of a later version. No variable
    /// is changed then.
    fn load(&self, path: impl AsRef<Path>) -> Result<()>
    where
        Self: Sized,
    {
        file::load(self.vars(), path.as_ref())
    }

    /// Loads the variables that file and model have in common, as from a model with another last layer. Returns the names of the model's
    /// variables that the file does not have; these are unchanged.
    ///
    /// # Errors
    /// If no name is in both, if a common variable has another shape or type, or the file is damaged. No variable is changed then.
    fn load_common(&self, path: impl AsRef<Path>) -> Result<Vec<String>>
    where
        Self: Sized,
    {
        file::load_common(self.vars(), path.as_ref())
    }
}

macro_rules! forwarded {
    ($($kind:ty),+) => {$(
        impl<M: Model + ?Sized> Model for $kind {
            fn forward(&self, xs: &Tensor, train: bool) -> Result<Tensor> {
                (**self).forward(xs, train)
            }

            fn vars(&self) -> &VarMap {
                (**self).vars()
            }

            fn trainable(&self) -> Vec<Var> {
                (**self).trainable()
            }

            fn summary(&self) -> Result<Summary> {
                (**self).summary()
            }

            fn summary_of(&self, xs: &Tensor) -> Result<Summary> {
                (**self).summary_of(xs)
            }

            fn as_sequential(&self) -> Option<&Sequential> {
                (**self).as_sequential()
            }
        }
    )+};
}

forwarded!(&M, Box<M>, std::sync::Arc<M>, std::rc::Rc<M>);

/// The variables of a map in the order of their names, where numbers in names count as numbers: `2.weight` is before `10.weight`.
pub(crate) fn named(vars: &VarMap) -> Vec<(String, Var)> {
    // If a thread panics while it has the lock, the variables in the map are still whole.
    let data = vars.data().lock().unwrap_or_else(PoisonError::into_inner);
    let key = |name: &str| name.split('.').map(|part| (part.parse::<u64>().ok(), part.to_owned())).collect::<Vec<_>>();
    let ordered: BTreeMap<_, _> = data.iter().map(|(name, var)| (key(name), (name.clone(), var.clone()))).collect();
    ordered.into_values().collect()
}

/// The variables that are trained unless a model says otherwise, in the order of their names.
pub(crate) fn trained(vars: &VarMap) -> Vec<(String, Var)> {
    named(vars).into_iter().filter(|(name, var)| var.dtype().is_float() && !is_statistic(name)).collect()
}

/// Whether a variable has the statistics of a batch norm, which no optimiser changes.
fn is_statistic(name: &str) -> bool {
    matches!(name.rsplit('.').next(), Some("running_mean" | "running_var"))
}

/// The floating-point type of the variables; of the first one by name, and `f32` without any.
pub(crate) fn float_type(vars: &VarMap) -> DType {
    named(vars).iter().map(|(_, var)| var.dtype()).find(DType::is_float).unwrap_or(DType::F32)
}
