//! The lines of a `Sequential` in a summary: shapes from a forward pass in evaluation, parameters from the layers' types, and for
//! other types from the gradients of the layer's output.

use super::{Layer, Part, Sequential};
use crate::model::{LayerSummary, Model, Summary, float_type, is_of_layer, named, row_shape};
use candle_core::{DType, Device, Result, Tensor, TensorId, Var};
use std::collections::HashSet;

/// The number of rows of the batch that is only there for its shape.
const ROWS: usize = 1;

pub(super) fn of(model: &Sequential, xs: Option<&Tensor>) -> Result<Summary> {
    let xs = match xs {
        Some(xs) => Some(xs.to_device(&model.device().unwrap_or_else(|| xs.device().clone()))?),
        None => stand_in(model)?,
    };
    let mut lines = Lines { vars: named(model.vars()), counted: HashSet::new(), layers: Vec::new() };
    lines.add(model, "", xs)?;
    let rest: usize = lines.uncounted().map(|(_, var)| var.elem_count()).sum();
    if rest > 0 {
        let kind = "other variables".to_owned();
        // The model's output is that of the last layer that runs.
        let output = lines.layers.last().and_then(|layer| layer.output.clone());
        lines.layers.push(LayerSummary { name: String::new(), kind, output, parameters: rest });
    }
    Ok(Summary::of_layers(lines.layers, model.vars(), &model.trainable()))
}

/// A batch of zeros with the shape of the input, if it is known.
fn stand_in(model: &Sequential) -> Result<Option<Tensor>> {
    let first = first_of(model);
    let Some(row) = model.input.clone().or_else(|| first.and_then(|layer| layer.kind.input.clone())) else {
        return Ok(None);
    };
    let takes_integers = first.is_some_and(|layer| layer.kind.takes_integers);
    let dtype = if takes_integers { DType::U32 } else { float_type(model.vars()) };
    let dims: Vec<usize> = std::iter::once(ROWS).chain(row).collect();
    Tensor::zeros(dims, dtype, &model.device().unwrap_or(Device::Cpu)).map(Some)
}

fn first_of(model: &Sequential) -> Option<&Layer> {
    match model.layers.first() {
        Some(Layer { layer: Part::Sequential(inner), .. }) => first_of(inner),
        first => first,
    }
}

struct Lines {
    vars: Vec<(String, Var)>,
    /// The variables that are in a line.
    counted: HashSet<TensorId>,
    layers: Vec<LayerSummary>,
}

impl Lines {
    fn uncounted(&self) -> impl Iterator<Item = &(String, Var)> {
        self.vars.iter().filter(|(_, var)| !self.counted.contains(&var.id()))
    }

    /// Adds the layers of a model, and returns its output.
    fn add(&mut self, model: &Sequential, prefix: &str, mut xs: Option<Tensor>) -> Result<Option<Tensor>> {
        for layer in &model.layers {
            let name = format!("{prefix}{}", layer.name);
            if let Part::Sequential(inner) = &layer.layer {
                xs = self.add(inner, &format!("{name}."), xs)?;
                continue;
            }
            let output = xs.map(|xs| layer.forward(&xs.detach(), false)).transpose()?;
            let parameters = self.count(layer, output.as_ref())?;
            let shape = output.as_ref().map(row_shape);
            self.layers.push(LayerSummary { name, kind: layer.kind.to_string(), output: shape, parameters });
            xs = output.map(|output| output.detach());
        }
        Ok(xs)
    }

    /// The number of elements of the layer's variables that no earlier layer has.
    fn count(&mut self, layer: &Layer, output: Option<&Tensor>) -> Result<usize> {
        let ids = match (&layer.kind.tensors, output) {
            (Some(tensors), _) => tensors.clone(),
            (None, Some(output)) => self.used_by(output)?,
            (None, None) => Vec::new(),
        };
        let new: Vec<(TensorId, usize)> = self
            .uncounted()
            .filter(|(_, var)| ids.contains(&var.id()))
            .map(|(_, var)| (var.id(), var.elem_count()))
            .collect();
        self.counted.extend(new.iter().map(|(id, _)| *id));
        Ok(new.iter().map(|(_, count)| count).sum())
    }

    /// The variables on which the output depends, and the statistics of the same layers.
    fn used_by(&self, output: &Tensor) -> Result<Vec<TensorId>> {
        if !output.dtype().is_float() {
            return Ok(Vec::new());
        }
        let gradients = output.sum_all()?.backward()?;
        let (used, others): (Vec<_>, Vec<_>) = self.vars.iter().partition(|(_, var)| gradients.get(var).is_some());
        let is_of_used = |name: &str| used.iter().any(|(weight, _)| is_of_layer(name, weight));
        let statistics = others.into_iter().filter(|(name, _)| is_of_used(name)).map(|(_, var)| var.id());
        Ok(used.iter().map(|(_, var)| var.id()).chain(statistics).collect())
    }
}
