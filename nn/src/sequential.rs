//! Layers one after the other, as a model that carries its variables.

mod described;
mod kinds;
mod layers;
mod summary;

use crate::model::{Model, Summary, named, trained};
use candle_core::{DType, Device, Error, ModuleT, Result, Tensor, Var, bail};
use candle_nn::{VarBuilder, VarMap};
use ferrotune_display::{Bundle, Show};
use kinds::{Kind, kind_of};
pub use layers::{Flatten, MaxPool2d, flatten, max_pool2d};
use std::any::Any;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::PoisonError;

/// A model of any of candle's layers, with its variables, which `build` makes with the `VarBuilder`. They are `f32`; layers that use
/// `vb.to_dtype(…)` have another type.
///
/// ```
/// use candle_core::{Device, Tensor};
/// use candle_nn::{Activation, Dropout, batch_norm, linear};
/// use ferrotune_nn::{self as nn, Model as _};
/// let model = nn::model(&Device::Cpu, |vb| {
///     Ok(nn::seq()
///         .add(linear(20, 64, vb.pp("hidden"))?)
///         .add(batch_norm(64, 1e-5, vb.pp("norm"))?)
///         .add(Activation::Relu)
///         .add(Dropout::new(0.2))
///         .add(linear(64, 3, vb.pp("output"))?)
///         .add(|xs: &Tensor| xs * 0.5))
/// })?;
/// let xs = Tensor::randn(0_f32, 1.0, (8, 20), &Device::Cpu)?;
/// assert_eq!(model.forward(&xs, true)?.dims(), [8, 3]);
/// assert_eq!(model.parameters(), 20 * 64 + 64 + 2 * 64 + 64 * 3 + 3);
/// # Ok::<(), candle_core::Error>(())
/// ```
///
/// # Errors
/// The errors of `build`, and if a layer that is a model itself has a variable with the name of another variable.
pub fn model(device: &Device, build: impl FnOnce(VarBuilder<'static>) -> Result<Sequential>) -> Result<Sequential> {
    let vars = VarMap::new();
    build(VarBuilder::from_varmap(&vars, DType::F32, device))?.with_vars(&vars)
}

/// A model without layers yet.
pub fn seq() -> Sequential {
    Sequential { layers: Vec::new(), vars: VarMap::new(), frozen: BTreeSet::new(), input: None }
}

/// Layers one after the other, made by [`seq`] and [`model`], [`mlp`](crate::mlp()) or [`cnn`](crate::cnn()).
///
/// Unlike candle's `Sequential`, it has layers that differ between training and evaluation, such as dropout and batch norm, and carries
/// its variables.
pub struct Sequential {
    layers: Vec<Layer>,
    vars: VarMap,
    /// The names of variables that are not trained.
    frozen: BTreeSet<String>,
    /// The shape of a row of the input, if it was given.
    input: Option<Vec<usize>>,
}

struct Layer {
    name: String,
    kind: Kind,
    layer: Part,
}

/// A layer of candle, or a model within the model.
enum Part {
    Layer(Box<dyn AnyLayer>),
    Model(Box<dyn Model + Send + Sync>),
    Sequential(Box<Sequential>),
}

/// A layer whose type a description finds again.
trait AnyLayer: ModuleT + Any + Send + Sync {}

impl<L: ModuleT + Any + Send + Sync> AnyLayer for L {}

impl Sequential {
    /// Appends a layer: any [`Module`](candle_core::Module) or [`ModuleT`], such as `Linear`, `Dropout`, `BatchNorm` or `Activation`, a
    /// closure from a tensor to a result, or another `Sequential` of this crate, whose variables this one then has too. candle's own
    /// `Sequential` is refused, because threads cannot share it. A model with a closure or a type of your own is saved and loaded, but
    /// [`open`](crate::open) cannot build it from its files.
    #[must_use]
    #[expect(clippy::should_implement_trait, reason = "the name is that of candle's `Sequential`")]
    pub fn add<L: ModuleT + Send + Sync + 'static>(self, layer: L) -> Sequential {
        let name = self.layers.len().to_string();
        self.add_as(&name, layer)
    }

    /// Appends a layer under a name instead of its place, for summaries and errors. A name that another layer has gets a number.
    #[must_use]
    pub fn add_as<L: ModuleT + Send + Sync + 'static>(mut self, name: &str, layer: L) -> Sequential {
        let name = &self.free_name(name, (&layer as &dyn Any).is::<Sequential>());
        let kind = kind_of(&layer);
        let boxed: Box<dyn Any> = Box::new(layer);
        let layer = match boxed.downcast::<Sequential>() {
            Ok(inner) => {
                self.adopt(name, inner.vars());
                self.frozen.extend(inner.frozen.iter().map(|frozen| format!("{name}.{frozen}")));
                Part::Sequential(inner)
            }
            Err(other) => match other.downcast::<L>() {
                Ok(layer) => Part::Layer(layer),
                Err(_) => unreachable!("a box has the type that was put into it"),
            },
        };
        self.layers.push(Layer { name: name.to_owned(), kind, layer });
        self
    }

    /// Appends a model of any type. Its variables get names that begin with its place, such as `3.`.
    #[must_use]
    pub fn add_model<M: Model + Send + Sync + 'static>(mut self, model: M) -> Sequential {
        let name = self.free_name(&self.layers.len().to_string(), true);
        self.adopt(&name, model.vars());
        let trainable = model.trainable();
        let is_frozen = |var: &Var| trainable.iter().all(|other| other.id() != var.id());
        let frozen = trained(model.vars()).into_iter().filter(|(_, var)| is_frozen(var));
        self.frozen.extend(frozen.map(|(inner, _)| format!("{name}.{inner}")));
        let kind = Kind::of_model::<M>(&model);
        self.layers.push(Layer { name, kind, layer: Part::Model(Box::new(model)) });
        self
    }

    /// The shape of one row of the input, without the rows' own dimension: `[1, 28, 28]`. The summary needs it, unless the first layer
    /// is a `Linear`.
    #[must_use]
    pub fn input(mut self, row: &[usize]) -> Sequential {
        self.input = Some(row.to_vec());
        self
    }

    /// Gives the model variables that layers got from elsewhere: those of a `VarMap` of your own.
    ///
    /// # Errors
    /// If the model already has another variable with such a name.
    pub fn with_vars(self, vars: &VarMap) -> Result<Sequential> {
        let known = |name: &String| named(&self.vars).into_iter().find(|(other, _)| other == name);
        for (name, var) in named(vars) {
            if known(&name).is_some_and(|(_, other)| other.id() != var.id()) {
                bail!("two variables have the name `{name}`; give the layer another one with `vb.pp`")
            }
        }
        self.insert(named(vars));
        Ok(self)
    }

    /// Leaves the variables whose names begin with `prefix` out of training, as in fine-tuning. The statistics of their batch norms still
    /// change in training.
    ///
    /// # Errors
    /// If no variable has such a name.
    ///
    /// ```
    /// use ferrotune_nn::{self as nn, Model as _};
    /// let mut model = nn::mlp(4, &[8], 2).build(&candle_core::Device::Cpu)?;
    /// model.freeze("0.")?;
    /// assert_eq!(model.parameters(), 8 * 2 + 2);
    /// # Ok::<(), candle_core::Error>(())
    /// ```
    pub fn freeze(&mut self, prefix: &str) -> Result<()> {
        let names: Vec<String> = named(&self.vars).into_iter().map(|(name, _)| name).collect();
        let (chosen, others): (Vec<_>, Vec<_>) = names.into_iter().partition(|name| name.starts_with(prefix));
        if chosen.is_empty() {
            bail!("no variable has a name that begins with `{prefix}`; the names are {}", others.join(", "))
        }
        self.frozen.extend(chosen);
        Ok(())
    }

    /// Trains all variables again, after [`Sequential::freeze`].
    pub fn unfreeze(&mut self) {
        self.frozen.clear();
    }

    /// Leaves the variables with exactly these names out of training.
    pub(crate) fn leave_out(&mut self, names: &[String]) {
        self.frozen.extend(names.iter().cloned());
    }

    /// The number of layers.
    pub fn len(&self) -> usize {
        self.layers.len()
    }

    /// Whether the model has no layer, so that its outputs are its inputs.
    pub fn is_empty(&self) -> bool {
        self.layers.is_empty()
    }

    /// The name, or the name with a number if a layer has it, or variables where the layer brings variables of its own.
    fn free_name(&self, name: &str, has_variables: bool) -> String {
        let vars = named(&self.vars);
        let is_taken = |name: &String| {
            let is_of_variables = |(var, _): &(String, Var)| var.starts_with(&format!("{name}."));
            self.layers.iter().any(|layer| layer.name == *name) || (has_variables && vars.iter().any(is_of_variables))
        };
        let numbered = (2_usize..).map(|number| format!("{name}_{number}"));
        std::iter::once(name.to_owned()).chain(numbered).find(|name| !is_taken(name)).unwrap_or_default()
    }

    /// Takes the variables of a model within this one, with its name before theirs.
    fn adopt(&self, name: &str, vars: &VarMap) {
        self.insert(named(vars).into_iter().map(|(inner, var)| (format!("{name}.{inner}"), var)).collect());
    }

    fn insert(&self, vars: Vec<(String, Var)>) {
        self.vars.data().lock().unwrap_or_else(PoisonError::into_inner).extend(vars);
    }
}

