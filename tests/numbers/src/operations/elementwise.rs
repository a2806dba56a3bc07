//! Functions of single elements.

use super::{Operation, operations};
use candle_core::op::CmpOp;
use candle_nn::{Activation, Module as _, PReLU, ops};

pub(super) fn all() -> Vec<Operation> {
    [unary(), with_numbers(), binary(), comparisons(), activations()].into_iter().flatten().collect()
}

fn unary() -> Vec<Operation> {
    operations! {
        "Tensor::recip" => |x| x[0].recip();
        "Tensor::neg" => |x| x[0].neg();
        "Tensor::exp" => |x| x[0].exp();
        "Tensor::log" => |x| x[0].log();
        "Tensor::sin" => |x| x[0].sin();
        "Tensor::cos" => |x| x[0].cos();
        "Tensor::tanh" => |x| x[0].tanh();
        "Tensor::abs" => |x| x[0].abs();
        "Tensor::sqr" => |x| x[0].sqr();
        "Tensor::sqrt" => |x| x[0].sqrt();
        "Tensor::gelu" => |x| x[0].gelu();
        "Tensor::gelu_erf" => |x| x[0].gelu_erf();
        "Tensor::erf" => |x| x[0].erf();
        "Tensor::relu" => |x| x[0].relu();
        "Tensor::silu" => |x| x[0].silu();
        "Tensor::ceil" => |x| x[0].ceil();
        "Tensor::floor" => |x| x[0].floor();
        "Tensor::round" => |x| x[0].round();
        "Tensor::sign" => |x| x[0].sign();
    }
}

fn with_numbers() -> Vec<Operation> {
    operations! {
        "Tensor::round_to" => |x, n| x[0].round_to(n.int(0) as i32);
        "Tensor::affine" => |x, n| x[0].affine(n.float(0), n.float(1));
        "Tensor::elu" => |x, n| x[0].elu(n.float(0));
        "Tensor::powf" => |x, n| x[0].powf(n.float(0));
        "Tensor::clamp" => |x, n| x[0].clamp(n.float(0), n.float(1));
        "Tensor::to_dtype" => |x, n| x[0].to_dtype(n.dtype(0));
        "Tensor::maximum (number)" => |x, n| x[0].maximum(n.float(0));
        "Tensor::minimum (number)" => |x, n| x[0].minimum(n.float(0));
        "Tensor + f64" => |x, n| &x[0] + n.float(0);
        "Tensor - f64" => |x, n| &x[0] - n.float(0);
        "Tensor * f64" => |x, n| &x[0] * n.float(0);
        "Tensor / f64" => |x, n| &x[0] / n.float(0);
        "f64 + Tensor" => |x, n| n.float(0) + &x[0];
        "f64 - Tensor" => |x, n| n.float(0) - &x[0];
        "f64 * Tensor" => |x, n| n.float(0) * &x[0];
        "f64 / Tensor" => |x, n| n.float(0) / &x[0];
        "Tensor::eq (number)" => |x, n| x[0].eq(n.float(0));
        "Tensor::ne (number)" => |x, n| x[0].ne(n.float(0));
        "Tensor::lt (number)" => |x, n| x[0].lt(n.float(0));
        "Tensor::le (number)" => |x, n| x[0].le(n.float(0));
        "Tensor::gt (number)" => |x, n| x[0].gt(n.float(0));
        "Tensor::ge (number)" => |x, n| x[0].ge(n.float(0));
    }
}

