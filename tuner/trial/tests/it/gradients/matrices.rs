//! Tests of matrix products and reductions.

use super::views::check_views;
use candle_core::{D, Result, Tensor};
use candle_nn::ops;

type Unary = fn(&Tensor) -> Result<Tensor>;

#[test]
fn matrix_products() {
    let range = (-1., 1.);
    let cases: &[(&str, [&[usize]; 2])] =
        &[("matrices", [&[3, 4], &[4, 2]]), ("one row", [&[1, 4], &[4, 3]]), ("batches", [&[2, 3, 4], &[2, 4, 2]])];
    for (name, shapes) in cases {
        check_views(name, shapes, range, |arguments| arguments[0].matmul(&arguments[1]));
    }
    check_views("batches of batches", &[&[2, 2, 3, 2], &[2, 2, 4, 2]], range, |arguments| {
        arguments[0].contiguous()?.matmul(&arguments[1].contiguous()?.t()?)
    });
    check_views("batches with one matrix", &[&[2, 3, 4], &[4, 2]], range, |arguments| {
        arguments[0].broadcast_matmul(&arguments[1])
    });
    check_views("a transposed weight", &[&[3, 4], &[2, 4]], range, |arguments| arguments[0].matmul(&arguments[1].t()?));
    check_views("a transposed input", &[&[4, 3], &[4, 2]], range, |arguments| arguments[0].t()?.matmul(&arguments[1]));
    check_views("a product with itself", &[&[3, 3]], range, |arguments| {
        arguments[0].matmul(&arguments[0].t()?)?.matmul(&arguments[0])
    });
}

#[test]
fn reductions() {
    let cases: &[(&str, Unary)] = &[
        ("sum of a middle dimension", |x| x.sum(1)),
        ("sum of two dimensions", |x| x.sum((0, 2))),
        ("sum that keeps dimensions", |x| x.sqr()?.sum_keepdim((0, 1))),
        ("sum_all", |x| x.sqr()?.sum_all()),
        ("mean", |x| x.sqr()?.mean(D::Minus1)),
        ("mean_all", Tensor::mean_all),
        ("variance", |x| x.var(1)),
        ("max", |x| x.max(1)),
        ("max_keepdim", |x| x.max_keepdim(D::Minus1)),
        ("max_all", Tensor::max_all),
        ("min", |x| x.min(0)),
        ("log_sum_exp", |x| x.log_sum_exp(D::Minus1)),
        ("softmax", |x| ops::softmax(x, 1)),
        ("log_softmax", |x| ops::log_softmax(x, D::Minus1)),
        ("cumsum of the last dimension", |x| x.cumsum(2)),
        ("cumsum of the first dimension", |x| x.cumsum(0)),
        ("norm", Tensor::norm),
    ];
    for (name, function) in cases {
        // A broadcast view has ties, at which minimum and maximum have no derivative. It repeats only the first dimension.
        check_views(name, &[&[1, 3, 4]], (-1., 1.), |arguments| function(&arguments[0]));
    }
    for (name, function) in &cases[..7] {
        check_views(name, &[&[2, 3, 4]], (-1., 1.), |arguments| function(&arguments[0]));
    }
}
