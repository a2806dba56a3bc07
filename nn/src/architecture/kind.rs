//! The kinds of layers that an architecture can have, each with all that its function in candle takes. Which numbers make a layer, and
//! which shapes its variables have, is decided here without making a tensor.

use super::LayerDescription;
use candle_core::conv::CudnnFwdAlgo;
use candle_nn::Activation;
use serde::{Deserialize, Serialize};

/// The greatest padding, stride, dilation or kernel, so that no sum or product of them is too large for candle.
const MOST: usize = i32::MAX as usize;

const CUDNN: [CudnnFwdAlgo; 9] = [
    CudnnFwdAlgo::ImplicitGemm,
    CudnnFwdAlgo::ImplicitPrecompGemm,
    CudnnFwdAlgo::Gemm,
    CudnnFwdAlgo::Direct,
    CudnnFwdAlgo::Fft,
    CudnnFwdAlgo::FftTiling,
    CudnnFwdAlgo::Winograd,
    CudnnFwdAlgo::WinogradNonFused,
    CudnnFwdAlgo::Count,
];

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LayerKind {
    Linear { inputs: usize, outputs: usize, bias: bool },
    Conv1d(Convolution),
    Conv2d(Convolution),
    ConvTranspose1d(Convolution),
    ConvTranspose2d(Convolution),
    Embedding { rows: usize, width: usize },
    LayerNorm { size: usize, eps: f64, remove_mean: bool, bias: bool },
    RmsNorm { size: usize, eps: f64 },
    BatchNorm { features: usize, eps: f64, momentum: f64, remove_mean: bool, affine: bool },
    Prelu { channels: Option<usize> },
    Activation(Activation),
    Dropout { probability: f32 },
    Flatten,
    MaxPool2d { size: usize },
    Identity,
    Sequential(Vec<LayerDescription>),
}

/// The numbers of a convolution, transposed or not.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Convolution {
    /// The number of channels of the input.
    pub(crate) inputs: usize,
    pub(crate) outputs: usize,
    /// The length of the kernel's side.
    pub(crate) kernel: usize,
    pub(crate) bias: bool,
    pub(crate) padding: usize,
    /// 0 unless the convolution is transposed.
    #[serde(default)]
    pub(crate) output_padding: usize,
    pub(crate) stride: usize,
    pub(crate) dilation: usize,
    pub(crate) groups: usize,
    /// The name of cuDNN's algorithm, if one was chosen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cudnn: Option<String>,
}

impl LayerKind {
    /// Fails with a predicate, such as `has a size of 0`, if no layer has these numbers.
    pub(crate) fn check(&self) -> Result<(), String> {
        let sizes = match self {
            LayerKind::Conv1d(conv) | LayerKind::Conv2d(conv) | LayerKind::ConvTranspose1d(conv) => {
                return conv.check();
            }
            LayerKind::ConvTranspose2d(Convolution { groups: 2.., .. }) => {
                return Err("has groups, which candle's `ConvTranspose2d` does not have".to_owned());
            }
            LayerKind::ConvTranspose2d(conv) => return conv.check(),
            LayerKind::Dropout { probability } if !(0.0..1.0).contains(probability) => {
                return Err(format!("drops with probability {probability}, which is not below 1"));
            }
            LayerKind::BatchNorm { eps, .. } if *eps < 0.0 => return Err(format!("has a negative epsilon, {eps}")),
            LayerKind::MaxPool2d { size } if *size > MOST => return Err(format!("has a square of side {size}")),
            LayerKind::Linear { inputs, outputs, .. } => vec![*inputs, *outputs],
            LayerKind::Embedding { rows, width } => vec![*rows, *width],
            LayerKind::LayerNorm { size, .. } | LayerKind::RmsNorm { size, .. } | LayerKind::MaxPool2d { size } => {
                vec![*size]
            }
            LayerKind::BatchNorm { features, .. } => vec![*features],
            LayerKind::Prelu { channels } => vec![channels.unwrap_or(1)],
            LayerKind::Activation(_)
            | LayerKind::Dropout { .. }
            | LayerKind::Flatten
            | LayerKind::Identity
            | LayerKind::Sequential(_) => Vec::new(),
        };
        match sizes.contains(&0) {
            true => Err("has a size of 0".to_owned()),
            false => Ok(()),
        }
    }

