//! Tests of elementwise functions, with every type and every kind of view.

use crate::compare::{Cases, Draws, FLOATS, INTEGERS, wide};
use crate::plugin;
use candle_core::{DType, Device, Result, Tensor};
use std::collections::BTreeSet;

type Unary = fn(&Tensor) -> Result<Tensor>;
type Binary = fn(&Tensor, &Tensor) -> Result<Tensor>;

/// All functions of one tensor, by candle's names, and whether they exist for integers.
const UNARY: [(&str, Unary, bool); 19] = [
    ("exp", Tensor::exp, false),
    ("log", Tensor::log, false),
    ("sin", Tensor::sin, false),
    ("cos", Tensor::cos, false),
    ("tanh", Tensor::tanh, false),
    ("neg", Tensor::neg, true),
    ("recip", Tensor::recip, false),
    ("sqr", Tensor::sqr, true),
    ("sqrt", Tensor::sqrt, false),
    ("gelu", Tensor::gelu, false),
    ("gelu_erf", Tensor::gelu_erf, false),
    ("erf", Tensor::erf, false),
    ("silu", Tensor::silu, false),
    ("abs", Tensor::abs, true),
    ("ceil", Tensor::ceil, true),
    ("floor", Tensor::floor, true),
    ("round", Tensor::round, true),
    ("relu", Tensor::relu, true),
    ("sign", Tensor::sign, true),
];

const BINARY: [(&str, Binary); 6] = [
    ("add", Tensor::broadcast_add),
    ("sub", Tensor::broadcast_sub),
    ("mul", Tensor::broadcast_mul),
    ("div", Tensor::broadcast_div),
    ("maximum", Tensor::broadcast_maximum),
    ("minimum", Tensor::broadcast_minimum),
];

const COMPARISONS: [(&str, Binary); 6] = [
    ("eq", Tensor::broadcast_eq),
    ("ne", Tensor::broadcast_ne),
    ("le", Tensor::broadcast_le),
    ("ge", Tensor::broadcast_ge),
    ("lt", Tensor::broadcast_lt),
    ("gt", Tensor::broadcast_gt),
];

#[test]
fn every_function_that_candle_has_is_tested_here() {
    let source = include_str!("../../../patched/candle/candle-core/src/op.rs");
    let quoted = |line: &str| line.split('"').nth(1).map(str::to_owned);
    let second = |line: &str| Some(line.split(',').nth(1)?.trim().to_owned());
    let name = |line: &str| match line.trim() {
        line if line.starts_with("const NAME: &'static str = \"") || line.starts_with("unary_op!(") => quoted(line),
        line if line.starts_with("bin_op!(") => second(line),
        _ => None,
    };
    let of_candle: BTreeSet<String> = source.lines().filter_map(name).collect();
    let tested: BTreeSet<String> =
        UNARY.iter().map(|(name, ..)| *name).chain(BINARY.iter().map(|(name, _)| *name)).map(str::to_owned).collect();
    assert_eq!(of_candle, tested);
}

#[test]
fn functions_of_floats_are_candles() -> Result<()> {
    let mut cases = Cases::default();
    for (place, (name, function, _)) in UNARY.into_iter().enumerate() {
        for (seed, dtype) in FLOATS.into_iter().enumerate() {
            cases.add(format!("{name} of {dtype:?}"), move |device| {
                let mut draws = Draws((place * 10 + seed) as u64);
                let x = draws.tensor((3, 4, 5), dtype, device)?;
                // A NaN is a NaN on both sides, but logarithms and roots shall get valid arguments.
                let x = if matches!(name, "log" | "sqrt" | "recip") { (x.abs()? + 0.25)? } else { x };
                function(&draws.view(&x)?)
            });
        }
    }
    cases.check(&plugin::open()?)
}

#[test]
fn functions_of_integers_are_candles() -> Result<()> {
    let mut cases = Cases::default();
    for (name, function, _) in UNARY.into_iter().filter(|(.., has_integers)| *has_integers) {
        for dtype in INTEGERS {
            cases.add(format!("{name} of {dtype:?}"), move |device| {
                function(&Draws(5).tensor((3, 4), dtype, device)?.t()?)
            });
        }
    }
    cases.check(&plugin::open()?)
}

#[test]
fn numbers_that_are_none_are_treated_as_on_the_cpu() -> Result<()> {
    const ODD: [f32; 8] = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 0.0, -0.0, 1.5, -2.5, 2.5];
    let mut cases = Cases::default();
    // At minus infinity candle's gelu_erf is a NaN, since it multiplies infinity by zero.
    for (name, function, _) in UNARY.into_iter().filter(|(name, ..)| *name != "gelu_erf") {
        cases.add(name, move |device| function(&Tensor::new(&ODD, device)?));
    }
    let pairs = |device: &Device| -> Result<(Tensor, Tensor)> {
        let x = Tensor::new(&ODD, device)?;
        Ok((x.reshape((8, 1))?, x.reshape((1, 8))?))
    };
    for (name, function) in BINARY.into_iter().chain(COMPARISONS) {
        cases.add(name, move |device| {
            let (x, y) = pairs(device)?;
            function(&x, &y)
        });
    }
    cases.check(&plugin::open()?)
}

