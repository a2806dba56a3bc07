//! Tests of operations on each element: unary, binary, comparisons that choose, and candle-nn's activations.

use super::views::check_views;
use candle_core::{Result, Tensor};
use candle_nn::ops;

type Unary = fn(&Tensor) -> Result<Tensor>;
type Binary = fn(&Tensor, &Tensor) -> Result<Tensor>;

const SIGNED: (f64, f64) = (-2., 2.);
const POSITIVE: (f64, f64) = (0.5, 2.);

#[test]
fn unary_operations() {
    let cases: &[(&str, (f64, f64), Unary)] = &[
        ("abs", SIGNED, Tensor::abs),
        ("affine", SIGNED, |x| x.affine(-1.5, 0.25)),
        ("clamp", SIGNED, |x| x.clamp(-1., 1.)),
        ("cos", SIGNED, Tensor::cos),
        ("elu", SIGNED, |x| x.elu(0.7)),
        ("erf", SIGNED, Tensor::erf),
        ("exp", SIGNED, Tensor::exp),
        ("gelu", (-4., 4.), Tensor::gelu),
        ("gelu_erf", (-4., 4.), Tensor::gelu_erf),
        ("log", POSITIVE, Tensor::log),
        ("neg", SIGNED, Tensor::neg),
        ("powf 2", SIGNED, |x| x.powf(2.)),
        ("powf 3", SIGNED, |x| x.powf(3.)),
        ("powf -1.5", POSITIVE, |x| x.powf(-1.5)),
        ("recip", POSITIVE, Tensor::recip),
        ("relu", SIGNED, Tensor::relu),
        ("rounded", SIGNED, |x| x.mul(&x.floor()?.add(&x.round()?)?.add(&x.sign()?)?)),
        ("silu", (-4., 4.), Tensor::silu),
        ("sin", SIGNED, Tensor::sin),
        ("sqr", SIGNED, Tensor::sqr),
        ("sqrt", POSITIVE, Tensor::sqrt),
        ("tanh", SIGNED, Tensor::tanh),
        ("hard_sigmoid", (-5., 5.), ops::hard_sigmoid),
        ("leaky_relu", SIGNED, |x| ops::leaky_relu(x, 0.1)),
        ("mish", SIGNED, ops::mish),
        ("sigmoid", (-4., 4.), ops::sigmoid),
    ];
    for (name, range, function) in cases {
        check_views(name, &[&[3, 4]], *range, |arguments| function(&arguments[0]));
        check_views(name, &[&[2, 1, 5]], *range, |arguments| function(&arguments[0]));
    }
}

#[test]
fn binary_operations() {
    let cases: &[(&str, Binary)] = &[
        ("add", Tensor::add),
        ("sub", Tensor::sub),
        ("mul", Tensor::mul),
        ("div", Tensor::div),
        ("maximum", |x, y| x.maximum(y)),
        ("minimum", |x, y| x.minimum(y)),
        ("pow", Tensor::pow),
        ("where_cond", |x, y| x.gt(&(y * 1.2)?)?.where_cond(x, y)),
        ("where_cond with a constant", |x, y| x.mul(&x.gt(y)?.where_cond(y, &y.zeros_like()?)?)),
    ];
    for (name, function) in cases {
        check_views(name, &[&[3, 4], &[3, 4]], POSITIVE, |arguments| function(&arguments[0], &arguments[1]));
    }
}

#[test]
fn broadcast_operations() {
    let cases: &[(&str, Binary)] = &[
        ("broadcast_add", |x, y| x.broadcast_add(y)),
        ("broadcast_sub", |x, y| x.broadcast_sub(y)),
        ("broadcast_mul", |x, y| x.broadcast_mul(y)),
        ("broadcast_div", |x, y| x.broadcast_div(y)),
        ("broadcast_pow", |x, y| x.broadcast_pow(y)),
        ("broadcast_maximum", |x, y| x.broadcast_maximum(y)),
    ];
    let shapes: &[[&[usize]; 2]] = &[[&[2, 3, 4], &[4]], [&[2, 3, 4], &[3, 1]], [&[3, 1], &[2, 3, 4]]];
    for (name, function) in cases {
        for shapes in shapes {
            check_views(name, shapes, POSITIVE, |arguments| function(&arguments[0], &arguments[1]));
        }
    }
}

#[test]
fn an_argument_that_is_used_often_sums_its_gradients() {
    check_views("x³ + x sin x", &[&[3, 4]], SIGNED, |arguments| {
        let x = &arguments[0];
        x.mul(x)?.mul(x)?.add(&x.mul(&x.sin()?)?)?.sub(&x.t()?.contiguous()?.t()?)
    });
}
