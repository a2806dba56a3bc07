//! Convolutions, pools and resizing.

use super::{Operation, operations};
use candle_core::{Result, Tensor};
use candle_nn::{
    BatchNorm, Conv1d, Conv1dConfig, Conv2d, Conv2dConfig, ConvTranspose1d, ConvTranspose1dConfig, ConvTranspose2d,
    ConvTranspose2dConfig, Module as _, ModuleT as _, ops,
};

pub(super) fn all() -> Vec<Operation> {
    [convolutions(), layers(), pools()].into_iter().flatten().collect()
}

fn convolutions() -> Vec<Operation> {
    operations! {
        "Tensor::conv1d" => |x, n| x[0].conv1d(&x[1], n.size(0), n.size(1), n.size(2), n.size(3));
        "Tensor::conv1d_with_algo" => |x, n| {
            x[0].conv1d_with_algo(&x[1], n.size(0), n.size(1), n.size(2), n.size(3), None)
        };
        "Tensor::conv2d" => |x, n| x[0].conv2d(&x[1], n.size(0), n.size(1), n.size(2), n.size(3));
        "Tensor::conv2d_with_algo" => |x, n| {
            x[0].conv2d_with_algo(&x[1], n.size(0), n.size(1), n.size(2), n.size(3), None)
        };
        "Tensor::conv_transpose1d" => |x, n| {
            x[0].conv_transpose1d(&x[1], n.size(0), n.size(1), n.size(2), n.size(3), n.size(4))
        };
        "Tensor::conv_transpose2d" => |x, n| x[0].conv_transpose2d(&x[1], n.size(0), n.size(1), n.size(2), n.size(3));
    }
}

fn layers() -> Vec<Operation> {
    operations! {
        "candle_nn::conv::Conv1d::forward" => |x, n| conv1d(x, n.size(0), n.size(1)).forward(&x[0]);
        "candle_nn::conv::Conv2d::forward" => |x, n| conv2d(x, n.size(0), n.size(1)).forward(&x[0]);
        "candle_nn::conv::ConvTranspose1d::forward" => |x, n| conv_transpose1d(x, n.size(0), n.size(1)).forward(&x[0]);
        "candle_nn::conv::ConvTranspose2d::forward" => |x, n| conv_transpose2d(x, n.size(0), n.size(1)).forward(&x[0]);
        "candle_nn::conv::Conv2d::absorb_bn" => |x, n| absorbed(x, n.float(0));
    }
}

fn pools() -> Vec<Operation> {
    operations! {
        "Tensor::avg_pool2d" => |x, n| x[0].avg_pool2d((n.size(0), n.size(1)));
        "Tensor::avg_pool2d_with_stride" => |x, n| {
            x[0].avg_pool2d_with_stride((n.size(0), n.size(1)), (n.size(2), n.size(3)))
        };
        "Tensor::max_pool2d" => |x, n| x[0].max_pool2d((n.size(0), n.size(1)));
        "Tensor::max_pool2d_with_stride" => |x, n| {
            x[0].max_pool2d_with_stride((n.size(0), n.size(1)), (n.size(2), n.size(3)))
        };
        "Tensor::interpolate1d" => |x, n| x[0].interpolate1d(n.size(0));
        "Tensor::interpolate2d" => |x, n| x[0].interpolate2d(n.size(0), n.size(1));
        "Tensor::upsample_nearest1d" => |x, n| x[0].upsample_nearest1d(n.size(0));
        "Tensor::upsample_nearest2d" => |x, n| x[0].upsample_nearest2d(n.size(0), n.size(1));
        "Tensor::upsample_bilinear2d" => |x, n| x[0].upsample_bilinear2d(n.size(0), n.size(1), n.flag(2));
        "Tensor::upsample_bilinear2d_with_scale" => |x, n| {
            x[0].upsample_bilinear2d_with_scale(n.float(0), n.float(1), n.flag(2))
        };
        "candle_nn::ops::pixel_shuffle" => |x, n| ops::pixel_shuffle(&x[0], n.size(0));
        "candle_nn::ops::pixel_unshuffle" => |x, n| ops::pixel_unshuffle(&x[0], n.size(0));
        "candle_nn::ops::replication_pad2d" => |x, n| ops::replication_pad2d(&x[0], n.size(0));
    }
}

/// Layers of a kernel and a bias with this padding and stride.
fn conv1d(x: &[Tensor], padding: usize, stride: usize) -> Conv1d {
    Conv1d::new(x[1].clone(), Some(x[2].clone()), Conv1dConfig { padding, stride, ..Conv1dConfig::default() })
}

fn conv2d(x: &[Tensor], padding: usize, stride: usize) -> Conv2d {
    Conv2d::new(x[1].clone(), Some(x[2].clone()), Conv2dConfig { padding, stride, ..Conv2dConfig::default() })
}

fn conv_transpose1d(x: &[Tensor], padding: usize, stride: usize) -> ConvTranspose1d {
    let config = ConvTranspose1dConfig { padding, stride, ..ConvTranspose1dConfig::default() };
    ConvTranspose1d::new(x[1].clone(), Some(x[2].clone()), config)
}

fn conv_transpose2d(x: &[Tensor], padding: usize, stride: usize) -> ConvTranspose2d {
    let config = ConvTranspose2dConfig { padding, stride, ..ConvTranspose2dConfig::default() };
    ConvTranspose2d::new(x[1].clone(), Some(x[2].clone()), config)
}

/// A convolution that has absorbed a normalisation, and the one after the other, of which both are the same.
fn absorbed(x: &[Tensor], epsilon: f64) -> Result<Vec<Tensor>> {
    let [x, kernel, bias, mean, variance, weight, shift] = x else { candle_core::bail!("seven tensors") };
    let convolution = Conv2d::new(kernel.clone(), Some(bias.clone()), Conv2dConfig::default());
    let features = mean.elem_count();
    let norm = BatchNorm::new(features, mean.clone(), variance.clone(), weight.clone(), shift.clone(), epsilon)?;
    Ok(vec![convolution.absorb_bn(&norm)?.forward(x)?, norm.forward_t(&convolution.forward(x)?, false)?])
}