    /// The shapes of the layer's variables by what they are for it. Only for numbers that were checked.
    pub(crate) fn shapes(&self) -> Vec<(&'static str, Vec<usize>)> {
        let weight = |shape: &[usize]| ("weight", shape.to_vec());
        let with_bias = |shape: &[usize], bias: bool, size: usize| {
            std::iter::once(weight(shape)).chain(bias.then(|| ("bias", vec![size]))).collect()
        };
        match self {
            LayerKind::Linear { inputs, outputs, bias } => with_bias(&[*outputs, *inputs], *bias, *outputs),
            LayerKind::Conv1d(conv) => {
                with_bias(&[conv.outputs, conv.inputs / conv.groups, conv.kernel], conv.bias, conv.outputs)
            }
            LayerKind::Conv2d(conv) => {
                let shape = [conv.outputs, conv.inputs / conv.groups, conv.kernel, conv.kernel];
                with_bias(&shape, conv.bias, conv.outputs)
            }
            LayerKind::ConvTranspose1d(conv) => {
                with_bias(&[conv.inputs, conv.outputs / conv.groups, conv.kernel], conv.bias, conv.outputs)
            }
            LayerKind::ConvTranspose2d(conv) => {
                with_bias(&[conv.inputs, conv.outputs, conv.kernel, conv.kernel], conv.bias, conv.outputs)
            }
            LayerKind::Embedding { rows, width } => vec![weight(&[*rows, *width])],
            LayerKind::LayerNorm { size, bias, .. } => with_bias(&[*size], *bias, *size),
            LayerKind::RmsNorm { size, .. } => vec![weight(&[*size])],
            LayerKind::BatchNorm { features, affine, .. } => {
                let names: &[&'static str] = match affine {
                    true => &["running_mean", "running_var", "weight", "bias"],
                    false => &["running_mean", "running_var"],
                };
                names.iter().map(|name| (*name, vec![*features])).collect()
            }
            LayerKind::Prelu { channels } => vec![weight(&[channels.unwrap_or(1)])],
            LayerKind::Activation(_)
            | LayerKind::Dropout { .. }
            | LayerKind::Flatten
            | LayerKind::MaxPool2d { .. }
            | LayerKind::Identity
            | LayerKind::Sequential(_) => Vec::new(),
        }
    }
}

impl Convolution {
    fn check(&self) -> Result<(), String> {
        let Convolution { inputs, outputs, kernel, padding, output_padding, stride, dilation, groups, .. } = self;
        if [inputs, outputs, kernel, stride, dilation, groups].contains(&&0) {
            return Err("has a size of 0".to_owned());
        }
        if let Some(large) =
            [kernel, padding, output_padding, stride, dilation].into_iter().find(|number| **number > MOST)
        {
            return Err(format!("has {large} as its kernel, padding, stride or dilation, which is more than {MOST}"));
        }
        if inputs % groups != 0 || outputs % groups != 0 {
            return Err(format!("has {groups} groups, which do not divide its {inputs} and {outputs} channels"));
        }
        match &self.cudnn {
            Some(name) if self.algorithm().is_none() => {
                Err(format!("has the algorithm {name}, which cuDNN does not have"))
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn algorithm(&self) -> Option<CudnnFwdAlgo> {
        CUDNN.into_iter().find(|algorithm| self.cudnn.as_ref().is_some_and(|name| cudnn_name(*algorithm) == *name))
    }
}

pub(crate) fn cudnn_name(algorithm: CudnnFwdAlgo) -> String {
    format!("{algorithm:?}")
}
