//! Functions of rows: sums, extremes, norms, softmax, sorting, and products of matrices.

use super::{Operation, operations};
use candle_nn::{ops, sampling};

pub(super) fn all() -> Vec<Operation> {
    [sums(), extremes(), normalised(), sorted(), products()].into_iter().flatten().collect()
}

fn sums() -> Vec<Operation> {
    operations! {
        "Tensor::sum" => |x, n| x[0].sum(n.sizes(0));
        "Tensor::sum_keepdim" => |x, n| x[0].sum_keepdim(n.sizes(0));
        "Tensor::sum_all" => |x, n| x[0].sum_all();
        "Tensor::mean" => |x, n| x[0].mean(n.sizes(0));
        "Tensor::mean_keepdim" => |x, n| x[0].mean_keepdim(n.sizes(0));
        "Tensor::mean_all" => |x, n| x[0].mean_all();
        "Tensor::var" => |x, n| x[0].var(n.size(0));
        "Tensor::var_keepdim" => |x, n| x[0].var_keepdim(n.size(0));
        "Tensor::norm" => |x, n| x[0].norm();
        "Tensor::log_sum_exp" => |x, n| x[0].log_sum_exp(n.sizes(0));
        "Tensor::cumsum" => |x, n| x[0].cumsum(n.size(0));
    }
}

fn extremes() -> Vec<Operation> {
    operations! {
        "Tensor::max" => |x, n| x[0].max(n.size(0));
        "Tensor::max_keepdim" => |x, n| x[0].max_keepdim(n.size(0));
        "Tensor::max_all" => |x, n| x[0].max_all();
        "Tensor::min" => |x, n| x[0].min(n.size(0));
        "Tensor::min_keepdim" => |x, n| x[0].min_keepdim(n.size(0));
        "Tensor::min_all" => |x, n| x[0].min_all();
        "Tensor::argmax" => |x, n| x[0].argmax(n.size(0));
        "Tensor::argmax_keepdim" => |x, n| x[0].argmax_keepdim(n.size(0));
        "Tensor::argmin" => |x, n| x[0].argmin(n.size(0));
        "Tensor::argmin_keepdim" => |x, n| x[0].argmin_keepdim(n.size(0));
        "candle_nn::sampling::gumbel_softmax" => |x, n| sampling::gumbel_softmax(&x[0], 0.0, n.size(0));
    }
}

fn normalised() -> Vec<Operation> {
    operations! {
        "candle_nn::ops::softmax" => |x, n| ops::softmax(&x[0], n.size(0));
        "candle_nn::ops::log_softmax" => |x, n| ops::log_softmax(&x[0], n.size(0));
        "candle_nn::ops::softmax_last_dim" => |x, n| ops::softmax_last_dim(&x[0]);
        "candle_nn::ops::rms_norm" => |x, n| ops::rms_norm(&x[0], &x[1], n.float(0) as f32);
        "candle_nn::ops::rms_norm_slow" => |x, n| ops::rms_norm_slow(&x[0], &x[1], n.float(0) as f32);
        "candle_nn::ops::layer_norm" => |x, n| ops::layer_norm(&x[0], &x[1], &x[2], n.float(0) as f32);
        "candle_nn::ops::layer_norm_slow" => |x, n| ops::layer_norm_slow(&x[0], &x[1], &x[2], n.float(0) as f32);
    }
}

fn sorted() -> Vec<Operation> {
    operations! {
        "Tensor::arg_sort_last_dim" => |x, n| x[0].arg_sort_last_dim(n.flag(0));
        "Tensor::sort_last_dim" => |x, n| x[0].sort_last_dim(n.flag(0));
    }
}

fn products() -> Vec<Operation> {
    operations! {
        "Tensor::dot" => |x| x[0].dot(&x[1]);
        "Tensor::mv" => |x| x[0].mv(&x[1]);
        "Tensor::matmul" => |x| x[0].matmul(&x[1]);
        "Tensor::broadcast_matmul" => |x| x[0].broadcast_matmul(&x[1]);
    }
}
