//! The architecture of a `Sequential`: each layer by its type, with the numbers that it gives away. The names of its variables are those
//! that the model has for the layer's own tensors.

use super::layers::{Flatten, MaxPool2d};
use super::{Layer, Part, Sequential};
use crate::architecture::{Architecture, Convolution, LayerDescription, LayerKind, Variable, cudnn_name};
use crate::model::named;
use candle_core::{Tensor, TensorId};
use candle_nn::ops::Identity;
use candle_nn::{
    Activation, BatchNorm, Conv1d, Conv2d, ConvTranspose1d, ConvTranspose2d, Dropout, Embedding, LayerNorm, Linear,
    PReLU, RmsNorm,
};
use std::any::Any;
use std::collections::{BTreeMap, HashMap, HashSet};

/// How deep models are within models at most. JSON is not read at any depth.
const MOST_DEPTH: usize = 24;

/// The tensors of a layer by what they are for it.
type Tensors<'a> = Vec<(&'static str, &'a Tensor)>;

impl Sequential {
    /// The architecture, or the reason why there is none.
    pub(crate) fn architecture(&self) -> Result<Architecture, String> {
        let mut names: HashMap<TensorId, Variable> = HashMap::new();
        for (name, var) in named(&self.vars) {
            let dtype = var.dtype().as_str().to_owned();
            if let Some(other) = names.insert(var.id(), Variable { name: name.clone(), dtype }) {
                return Err(format!("a variable has two names, `{}` and `{name}`", other.name));
            }
        }
        let mut found = Found { names, used: HashSet::new() };
        let layers = found.layers_of(self, "", 0)?;
        if let Some((name, _)) = named(&self.vars).into_iter().find(|(_, var)| !found.used.contains(&var.id())) {
            return Err(format!("the variable `{name}` belongs to no layer"));
        }
        Ok(Architecture::new(self.input.clone(), self.frozen.iter().cloned().collect(), layers))
    }
}

/// The model's variables by their tensors.
struct Found {
    names: HashMap<TensorId, Variable>,
    /// The variables that a layer has.
    used: HashSet<TensorId>,
}

impl Found {
    fn layers_of(&mut self, model: &Sequential, prefix: &str, depth: usize) -> Result<Vec<LayerDescription>, String> {
        if depth > MOST_DEPTH {
            return Err(format!("layer {} is more than {MOST_DEPTH} models deep", prefix.trim_end_matches('.')));
        }
        model.layers.iter().map(|layer| self.layer(layer, prefix, depth)).collect()
    }

    fn layer(&mut self, layer: &Layer, prefix: &str, depth: usize) -> Result<LayerDescription, String> {
        let name = format!("{prefix}{}", layer.name);
        let inner = match &layer.layer {
            Part::Layer(part) => {
                let Some((kind, tensors)) = known(&**part) else { return Err(unknown(&name, layer)) };
                let variables = self.variables(&kind, &tensors).map_err(|reason| format!("layer {name} {reason}"))?;
                return Ok(LayerDescription { name: layer.name.clone(), layer: kind, variables });
            }
            Part::Sequential(inner) => inner,
            Part::Model(model) => model.as_sequential().ok_or_else(|| unknown(&name, layer))?,
        };
        let layers = self.layers_of(inner, &format!("{name}."), depth + 1)?;
        Ok(LayerDescription {
            name: layer.name.clone(),
            layer: LayerKind::Sequential(layers),
            variables: BTreeMap::new(),
        })
    }