fn binary() -> Vec<Operation> {
    operations! {
        "Tensor::add" => |x| x[0].add(&x[1]);
        "Tensor::sub" => |x| x[0].sub(&x[1]);
        "Tensor::mul" => |x| x[0].mul(&x[1]);
        "Tensor::div" => |x| x[0].div(&x[1]);
        "Tensor + Tensor" => |x| &x[0] + &x[1];
        "Tensor - Tensor" => |x| &x[0] - &x[1];
        "Tensor * Tensor" => |x| &x[0] * &x[1];
        "Tensor / Tensor" => |x| &x[0] / &x[1];
        "Tensor::maximum" => |x| x[0].maximum(&x[1]);
        "Tensor::minimum" => |x| x[0].minimum(&x[1]);
        "Tensor::pow" => |x| x[0].pow(&x[1]);
        "Tensor::clamp (tensors)" => |x| x[0].clamp(&x[1], &x[2]);
        "Tensor::broadcast_add" => |x| x[0].broadcast_add(&x[1]);
        "Tensor::broadcast_sub" => |x| x[0].broadcast_sub(&x[1]);
        "Tensor::broadcast_mul" => |x| x[0].broadcast_mul(&x[1]);
        "Tensor::broadcast_div" => |x| x[0].broadcast_div(&x[1]);
        "Tensor::broadcast_maximum" => |x| x[0].broadcast_maximum(&x[1]);
        "Tensor::broadcast_minimum" => |x| x[0].broadcast_minimum(&x[1]);
        "Tensor::broadcast_pow" => |x| x[0].broadcast_pow(&x[1]);
        "Tensor::where_cond" => |x| x[0].where_cond(&x[1], &x[2]);
    }
}

fn comparisons() -> Vec<Operation> {
    operations! {
        "Tensor::cmp" => |x| x[0].cmp(&x[1], CmpOp::Lt);
        "Tensor::eq" => |x| x[0].eq(&x[1]);
        "Tensor::ne" => |x| x[0].ne(&x[1]);
        "Tensor::lt" => |x| x[0].lt(&x[1]);
        "Tensor::le" => |x| x[0].le(&x[1]);
        "Tensor::gt" => |x| x[0].gt(&x[1]);
        "Tensor::ge" => |x| x[0].ge(&x[1]);
        "Tensor::broadcast_eq" => |x| x[0].broadcast_eq(&x[1]);
        "Tensor::broadcast_ne" => |x| x[0].broadcast_ne(&x[1]);
        "Tensor::broadcast_lt" => |x| x[0].broadcast_lt(&x[1]);
        "Tensor::broadcast_le" => |x| x[0].broadcast_le(&x[1]);
        "Tensor::broadcast_gt" => |x| x[0].broadcast_gt(&x[1]);
        "Tensor::broadcast_ge" => |x| x[0].broadcast_ge(&x[1]);
    }
}

fn activations() -> Vec<Operation> {
    operations! {
        "candle_nn::ops::silu" => |x, n| ops::silu(&x[0]);
        "candle_nn::ops::swiglu" => |x, n| ops::swiglu(&x[0]);
        "candle_nn::ops::sigmoid" => |x, n| ops::sigmoid(&x[0]);
        "candle_nn::ops::hard_sigmoid" => |x, n| ops::hard_sigmoid(&x[0]);
        "candle_nn::ops::mish" => |x, n| ops::mish(&x[0]);
        "candle_nn::ops::softplus" => |x, n| ops::softplus(&x[0]);
        "candle_nn::ops::leaky_relu" => |x, n| ops::leaky_relu(&x[0], n.float(0));
        "candle_nn::ops::selu" => |x, n| ops::selu(&x[0], n.float(0) as f32, n.float(1) as f32);
        "candle_nn::activation::Activation::forward" => |x, n| activation(n.text(0)).forward(&x[0]);
        "candle_nn::activation::PReLU::forward" => |x, n| PReLU::new(x[1].clone(), n.flag(0)).forward(&x[0]);
    }
}

/// An activation by its name in Rust.
fn activation(name: &str) -> Activation {
    match name {
        "Gelu" => Activation::Gelu,
        "NewGelu" => Activation::NewGelu,
        "Relu" => Activation::Relu,
        "Relu2" => Activation::Relu2,
        "Relu6" => Activation::Relu6,
        "Silu" => Activation::Silu,
        "Sigmoid" => Activation::Sigmoid,
        "HardSigmoid" => Activation::HardSigmoid,
        "Swiglu" => Activation::Swiglu,
        "Swish" => Activation::Swish,
        "Mish" => Activation::Mish,
        "HardSwish" => Activation::HardSwish,
        "Elu" => Activation::Elu(1.0),
        "LeakyRelu" => Activation::LeakyRelu(0.01),
        "GeluPytorchTanh" => Activation::GeluPytorchTanh,
        _ => panic!("{name} is no activation"),
    }
}
