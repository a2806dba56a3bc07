//! Tests of the gradients of every kernel that has one: candle's `backward` on both devices.

use crate::compare::{Cases, Draws};
use crate::plugin;
use candle_core::{D, DType, Device, Result, Tensor, Var};
use candle_nn::{ops, rotary_emb};

/// The gradients of a weighted sum of `function`'s result, for variables of these shapes, one after the other.
fn gradients(device: &Device, shapes: &[&[usize]], function: impl Fn(&[Tensor]) -> Result<Tensor>) -> Result<Tensor> {
    let mut draws = Draws(shapes.len() as u64 + 11);
    let variable = |shape: &&[usize]| Var::from_tensor(&draws.tensor(*shape, DType::F32, device)?);
    let variables = shapes.iter().map(variable).collect::<Result<Vec<_>>>()?;
    let tensors: Vec<Tensor> = variables.iter().map(|variable| variable.as_tensor().clone()).collect();
    let result = function(&tensors)?;
    let weights = draws.tensor(result.shape(), DType::F32, device)?;
    let gradients = (result * weights)?.sum_all()?.backward()?;
    let of = |variable: &Var| match gradients.get(variable) {
        Some(gradient) => gradient.flatten_all(),
        None => variable.zeros_like()?.flatten_all(),
    };
    Tensor::cat(&variables.iter().map(of).collect::<Result<Vec<_>>>()?, 0)
}

type Function = fn(&[Tensor]) -> Result<Tensor>;

fn check(functions: &[(&str, &'static [&'static [usize]], Function)]) -> Result<()> {
    let mut cases = Cases::default();
    for (name, shapes, function) in functions {
        let (shapes, function) = (*shapes, *function);
        cases.add(*name, move |device| gradients(device, shapes, function));
    }
    cases.check(&plugin::open()?)
}

#[test]
fn gradients_of_elementwise_functions_are_candles() -> Result<()> {
    const ONE: &[&[usize]] = &[&[3, 4]];
    const TWO: &[&[usize]] = &[&[3, 1, 4], &[2, 1]];
    check(&[
        ("exp", ONE, |x| x[0].exp()),
        ("log", ONE, |x| (x[0].abs()? + 0.5)?.log()),
        ("sin", ONE, |x| x[0].sin()),
        ("cos", ONE, |x| x[0].cos()),
        ("tanh", ONE, |x| x[0].tanh()),
        ("abs", ONE, |x| x[0].abs()),
        ("neg", ONE, |x| x[0].neg()),
        ("recip", ONE, |x| (x[0].abs()? + 0.5)?.recip()),
        ("sqr", ONE, |x| x[0].sqr()),
        ("sqrt", ONE, |x| (x[0].abs()? + 0.5)?.sqrt()),
        ("gelu", ONE, |x| x[0].gelu()),
        ("gelu_erf", ONE, |x| x[0].gelu_erf()),
        ("erf", ONE, |x| x[0].erf()),
        ("relu", ONE, |x| x[0].relu()),
        ("silu", ONE, |x| x[0].silu()),
        ("elu", ONE, |x| x[0].elu(0.7)),
        ("powf", ONE, |x| (x[0].abs()? + 0.5)?.powf(2.5)),
        ("softplus", ONE, |x| ops::softplus(&(&x[0] * 30.0)?)),
        ("cumsum", ONE, |x| x[0].cumsum(0)),
        ("pow", TWO, |x| (x[0].abs()? + 0.5)?.broadcast_pow(&x[1])),
        ("pow of negative numbers", ONE, |x| x[0].pow(&(x[0].ones_like()? * 3.0)?.detach())),
        ("affine", ONE, |x| x[0].affine(2.0, 3.0)),
        ("sigmoid", ONE, |x| ops::sigmoid(&x[0])),
        ("add", TWO, |x| x[0].broadcast_add(&x[1])),
        ("sub", TWO, |x| x[0].broadcast_sub(&x[1])),
        ("mul", TWO, |x| x[0].broadcast_mul(&x[1])),
        ("div", TWO, |x| x[0].broadcast_div(&(x[1].abs()? + 0.5)?)),
        ("maximum", TWO, |x| x[0].broadcast_maximum(&x[1])),
        ("minimum", TWO, |x| x[0].broadcast_minimum(&x[1])),
        ("where", &[&[3, 4], &[3, 4]], |x| x[0].gt(&x[1])?.where_cond(&x[0], &x[1].sqr()?)),
        ("to_dtype", ONE, |x| x[0].to_dtype(DType::F64)?.sqr()?.to_dtype(DType::F32)),
    ])
}

