//! What is known of a layer by its type: a name for summaries, and its variables.

use crate::model::{Model, named};
use candle_core::{Tensor, TensorId};
use candle_nn::{
    Activation, BatchNorm, Conv1d, Conv2d, ConvTranspose1d, ConvTranspose2d, Dropout, Embedding, Func, FuncT,
    LayerNorm, Linear, PReLU, RmsNorm,
};
use std::any::{Any, type_name};
use std::fmt;

/// The type of a layer.
pub(super) struct Kind {
    name: String,
    /// The layer's variables and other tensors; `None` if they cannot be known from the type.
    pub(super) tensors: Option<Vec<TensorId>>,
    /// The shape of a row of the input, where the layer takes only one.
    pub(super) input: Option<Vec<usize>>,
    /// Whether the input is of integers.
    pub(super) takes_integers: bool,
}

impl Kind {
    fn new(name: impl Into<String>, tensors: &[Option<&Tensor>]) -> Kind {
        let tensors = tensors.iter().flatten().map(|tensor| tensor.id()).collect();
        Kind { name: name.into(), tensors: Some(tensors), input: None, takes_integers: false }
    }

    pub(super) fn of_model<M: Model>(model: &M) -> Kind {
        let tensors = named(model.vars()).iter().map(|(_, var)| var.id()).collect();
        Kind { tensors: Some(tensors), ..Kind::new(short::<M>(), &[]) }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.name)
    }
}

pub(super) fn kind_of<L: 'static>(layer: &L) -> Kind {
    let layer: &dyn Any = layer;
    if let Some(linear) = layer.downcast_ref::<Linear>() {
        let input = linear.weight().dims().get(1).map(|inputs| vec![*inputs]);
        return Kind { input, ..Kind::new("Linear", &[Some(linear.weight()), linear.bias()]) };
    }
    if let Some(embedding) = layer.downcast_ref::<Embedding>() {
        return Kind { takes_integers: true, ..Kind::new("Embedding", &[Some(embedding.embeddings())]) };
    }
    if let Some(norm) = layer.downcast_ref::<BatchNorm>() {
        let (weight, bias) = norm.weight_and_bias().unzip();
        return Kind::new("BatchNorm", &[weight, bias, Some(norm.running_mean()), Some(norm.running_var())]);
    }
    with_weight_and_bias(layer).or_else(|| without_variables(layer)).unwrap_or_else(|| {
        let name = type_name::<L>();
        let name = if name.contains("{{closure}}") { "closure".to_owned() } else { short::<L>() };
        Kind { tensors: None, ..Kind::new(name, &[]) }
    })
}

fn with_weight_and_bias(layer: &dyn Any) -> Option<Kind> {
    macro_rules! layers {
        ($($layer:ident),+) => {$(
            if let Some(known) = layer.downcast_ref::<$layer>() {
                return Some(Kind::new(stringify!($layer), &[Some(known.weight()), known.bias()]));
            }
        )+};
    }
    layers!(Conv1d, Conv2d, ConvTranspose1d, ConvTranspose2d, LayerNorm);
    if let Some(norm) = layer.downcast_ref::<RmsNorm>() {
        return Some(Kind::new("RmsNorm", &[Some(norm.weight())]));
    }
    let prelu = layer.downcast_ref::<PReLU>()?;
    Some(Kind::new("PReLU", &[Some(prelu.weight())]))
}

fn without_variables(layer: &dyn Any) -> Option<Kind> {
    if let Some(activation) = layer.downcast_ref::<Activation>() {
        return Some(Kind::new(format!("{activation:?}"), &[]));
    }
    if layer.is::<Dropout>() {
        return Some(Kind::new("Dropout", &[]));
    }
    let is_closure = layer.is::<Func<'static>>() || layer.is::<FuncT<'static>>();
    is_closure.then(|| Kind { tensors: None, ..Kind::new("closure", &[]) })
}

/// The type's name without its modules and parameters.
fn short<T>() -> String {
    let name = type_name::<T>();
    let name = name.split('<').next().unwrap_or(name);
    name.rsplit("::").next().unwrap_or(name).to_owned()
}
