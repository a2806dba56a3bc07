//! Tests of values against those of NumPy and JAX, where candle 0.11.1 has other values.

use crate::compare::wide;
use crate::plugin;
use candle_core::{D, DType, Device, Result, Tensor, Var};
use candle_nn::{loss, ops};
use ferrotune_xla::Step;

/// A named computation and its expected value.
type Case = (&'static str, Box<dyn Fn(&Device) -> Result<Tensor>>, Vec<f64>);

const NAN: f32 = f32::NAN;
const INF: f32 = f32::INFINITY;

/// Computes each case on the CPU, on XLA:CPU value by value, and on XLA:CPU in compiled steps. Fails with all cases that differ.
fn check(cases: Vec<Case>) -> Result<()> {
    let device = plugin::open()?;
    let mut failures = Vec::new();
    for (name, compute, right) in cases {
        let compiled = || Step::new(&device, |_: &[Tensor]| Ok(vec![compute(&device)?])).run(&[]);
        let found = [
            ("cpu", compute(&Device::Cpu)),
            ("lazily", compute(&device)),
            ("compiled", compiled().map(|results| results[0].clone())),
        ];
        for (place, found) in found {
            match found.and_then(|found| wide(&found)) {
                Ok(found) if is_close(&found, &right) => {}
                found => failures.push(format!("{name}, {place}: {found:?} instead of {right:?}")),
            }
        }
    }
    assert!(failures.is_empty(), "{} differ:\n{}", failures.len(), failures.join("\n"));
    Ok(())
}

fn is_close(found: &[f64], right: &[f64]) -> bool {
    let is_close = |(found, right): (&f64, &f64)| {
        found == right || (found.is_nan() && right.is_nan()) || (found - right).abs() <= 1e-6 * right.abs()
    };
    found.len() == right.len() && found.iter().zip(right).all(is_close)
}

fn case(
    name: &'static str,
    right: impl IntoIterator<Item = f64>,
    compute: impl Fn(&Device) -> Result<Tensor> + 'static,
) -> Case {
    (name, Box::new(compute), right.into_iter().collect())
}

/// The gradient of a sum of `function`'s result, for a variable with these numbers.
fn gradient(numbers: &[f32], device: &Device, function: impl Fn(&Tensor) -> Result<Tensor>) -> Result<Tensor> {
    let variable = Var::from_tensor(&Tensor::new(numbers, device)?)?;
    let gradients = function(&variable)?.sum_all()?.backward()?;
    Ok(gradients.get(&variable).expect("a variable has a gradient").clone())
}

#[test]
fn sums_of_16_bit_floats_and_of_many_numbers() -> Result<()> {
    let mut cases = Vec::new();
    for dtype in [DType::BF16, DType::F16] {
        let ones = move |count: usize, device: &Device| Tensor::ones(count, dtype, device);
        cases.extend([
            case("sum", [4096.0], move |device| ones(4096, device)?.sum_all()),
            case("mean", [1.0], move |device| ones(65_520, device)?.mean_all()),
            case("norm", [256.0], move |device| ones(65_536, device)?.norm()),
            case("softmax", [1.0 / 1024.0], move |device| {
                ops::softmax(&Tensor::zeros(1024, dtype, device)?, 0)?.narrow(0, 5, 1)
            }),
            case("fused softmax", [1.0 / 1024.0], move |device| {
                ops::softmax_last_dim(&Tensor::zeros((1, 1024), dtype, device)?)?.narrow(1, 5, 1)
            }),
            // The expected loss is the logarithm of 10, rounded to the type.
            case("cross-entropy", [if dtype == DType::BF16 { 2.296875 } else { 2.302734375 }], move |device| {
                let logits = Tensor::zeros((1000, 10), dtype, device)?;
                loss::cross_entropy(&logits, &Tensor::zeros(1000, DType::U32, device)?)
            }),
            case("squares beyond f16", [90_000.0], |device| {
                loss::mse(&Tensor::full(300_f32, 4, device)?, &Tensor::zeros(4, DType::F32, device)?)
            }),
            case("pooling", [1.0], move |device| ones(4096, device)?.reshape((1, 1, 64, 64))?.avg_pool2d(64)),
            case("additions to one place", [1000.0], move |device| {
                let places = Tensor::zeros(1000, DType::U32, device)?;
                Tensor::zeros(1, dtype, device)?.index_add(&places, &ones(1000, device)?, 0)
            }),
            case("gradient of a bias", [4096.0], move |device| {
                let bias = Var::from_tensor(&Tensor::zeros(1, dtype, device)?)?;
                let loss = ones(4096, device)?.reshape((4096, 1))?.broadcast_add(&bias)?.sum_all()?;
                Ok(loss.backward()?.get(&bias).expect("a variable has a gradient").clone())
            }),
        ]);
    }
    cases.push(case("mean of many rows", [1.0, 1.0], |device| {
        Tensor::ones((20_000_000, 2), DType::F32, device)?.mean(0)
    }));
    check(cases)
}

#[test]
fn numbers_that_are_none_go_through() -> Result<()> {
    let rows = |device: &Device| Tensor::new(&[[1_f32, NAN, 3.0], [NAN, 1.0, 3.0]], device);
    let nan = f64::NAN;
    check(vec![
        case("max", [nan, nan], move |device| rows(device)?.max(1)),
        case("min", [nan, nan, 3.0], move |device| rows(device)?.min(0)),
        case("argmin", [1.0, 0.0], move |device| rows(device)?.argmin(1)),
        case("argmax", [1.0, 0.0, 0.0], move |device| rows(device)?.argmax(0)),
        case("maximum", [2.0, nan, 3.0, nan, 2.0, 3.0], move |device| rows(device)?.maximum(2.0)),
        case("minimum", [1.0, nan, 2.0, nan, 1.0, 2.0], move |device| {
            (rows(device)?.ones_like()? * 2.0)?.minimum(&(rows(device)?))
        }),
        case("clamp", [1.0, nan, 2.0, nan, 1.0, 2.0], move |device| rows(device)?.clamp(0.0, 2.0)),
        case("max_pool2d", [nan, nan], move |device| {
            rows(device)?.reshape((1, 1, 2, 3))?.max_pool2d_with_stride((2, 2), (1, 1))
        }),
        case("relu", [nan, 0.0, 2.0], |device| Tensor::new(&[NAN, -1.0, 2.0], device)?.relu()),
        case("sign", [nan, -1.0, 0.0, 1.0], |device| Tensor::new(&[NAN, -3.0, 0.0, INF], device)?.sign()),
        case("sort", [1.0, 2.0, 3.0, nan], |device| {
            Ok(Tensor::new(&[3.0, NAN, 1.0, 2.0], device)?.sort_last_dim(true)?.0)
        }),
        case("sort down", [nan, 3.0, 2.0, 1.0], |device| {
            Ok(Tensor::new(&[3.0, NAN, 1.0, 2.0], device)?.sort_last_dim(false)?.0)
        }),
        case("log_sum_exp of nothing", [-f64::INFINITY], |device| Tensor::new(&[-INF, -INF], device)?.log_sum_exp(0)),
    ])
}

#[test]
fn powers_cumulative_sums_and_ranges() -> Result<()> {
    let pow = |x: &Tensor| x.pow(&Tensor::new(&[2_f32, 3.0, 2.0], x.device())?);
    check(vec![
        case("pow", [4.0, -27.0, 0.0], move |device| pow(&Tensor::new(&[-2_f32, -3.0, 0.0], device)?)),
        case("gradient of pow", [-4.0, 27.0, 0.0], move |device| gradient(&[-2.0, -3.0, 0.0], device, pow)),
        case("gradient of an exponent", [8.0 * 2_f64.ln(), 0.0], |device| {
            gradient(&[3.0, 2.0], device, |y| Tensor::new(&[2_f32, 0.0], y.device())?.pow(y))
        }),
        case("cumsum", [1.0, f64::INFINITY, f64::INFINITY], |device| Tensor::new(&[1.0, INF, 2.0], device)?.cumsum(0)),
        case("cumsum of u8", [200.0, 400.0, 600.0], |device| Tensor::new(&[200_u8; 3], device)?.cumsum(0)),
        case("gradient of cumsum", [111.0, 110.0, 100.0], |device| {
            gradient(&[1.0, 2.0, 3.0], device, |x| x.cumsum(0)? * Tensor::new(&[1_f32, 10.0, 100.0], x.device())?)
        }),
        case("range", (0..10).map(|index| f64::from(index) * 0.1), |device| Tensor::arange_step(0.0, 1.0, 0.1, device)),
        case("range down", [5.0, 3.0, 1.0], |device| Tensor::arange_step(5_i64, 0, -2, device)),
        case("hits", [300.0], |device| Tensor::ones(300, DType::F32, device)?.eq(1.0)?.sum_all()),
        case("1 - x of u8", [0.0, 1.0], |device| 1.0 - Tensor::new(&[1_u8, 0], device)?),
    ])
}

#[test]
fn losses_norms_and_activations() -> Result<()> {
    let logits = [20_f32, -120.0, 3.0];
    let entropy = |x: &Tensor| loss::binary_cross_entropy_with_logit(x, &Tensor::new(&[1_f32, 0.0, 1.0], x.device())?);
    check(vec![
        case("binary cross-entropy", [0.016_195_786], move |device| entropy(&Tensor::new(&logits, device)?)),
        case("its gradient", [-6.870_512_5e-10, 0.0, -0.015_808_625], move |device| gradient(&logits, device, entropy)),
        case("norm", [5e20], |device| Tensor::new(&[3e20_f32, 4e20], device)?.norm()),
        case("layer norm", [-1.224_735_7, 0.0, 1.224_735_7], |device| {
            let (ones, zeros) = (Tensor::ones(3, DType::F32, device)?, Tensor::zeros(3, DType::F32, device)?);
            ops::layer_norm(&Tensor::new(&[[10_000_f32, 10_001.0, 10_002.0]], device)?, &ones, &zeros, 1e-5)
        }),
        case("gradient of mish", [1.0, 0.0], |device| gradient(&[100.0, -200.0], device, ops::mish)),
        case("gradient of selu", [1.05], |device| gradient(&[100.0], device, |x| ops::selu(x, 1.67, 1.05))),
        case("softplus", [2.061_153_6e-9, 100.0], |device| ops::softplus(&Tensor::new(&[-20_f32, 100.0], device)?)),
    ])
}

#[test]
fn what_has_no_value_is_an_error_that_names_the_cure() -> Result<()> {
    let device = plugin::open()?;
    for device in [&Device::Cpu, &device] {
        let integers = Tensor::new(&[7_i64, 2, 9], device)?;
        let errors = [
            integers.mean_all(),
            integers.exp(),
            integers.affine(0.5, 0.0),
            integers.lt(0.5),
            integers.pow(&integers),
            candle_nn::BatchNorm::new_no_bias(
                1,
                Tensor::zeros(1, DType::F32, device)?,
                Tensor::ones(1, DType::F32, device)?,
                1e-5,
            )?
            .forward_train(&Tensor::ones((1, 1), DType::F32, device)?),
        ];
        for error in errors {
            let error = error.expect_err("there is no such value").to_string();
            assert!(error.contains("to_dtype") || error.contains("leave out such a batch"), "{error}");
        }
    }
    let logits = Tensor::zeros((2, 3), DType::F32, &Device::Cpu)?;
    for label in [i64::from(u32::MAX), -100, 3] {
        let labels = Tensor::new(&[0, label], &Device::Cpu)?;
        let error = loss::cross_entropy(&logits, &labels).expect_err("there are three classes").to_string();
        assert!(error.contains(&format!("label {label} in row 1 is none of the 3 classes")), "{error}");
    }
    let labels = Tensor::new(&[0, u32::MAX], &Device::Cpu)?;
    assert!(loss::cross_entropy(&logits, &labels).is_err());
    let error = logits.index_select(&Tensor::new(&[-2_i64], &Device::Cpu)?, D::Minus1).expect_err("-2 is no index");
    assert!(error.to_string().contains("invalid index -2"), "{error}");
    Ok(())
}
