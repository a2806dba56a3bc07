//! Losses.

use super::{Operation, operations};
use candle_nn::loss;

pub(super) fn all() -> Vec<Operation> {
    operations! {
        "candle_nn::loss::nll" => |x, n| loss::nll(&x[0], &x[1]);
        "candle_nn::loss::cross_entropy" => |x, n| loss::cross_entropy(&x[0], &x[1]);
        "candle_nn::loss::mse" => |x, n| loss::mse(&x[0], &x[1]);
        "candle_nn::loss::binary_cross_entropy_with_logit" => |x, n| {
            loss::binary_cross_entropy_with_logit(&x[0], &x[1])
        };
        "candle_nn::loss::huber" => |x, n| loss::huber(&x[0], &x[1], n.float(0));
    }
}