impl Model for Sequential {
    fn forward(&self, xs: &Tensor, train: bool) -> Result<Tensor> {
        self.layers.iter().try_fold(xs.clone(), |xs, layer| layer.forward(&xs, train))
    }

    fn vars(&self) -> &VarMap {
        &self.vars
    }

    fn trainable(&self) -> Vec<Var> {
        let is_frozen = |name: &String| self.frozen.contains(name);
        trained(&self.vars).into_iter().filter(|(name, _)| !is_frozen(name)).map(|(_, var)| var).collect()
    }

    /// The summary has the shapes of the outputs if the shape of the input is known: from `mlp`, `cnn`, [`Sequential::input`] or a
    /// first layer that is a `Linear`.
    fn summary(&self) -> Result<Summary> {
        summary::of(self, None)
    }

    fn summary_of(&self, xs: &Tensor) -> Result<Summary> {
        summary::of(self, Some(xs))
    }

    fn as_sequential(&self) -> Option<&Sequential> {
        Some(self)
    }
}

/// A `Sequential` is a layer too.
impl ModuleT for Sequential {
    fn forward_t(&self, xs: &Tensor, train: bool) -> Result<Tensor> {
        Model::forward(self, xs, train)
    }
}

impl Layer {
    fn forward(&self, xs: &Tensor, train: bool) -> Result<Tensor> {
        let output = match &self.layer {
            Part::Layer(layer) => layer.forward_t(xs, train),
            Part::Model(model) => model.forward(xs, train),
            Part::Sequential(inner) => inner.forward_t(xs, train),
        };
        output.map_err(|error: Error| {
            error.context(format!("layer {} of the model ({}) got {:?}", self.name, self.kind, xs.shape()))
        })
    }
}

impl fmt::Debug for Sequential {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let layers = self.layers.iter().map(|layer| format!("{}: {}", layer.name, layer.kind));
        formatter.debug_list().entries(layers).finish()
    }
}

/// A cell shows the summary, or the layers' types if the model does not take the input that it names.
impl Show for Sequential {
    fn bundle(&self) -> Bundle {
        self.summary().map_or_else(|_| Bundle::text(format!("{self:?}")), |summary| summary.bundle())
    }
}