    /// The variables of a layer, if its function in candle would ask for such ones. The errors are predicates.
    fn variables(&mut self, kind: &LayerKind, tensors: &Tensors<'_>) -> Result<BTreeMap<String, Variable>, String> {
        kind.check()?;
        let text = serde_json::to_string(kind).map_err(|error| format!("cannot be written: {error}"))?;
        if !serde_json::from_str::<LayerKind>(&text).is_ok_and(|read| read == *kind) {
            return Err("has a number that is infinite or no number".to_owned());
        }
        let shapes: HashMap<&str, Vec<usize>> = kind.shapes().into_iter().collect();
        let mut variables = BTreeMap::new();
        for (role, tensor) in tensors {
            if shapes.get(role).is_none_or(|shape| *shape != tensor.dims()) {
                return Err(format!(
                    "has a `{role}` of shape {:?}, which its function in candle does not make",
                    tensor.dims()
                ));
            }
            let Some(variable) = self.names.get(&tensor.id()) else {
                return Err(format!("has a `{role}` that is no variable of the model"));
            };
            self.used.insert(tensor.id());
            variables.insert((*role).to_owned(), variable.clone());
        }
        Ok(variables)
    }
}

fn unknown(name: &str, layer: &Layer) -> String {
    match layer.kind.to_string().as_str() {
        "closure" => format!("layer {name} is a closure"),
        kind => format!("layer {name} has the type `{kind}`, which a description does not know"),
    }
}

/// The layer as data, with its tensors; `None` if its type is not known, or does not give away all that makes it.
fn known(layer: &dyn Any) -> Option<(LayerKind, Tensors<'_>)> {
    if let Some(linear) = layer.downcast_ref::<Linear>() {
        let [outputs, inputs] = sizes(linear.weight());
        let kind = LayerKind::Linear { inputs, outputs, bias: linear.bias().is_some() };
        return Some((kind, weights(linear.weight(), linear.bias())));
    }
    if let Some(embedding) = layer.downcast_ref::<Embedding>() {
        let [rows, _] = sizes(embedding.embeddings());
        let kind = LayerKind::Embedding { rows, width: embedding.hidden_size() };
        return Some((kind, weights(embedding.embeddings(), None)));
    }
    convolution(layer)
        .or_else(|| transposed_convolution(layer))
        .or_else(|| norm(layer))
        .or_else(|| without_variables(layer).map(|kind| (kind, Vec::new())))
}

/// The numbers of a convolution, whose types for one and for two dimensions have the same functions and settings.
macro_rules! numbers_of {
    ($conv:expr) => {{
        let ([outputs, of_group, kernel], config) = (sizes($conv.weight()), $conv.config());
        Convolution {
            inputs: of_group.checked_mul(config.groups)?,
            outputs,
            kernel,
            bias: $conv.bias().is_some(),
            padding: config.padding,
            output_padding: 0,
            stride: config.stride,
            dilation: config.dilation,
            groups: config.groups,
            cudnn: config.cudnn_fwd_algo.map(cudnn_name),
        }
    }};
}

fn convolution(layer: &dyn Any) -> Option<(LayerKind, Tensors<'_>)> {
    if let Some(conv) = layer.downcast_ref::<Conv1d>() {
        return Some((LayerKind::Conv1d(numbers_of!(conv)), weights(conv.weight(), conv.bias())));
    }
    let conv = layer.downcast_ref::<Conv2d>()?;
    Some((LayerKind::Conv2d(numbers_of!(conv)), weights(conv.weight(), conv.bias())))
}

fn transposed_convolution(layer: &dyn Any) -> Option<(LayerKind, Tensors<'_>)> {
    if let Some(conv) = layer.downcast_ref::<ConvTranspose1d>() {
        let ([inputs, of_group, kernel], config) = (sizes(conv.weight()), conv.config());
        let numbers = Convolution {
            inputs,
            outputs: of_group.checked_mul(config.groups)?,
            kernel,
            bias: conv.bias().is_some(),
            padding: config.padding,
            output_padding: config.output_padding,
            stride: config.stride,
            dilation: config.dilation,
            groups: config.groups,
            cudnn: None,
        };
        return Some((LayerKind::ConvTranspose1d(numbers), weights(conv.weight(), conv.bias())));
    }
    let conv = layer.downcast_ref::<ConvTranspose2d>()?;
    let ([inputs, outputs, kernel], config) = (sizes(conv.weight()), conv.config());
    let numbers = Convolution {
        inputs,
        outputs,
        kernel,
        bias: conv.bias().is_some(),
        padding: config.padding,
        output_padding: config.output_padding,
        stride: config.stride,
        dilation: config.dilation,
        groups: 1,
        cudnn: None,
    };
    Some((LayerKind::ConvTranspose2d(numbers), weights(conv.weight(), conv.bias())))
}