#[test]
fn gradients_of_structure_are_candles() -> Result<()> {
    const ONE: &[&[usize]] = &[&[3, 4, 2]];
    check(&[
        ("sum", ONE, |x| x[0].sqr()?.sum((0, 2))),
        ("max", ONE, |x| x[0].max(1)),
        ("min", ONE, |x| x[0].min_keepdim(0)),
        ("softmax", ONE, |x| ops::softmax(&x[0], 1)),
        ("log_softmax", ONE, |x| ops::log_softmax(&x[0], D::Minus1)),
        ("views", ONE, |x| x[0].transpose(0, 2)?.narrow(1, 1, 2)?.flatten_all()?.sqr()),
        ("broadcast", ONE, |x| x[0].unsqueeze(0)?.broadcast_as((5, 3, 4, 2))?.sqr()),
        ("cat", &[&[3, 2], &[3, 5]], |x| Tensor::cat(&[&x[0], &x[1], &x[0]], 1)?.sqr()),
        ("slice_scatter", &[&[4, 3], &[2, 3]], |x| x[0].slice_scatter(&x[1], 0, 1)?.sqr()),
        ("matmul", &[&[2, 3, 4], &[2, 4, 5]], |x| x[0].matmul(&x[1])),
        ("broadcast_matmul", &[&[2, 3, 4], &[4, 5]], |x| x[0].broadcast_matmul(&x[1])),
        ("index_select", &[&[5, 3]], |x| x[0].index_select(&Tensor::new(&[1u32, 1, 4, 0], x[0].device())?, 0)?.sqr()),
        ("gather", &[&[4, 3]], |x| {
            x[0].gather(&Tensor::new(&[[2u32, 1], [0, 0], [1, 2], [1, 1]], x[0].device())?, 1)?.sqr()
        }),
        ("scatter_add", &[&[2, 3], &[2, 3]], |x| {
            x[0].scatter_add(&Tensor::new(&[[1u32, 1, 0], [1, 0, 0]], x[0].device())?, &x[1], 0)?.sqr()
        }),
        ("index_add", &[&[4, 3], &[2, 3]], |x| {
            x[0].index_add(&Tensor::new(&[2u32, 1], x[0].device())?, &x[1], 0)?.sqr()
        }),
    ])
}

#[test]
fn gradients_of_fused_functions_are_candles() -> Result<()> {
    const NORM: &[&[usize]] = &[&[3, 4, 6], &[6], &[6]];
    const ROTARY: &[&[usize]] = &[&[2, 3, 3, 4], &[3, 2], &[3, 2]];
    check(&[
        ("softmax_last_dim", &[&[3, 4]], |x| ops::softmax_last_dim(&x[0])),
        ("rms_norm", NORM, |x| ops::rms_norm(&x[0], &x[1], 1e-3)),
        ("layer_norm", NORM, |x| ops::layer_norm(&x[0], &x[1], &x[2], 1e-3)),
        ("rope", ROTARY, |x| rotary_emb::rope(&x[0], &x[1], &x[2])),
        ("rope_i", ROTARY, |x| rotary_emb::rope_i(&x[0], &x[1], &x[2])),
        ("rope_thd", ROTARY, |x| rotary_emb::rope_thd(&x[0], &x[1], &x[2])),
    ])
}

#[test]
fn gradients_over_space_are_candles() -> Result<()> {
    check(&[
        ("conv1d", &[&[1, 4, 9], &[6, 2, 3]], |x| x[0].conv1d(&x[1], 1, 2, 1, 2)),
        ("conv1d, dilated", &[&[2, 3, 9], &[4, 3, 2]], |x| x[0].conv1d(&x[1], 0, 1, 2, 1)),
        ("conv2d", &[&[2, 3, 8, 7], &[4, 3, 3, 3]], |x| x[0].conv2d(&x[1], 1, 1, 1, 1)),
        ("conv2d, strided", &[&[2, 3, 8, 8], &[4, 3, 3, 3]], |x| x[0].conv2d(&x[1], 1, 2, 1, 1)),
        ("conv_transpose2d", &[&[2, 3, 4, 4], &[3, 2, 3, 3]], |x| x[0].conv_transpose2d(&x[1], 1, 1, 2, 1)),
        ("max_pool2d, overlapping", &[&[2, 3, 8, 7]], |x| x[0].max_pool2d_with_stride((3, 2), (2, 1))),
        ("avg_pool2d, overlapping", &[&[2, 3, 8, 7]], |x| x[0].avg_pool2d_with_stride((3, 2), (2, 1))),
        ("avg_pool2d", &[&[2, 3, 8, 6]], |x| x[0].avg_pool2d(2)),
        ("max_pool2d", &[&[2, 3, 8, 6]], |x| x[0].max_pool2d(2)),
        ("upsample_nearest2d", &[&[2, 3, 4, 3]], |x| x[0].upsample_nearest2d(8, 6)),
    ])
}
