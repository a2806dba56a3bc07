//! Models from their architecture: candle's functions make the layers, with the variables that there are, or with new ones.

use super::{Architecture, Convolution, LayerDescription, LayerKind, Variables};
use crate::sequential::{Sequential, flatten, max_pool2d, seq};
use candle_core::{DType, Device, Error, Result, Shape, Tensor, bail};
use candle_nn::ops::Identity;
use candle_nn::var_builder::SimpleBackend;
use candle_nn::{
    BatchNormConfig, Conv1dConfig, Conv2dConfig, ConvTranspose1dConfig, ConvTranspose2dConfig, Dropout, Init,
    LayerNormConfig, VarBuilder, VarMap, batch_norm, conv_transpose1d, conv_transpose1d_no_bias, conv_transpose2d,
    conv_transpose2d_no_bias, conv1d, conv1d_no_bias, conv2d, conv2d_no_bias, embedding, layer_norm, linear_b, prelu,
    rms_norm,
};
use std::collections::BTreeMap;

impl Architecture {
    pub(super) fn with_new_variables(&self, device: &Device) -> Result<Sequential> {
        if device.is_cpu() {
            check_memory(&self.variables().map_err(Error::msg)?)?;
        }
        self.with_variables(&VarMap::new(), device)
    }

    /// The model with these variables, and new ones where the map has none of the name.
    pub(crate) fn with_variables(&self, vars: &VarMap, device: &Device) -> Result<Sequential> {
        let mut model = sequence(&self.layers, vars, device)?.with_vars(vars)?;
        model.leave_out(&self.frozen);
        Ok(match &self.input {
            Some(row) => model.input(row),
            None => model,
        })
    }
}

/// An allocation that is too large ends the process; a reservation fails.
fn check_memory(variables: &Variables) -> Result<()> {
    let bytes = |(dtype, shape): &(DType, Vec<usize>)| {
        shape.iter().try_fold(dtype.size_in_bytes(), |bytes, size| bytes.checked_mul(*size))
    };
    let all = variables.values().try_fold(0_usize, |sum, variable| sum.checked_add(bytes(variable)?));
    if all.is_none_or(|all| Vec::<u8>::new().try_reserve_exact(all).is_err()) {
        let size = all.map_or("more bytes than there are addresses".to_owned(), |all| format!("{} MiB", all >> 20));
        bail!("the model's variables take {size}, which this machine does not have; describe a smaller model")
    }
    Ok(())
}

fn sequence(layers: &[LayerDescription], vars: &VarMap, device: &Device) -> Result<Sequential> {
    layers.iter().try_fold(seq(), |model, layer| {
        let named = |error: Error| Error::msg(format!("layer {} of the model cannot be made: {error}", layer.name));
        layer.add_to(model, vars, device).map_err(named)
    })
}

