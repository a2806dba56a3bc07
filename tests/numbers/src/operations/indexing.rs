//! What takes elements by indices, and puts them there.

use super::{Operation, operations};
use candle_nn::{Embedding, Module as _, encoding};

pub(super) fn all() -> Vec<Operation> {
    operations! {
        "Tensor::embedding" => |x, n| x[0].embedding(&x[1]);
        "Tensor::index_select" => |x, n| x[0].index_select(&x[1], n.size(0));
        "Tensor::gather" => |x, n| x[0].gather(&x[1], n.size(0));
        "Tensor::index_add" => |x, n| x[0].index_add(&x[1], &x[2], n.size(0));
        "Tensor::scatter" => |x, n| x[0].scatter(&x[1], &x[2], n.size(0));
        "Tensor::scatter_add" => |x, n| x[0].scatter_add(&x[1], &x[2], n.size(0));
        "candle_nn::embedding::Embedding::forward" => |x, n| Embedding::new(x[0].clone(), n.size(0)).forward(&x[1]);
        "candle_nn::encoding::one_hot" => |x, n| encoding::one_hot(x[0].clone(), n.size(0), 1f32, 0f32);
    }
}