fn norm(layer: &dyn Any) -> Option<(LayerKind, Tensors<'_>)> {
    if let Some(norm) = layer.downcast_ref::<LayerNorm>() {
        let [size] = sizes(norm.weight());
        let (eps, remove_mean, bias) = (norm.eps(), norm.remove_mean(), norm.bias().is_some());
        return Some((LayerKind::LayerNorm { size, eps, remove_mean, bias }, weights(norm.weight(), norm.bias())));
    }
    if let Some(norm) = layer.downcast_ref::<RmsNorm>() {
        let [size] = sizes(norm.weight());
        return Some((LayerKind::RmsNorm { size, eps: norm.eps() }, weights(norm.weight(), None)));
    }
    if let Some(prelu) = layer.downcast_ref::<PReLU>() {
        let [size] = sizes(prelu.weight());
        let channels = (!prelu.is_scalar()).then_some(size);
        return Some((LayerKind::Prelu { channels }, weights(prelu.weight(), None)));
    }
    let norm = layer.downcast_ref::<BatchNorm>()?;
    let [features] = sizes(norm.running_mean());
    let (eps, momentum, affine) = (norm.eps(), norm.momentum(), norm.weight_and_bias().is_some());
    let remove_mean = removes_mean(norm)?;
    let mut tensors = vec![("running_mean", norm.running_mean()), ("running_var", norm.running_var())];
    tensors.extend(norm.weight_and_bias().into_iter().flat_map(|(weight, bias)| weights(weight, Some(bias))));
    Some((LayerKind::BatchNorm { features, eps, momentum, remove_mean, affine }, tensors))
}

fn without_variables(layer: &dyn Any) -> Option<LayerKind> {
    if let Some(activation) = layer.downcast_ref::<Activation>() {
        return Some(LayerKind::Activation(*activation));
    }
    if let Some(dropout) = layer.downcast_ref::<Dropout>() {
        return Some(LayerKind::Dropout { probability: probability(dropout)? });
    }
    if let Some(pool) = layer.downcast_ref::<MaxPool2d>() {
        return Some(LayerKind::MaxPool2d { size: pool.size });
    }
    if layer.is::<Flatten>() {
        return Some(LayerKind::Flatten);
    }
    layer.is::<Identity>().then_some(LayerKind::Identity)
}

/// candle gives the probability away in the text for programmers only.
fn probability(dropout: &Dropout) -> Option<f32> {
    format!("{dropout:?}").strip_prefix("Dropout { drop_p: ")?.strip_suffix(" }")?.parse().ok()
}

/// candle gives this away in the text for programmers only.
fn removes_mean(norm: &BatchNorm) -> Option<bool> {
    let text = format!("{norm:?}");
    let (_, rest) = text.split_once(", remove_mean: ")?;
    rest.split(',').next()?.parse().ok()
}

fn weights<'a>(weight: &'a Tensor, bias: Option<&'a Tensor>) -> Tensors<'a> {
    std::iter::once(("weight", weight)).chain(bias.map(|bias| ("bias", bias))).collect()
}

/// The first dimensions, with 0 for those that a tensor does not have, which no layer takes.
fn sizes<const N: usize>(tensor: &Tensor) -> [usize; N] {
    std::array::from_fn(|place| tensor.dims().get(place).copied().unwrap_or(0))
}