#[test]
fn functions_of_two_tensors_are_candles() -> Result<()> {
    let mut cases = Cases::default();
    for (place, (name, function)) in BINARY.into_iter().chain(COMPARISONS).enumerate() {
        let dtypes = FLOATS.into_iter().chain(INTEGERS).enumerate();
        // Each type is compared, but not with every function.
        for (seed, dtype) in dtypes.filter(|(seed, _)| place < BINARY.len() || (seed + place) % 3 == 0) {
            cases.add(format!("{name} of {dtype:?}"), move |device| {
                let mut draws = Draws(seed as u64);
                let x = draws.tensor((2, 3, 1, 5), dtype, device)?;
                // candle's CPU refuses to divide an integer by zero, so the divisor is at least 1.
                let y = draws.tensor((4, 3), dtype, device)?.t()?;
                let y = if dtype.is_float() { y } else { y.maximum(&y.ones_like()?)? };
                function(&x, &y.unsqueeze(2)?.narrow(1, 1, 2)?.broadcast_as((3, 2, 5))?.contiguous()?)
            });
        }
    }
    cases.check(&plugin::open()?)
}

/// Floats near the ends of integer types, and numbers that lie between two floats of fewer bits.
const EDGES: [f64; 26] = [
    0.0,
    -0.0,
    0.5,
    -0.5,
    0.999,
    1.5,
    -1.5,
    2.5,
    127.4,
    128.0,
    255.0,
    255.9,
    256.0,
    -1.0,
    32767.9,
    32768.0,
    -32768.9,
    65504.0,
    65520.0,
    2147483647.0,
    2147483648.0,
    4294967295.0,
    1e19,
    -1e19,
    f64::INFINITY,
    f64::NAN,
];

#[test]
fn conversions_round_saturate_and_wrap_as_rust_does() -> Result<()> {
    let mut cases = Cases::default();
    for from in FLOATS.into_iter().chain(INTEGERS) {
        for to in FLOATS.into_iter().chain(INTEGERS) {
            cases.add(format!("{from:?} to {to:?}"), move |device| {
                let numbers = Tensor::new(&EDGES, &Device::Cpu)?.to_dtype(from)?;
                numbers.to_device(device)?.to_dtype(to)
            });
        }
    }
    cases.check(&plugin::open()?)
}

#[test]
fn functions_with_numbers_are_candles() -> Result<()> {
    let mut cases = Cases::default();
    for (place, dtype) in FLOATS.into_iter().chain(INTEGERS).enumerate() {
        for (mul, add) in [(1.0, 0.0), (2.0, 0.0), (1.0, 3.0), (3.0, 4.0)] {
            cases.add(format!("affine {mul} {add} of {dtype:?}"), move |device| {
                Draws(3).tensor((4, 3), dtype, device)?.t()?.affine(mul, add)
            });
        }
        let condition = INTEGERS[place % 5];
        cases.add(format!("where {condition:?} of {dtype:?}"), move |device| {
            let mut draws = Draws(4);
            let condition = draws.indices((3, 4), 2, condition, device)?.t()?;
            let (yes, no) = (draws.tensor((4, 3), dtype, device)?, draws.tensor(4, dtype, device)?);
            condition.where_cond(&yes, &no.unsqueeze(1)?.broadcast_as((4, 3))?)
        });
    }
    for dtype in FLOATS {
        for number in [2.0, 3.0, 0.5, -1.5] {
            cases.add(format!("powf {number} of {dtype:?}"), move |device| {
                (Draws(6).tensor((4, 3), dtype, device)?.abs()? + 0.25)?.powf(number)
            });
            cases.add(format!("elu {number} of {dtype:?}"), move |device| {
                Draws(7).tensor((4, 3), dtype, device)?.elu(number)
            });
        }
    }
    cases.check(&plugin::open()?)
}

#[test]
fn a_function_that_integers_lack_is_an_error() -> Result<()> {
    let x = Tensor::new(&[1i64, 2], &plugin::open()?)?;
    let error = x.exp().expect_err("candle has no exponential of integers").to_string();
    assert!(error.contains("exp of i64 elements is not defined; convert them with to_dtype"), "{error}");
    assert!(x.powf(1.5).is_err() && x.elu(1.0).is_err());
    assert_eq!(x.to_dtype(DType::F32)?.exp()?.dtype(), DType::F32);
    Ok(())
}

#[test]
fn a_number_for_16_bit_elements_is_rounded_once() -> Result<()> {
    let device = plugin::open()?;
    for (dtype, digits) in [(DType::BF16, 8), (DType::F16, 11)] {
        // The number is a little less than 1.5 steps of the type above 1. In `f32` it becomes exactly 1.5 steps, which are rounded to two.
        let number = 1. + 3. * 2f64.powi(-digits) - 2f64.powi(-25);
        let scaled = |device: &Device| wide(&Tensor::ones(3, dtype, device)?.affine(number, 0.)?);
        let moved = |device: &Device| wide(&Tensor::zeros(3, dtype, device)?.affine(1., number)?);
        assert_eq!(scaled(&device)?, scaled(&Device::Cpu)?, "{dtype:?}");
        assert_eq!(moved(&device)?, moved(&Device::Cpu)?, "{dtype:?}");
    }
    Ok(())
}