impl LayerDescription {
    fn add_to(&self, model: Sequential, vars: &VarMap, device: &Device) -> Result<Sequential> {
        let name = &self.name;
        let vb = || self.variables(vars, device);
        Ok(match &self.layer {
            LayerKind::Linear { inputs, outputs, bias } => {
                model.add_as(name, linear_b(*inputs, *outputs, *bias, vb()?)?)
            }
            LayerKind::Conv1d(conv) => {
                let make = if conv.bias { conv1d } else { conv1d_no_bias };
                model.add_as(name, make(conv.inputs, conv.outputs, conv.kernel, conv.in_1d(), vb()?)?)
            }
            LayerKind::Conv2d(conv) => {
                let make = if conv.bias { conv2d } else { conv2d_no_bias };
                model.add_as(name, make(conv.inputs, conv.outputs, conv.kernel, conv.in_2d(), vb()?)?)
            }
            LayerKind::ConvTranspose1d(conv) => {
                let make = if conv.bias { conv_transpose1d } else { conv_transpose1d_no_bias };
                model.add_as(name, make(conv.inputs, conv.outputs, conv.kernel, conv.transposed_1d(), vb()?)?)
            }
            LayerKind::ConvTranspose2d(conv) => {
                let make = if conv.bias { conv_transpose2d } else { conv_transpose2d_no_bias };
                model.add_as(name, make(conv.inputs, conv.outputs, conv.kernel, conv.transposed_2d(), vb()?)?)
            }
            LayerKind::Embedding { rows, width } => model.add_as(name, embedding(*rows, *width, vb()?)?),
            LayerKind::LayerNorm { size, eps, remove_mean, bias } => {
                let config = LayerNormConfig { eps: *eps, remove_mean: *remove_mean, affine: *bias };
                model.add_as(name, layer_norm(*size, config, vb()?)?)
            }
            LayerKind::RmsNorm { size, eps } => model.add_as(name, rms_norm(*size, *eps, vb()?)?),
            LayerKind::BatchNorm { features, eps, momentum, remove_mean, affine } => {
                let (eps, momentum, remove_mean, affine) = (*eps, *momentum, *remove_mean, *affine);
                let config = BatchNormConfig { eps, remove_mean, affine, momentum };
                model.add_as(name, batch_norm(*features, config, vb()?)?)
            }
            LayerKind::Prelu { channels } => model.add_as(name, prelu(*channels, vb()?)?),
            LayerKind::Activation(activation) => model.add_as(name, *activation),
            LayerKind::Dropout { probability } => model.add_as(name, Dropout::new(*probability)),
            LayerKind::Flatten => model.add_as(name, flatten()),
            LayerKind::MaxPool2d { size } => model.add_as(name, max_pool2d(*size)),
            LayerKind::Identity => model.add_as(name, Identity),
            LayerKind::Sequential(layers) => model.add_as(name, sequence(layers, vars, device)?),
        })
    }

    /// Gives candle's functions the variables of this layer, under the names that they ask for.
    fn variables(&self, vars: &VarMap, device: &Device) -> Result<VarBuilder<'static>> {
        let typed = |(role, variable): (&String, &super::Variable)| {
            let dtype = variable.dtype.parse::<DType>().map_err(Error::wrap)?;
            Ok((role.clone(), (variable.name.clone(), dtype)))
        };
        let names = self.variables.iter().map(typed).collect::<Result<_>>()?;
        let of_layer = OfLayer { vars: vars.clone(), names };
        Ok(VarBuilder::from_backend(Box::new(of_layer), DType::F32, device.clone()))
    }
}

impl Convolution {
    fn in_1d(&self) -> Conv1dConfig {
        let Convolution { padding, stride, dilation, groups, .. } = *self;
        Conv1dConfig { padding, stride, dilation, groups, cudnn_fwd_algo: self.algorithm() }
    }

    fn in_2d(&self) -> Conv2dConfig {
        let Convolution { padding, stride, dilation, groups, .. } = *self;
        Conv2dConfig { padding, stride, dilation, groups, cudnn_fwd_algo: self.algorithm() }
    }

    fn transposed_1d(&self) -> ConvTranspose1dConfig {
        let Convolution { padding, output_padding, stride, dilation, groups, .. } = *self;
        ConvTranspose1dConfig { padding, output_padding, stride, dilation, groups }
    }

    fn transposed_2d(&self) -> ConvTranspose2dConfig {
        let Convolution { padding, output_padding, stride, dilation, .. } = *self;
        ConvTranspose2dConfig { padding, output_padding, stride, dilation }
    }
}

/// The variables of one layer: the name and type in the map for each name that candle's function asks for.
struct OfLayer {
    vars: VarMap,
    names: BTreeMap<String, (String, DType)>,
}

impl SimpleBackend for OfLayer {
    fn get(&self, shape: Shape, role: &str, init: Init, _: DType, device: &Device) -> Result<Tensor> {
        let Some((name, dtype)) = self.names.get(role) else { bail!("the description has no variable for `{role}`") };
        self.vars.get(shape, name, init, *dtype, device)
    }

    fn get_unchecked(&self, role: &str, _: DType, _: &Device) -> Result<Tensor> {
        bail!("the variable for `{role}` was asked for without its shape")
    }

    fn contains_tensor(&self, role: &str) -> bool {
        self.names.contains_key(role)
    }
}
