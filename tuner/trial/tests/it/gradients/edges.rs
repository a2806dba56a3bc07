//! Tests of gradients at ties, kinks and zeros, where several values are possible, and of operations without a gradient.

use super::difference::{backward, values};
use candle_core::{CpuStorage, CustomOp1, DType, Device, Layout, Result, Shape, Tensor, Var};
use candle_nn::ops;

type Unary = fn(&Tensor) -> Result<Tensor>;
type Function = fn(&[Tensor]) -> Result<Tensor>;

fn gradient(x: &[f32], function: impl Fn(&Tensor) -> Result<Tensor>) -> Vec<f64> {
    let x = Tensor::new(x, &Device::Cpu).unwrap();
    let sum = |inputs: &[Tensor]| {
        // The helper weighs the elements of a result, so its result is the sum, a single element.
        function(&inputs[0])?.sum_all()
    };
    let unit = backward(&[Tensor::new(1f32, &Device::Cpu).unwrap()], |inputs| Ok(inputs[0].clone())).unwrap();
    let unit = values(&unit[0])[0];
    values(&backward(&[x], sum).unwrap()[0]).iter().map(|gradient| gradient / unit).collect()
}

#[test]
fn ties_and_kinks() {
    let cases: &[(&str, &[f32], Unary, &[f64])] = &[
        ("max shares among ties", &[1., 3., 3.], |x| x.max(0), &[0., 0.5, 0.5]),
        (
            "min shares among ties",
            &[1., 1., 1., 2.],
            |x| x.mul(&x.ones_like()?)?.min(0),
            &[1. / 3., 1. / 3., 1. / 3., 0.],
        ),
        ("maximum shares between two", &[1., 2.], |x| x.maximum(&x.copy()?), &[1., 1.]),
        ("relu at zero", &[-1., 0., 2.], Tensor::relu, &[0., 0., 1.]),
        ("abs at zero", &[-1., 0., 2.], Tensor::abs, &[-1., 0., 1.]),
        ("elu at zero", &[0., 2.], |x| x.elu(0.5), &[0.5, 1.]),
        ("x^0 at zero", &[0., 2.], |x| x.powf(0.), &[0., 0.]),
        ("x^1 at zero", &[0., 2.], |x| x.powf(1.), &[1., 1.]),
        ("x^2 at zero", &[0., 2.], |x| x.powf(2.), &[0., 4.]),
        ("x^3 at zero", &[0., -2.], |x| x.powf(3.), &[0., 12.]),
        ("x · 0", &[1., 2.], |x| x.affine(0., 1.)?.add(x), &[1., 1.]),
        ("detached", &[3., 4.], |x| x.mul(&x.detach()), &[3., 4.]),
        ("integers", &[3.4, 4.], |x| x.to_dtype(DType::U32)?.to_dtype(DType::F32)?.mul(x), &[3., 4.]),
        ("ceil", &[3.4, 4.2], |x| x.ceil()?.mul(x), &[4., 5.]),
        ("gelu far from zero", &[-1e4, 1e4], Tensor::gelu, &[0., 1.]),
        ("silu far from zero", &[-1e4, 1e4], Tensor::silu, &[0., 1.]),
        ("argmax", &[1., 3.], |x| x.argmax(0)?.to_dtype(DType::F32)?.broadcast_mul(x), &[1., 1.]),
    ];
    for (name, x, function, expected) in cases {
        let gradient = gradient(x, function);
        for (gradient, expected) in gradient.iter().zip(*expected) {
            assert!((gradient - expected).abs() < 1e-6, "{name}: {gradient} instead of {expected}");
        }
    }
}

#[test]
fn the_first_of_equal_maxima_in_a_window_has_its_gradient() {
    let x = Tensor::new(&[[1f32, 2., 2.], [2., 0., 2.], [0., 2., 1.]], &Device::Cpu).unwrap();
    let pooled = |inputs: &[Tensor]| inputs[0].reshape((1, 1, 3, 3))?.max_pool2d_with_stride((2, 2), (1, 1))?.sum_all();
    let gradient = values(&backward(&[x], pooled).unwrap()[0]);
    let unit = gradient.iter().sum::<f64>() / 4.;
    let counts: Vec<f64> = gradient.iter().map(|gradient| (gradient / unit).round()).collect();
    assert_eq!(counts, [0., 2., 0., 1., 0., 1., 0., 0., 0.]);
}

#[test]
fn half_precision_does_not_overflow() {
    let half = |x: &[f32]| Tensor::new(x, &Device::Cpu).unwrap().to_dtype(DType::F16).unwrap();
    let cases: &[(&str, [Tensor; 2], Function)] = &[
        ("gelu", [half(&[60., -300.]), half(&[1., 1.])], |inputs| inputs[0].gelu()?.mul(&inputs[1])),
        ("div", [half(&[1e-4, 300.]), half(&[1e-4, 300.])], |inputs| inputs[0].div(&inputs[1])),
        ("recip", [half(&[1., 1.]), half(&[0.01, 30.])], |inputs| inputs[1].recip()?.mul(&inputs[0])),
    ];
    for (name, inputs, function) in cases {
        let single = inputs.clone().map(|input| input.to_dtype(DType::F32).unwrap());
        let gradients = backward(inputs, function).unwrap();
        for (gradient, expected) in gradients.iter().zip(backward(&single, function).unwrap()) {
            for (gradient, expected) in values(gradient).iter().zip(values(&expected)) {
                assert!(
                    (gradient - expected).abs() <= 3e-3 * expected.abs(),
                    "{name}: {gradient} instead of {expected}"
                );
            }
        }
    }
}

struct Opaque;

impl CustomOp1 for Opaque {
    fn name(&self) -> &'static str {
        "opaque"
    }

    fn cpu_fwd(&self, storage: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        Ok((storage.clone(), layout.shape().clone()))
    }
}

#[test]
fn an_operation_without_a_gradient_is_an_error() {
    let x = Var::new(&[1f32, 2.], &Device::Cpu).unwrap();
    let lost = x.apply_op1_no_bwd(&Opaque).unwrap().sum_all().unwrap().backward().unwrap_err();
    let message = "backward is not supported for opaque; detach its arguments if they need no gradient";
    assert!(lost.to_string().starts_with(message), "{lost}");

    let kept = x.mul(&x.detach().apply_op1_no_bwd(&Opaque).unwrap()).unwrap().sum_all().unwrap().backward().unwrap();
    assert_eq!(values(kept.get(&x).unwrap()), [1., 2.]);

    let upsampled = x.reshape((1, 1, 1, 2)).unwrap().upsample_bilinear2d(2, 4, false).unwrap();
    assert!(upsampled.sum_all().unwrap().backward().unwrap_err().to_string().contains("upsample_bilinear2d"));
    let attention = ops::sdpa(
        &x.reshape((1, 1, 1, 2)).unwrap(),
        &x.reshape((1, 1, 1, 2)).unwrap(),
        &x.reshape((1, 1, 1, 2)).unwrap(),
        None,
        false,
        1.,
        1.,
    );
    assert!(attention.unwrap_err().to_string().contains("SDPA has no cpu impl"));
}
