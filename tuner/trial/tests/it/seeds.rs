//! Tests of random tensors: on the CPU, those of our candle follow a seed.

use candle_core::random::{Draws, with_draws};
use candle_core::{DType, Device, Tensor};

fn draw(dtype: DType, normal: bool, count: usize) -> Vec<f64> {
    let device = &Device::Cpu;
    let drawn = match (dtype, normal) {
        (DType::F64, false) => Tensor::rand(-1f64, 1., count, device),
        (DType::F64, true) => Tensor::randn(0f64, 1., count, device),
        (_, false) => Tensor::zeros(count, dtype, device).and_then(|zeros| zeros.rand_like(-1., 1.)),
        (_, true) => Tensor::zeros(count, dtype, device).and_then(|zeros| zeros.randn_like(0., 1.)),
    };
    drawn.unwrap().to_dtype(DType::F64).unwrap().to_vec1().unwrap()
}

#[test]
fn the_same_seed_draws_the_same_and_each_tensor_other_numbers() {
    let first = Draws { seed: 7, drawn: 0 };
    for dtype in [DType::F16, DType::BF16, DType::F32, DType::F64] {
        for normal in [false, true] {
            let twice = || [draw(dtype, normal, 1000), draw(dtype, normal, 1000)];
            let [one, two] = with_draws(first, twice);
            assert_eq!(with_draws(first, twice), [one.clone(), two.clone()], "{dtype:?}");
            assert_eq!(with_draws(Draws { drawn: 1, ..first }, || draw(dtype, normal, 1000)), two);
            assert_ne!(one, two);
            assert_ne!(with_draws(Draws { seed: 8, ..first }, twice)[0], one);
            let variance = one.iter().map(|value| value * value).sum::<f64>() / 1000.;
            let wanted = if normal { 1. } else { 1. / 3. };
            assert!((variance / wanted - 1.).abs() < 0.2, "{dtype:?}: a variance of {variance}");
        }
    }
}

#[test]
fn tensors_of_neighbouring_seeds_have_nothing_in_common() {
    let of = |seed, drawn| with_draws(Draws { seed, drawn }, || draw(DType::F64, true, 10_000));
    for other in [of(8, 0), of(7, 1), of(0, 7)] {
        let correlation = of(7, 0).iter().zip(&other).map(|(a, b)| a * b).sum::<f64>() / 10_000.;
        assert!(correlation.abs() < 0.05, "{correlation}");
    }
}

#[test]
fn a_seed_in_a_scope_is_one_of_the_scope() {
    let before = Device::Cpu.get_current_seed().unwrap();
    with_draws(Draws { seed: 7, drawn: 0 }, || {
        assert_eq!(Device::Cpu.get_current_seed().unwrap(), 7);
        Device::Cpu.set_seed(9).unwrap();
        assert_eq!(draw(DType::F32, false, 3), with_draws(Draws { seed: 9, drawn: 0 }, || draw(DType::F32, false, 3)));
    });
    assert_eq!(Device::Cpu.get_current_seed().unwrap(), before);
    let panicked = std::panic::catch_unwind(|| with_draws(Draws { seed: 7, drawn: 0 }, || panic!("in the scope")));
    assert!(panicked.is_err());
    assert_eq!(Device::Cpu.get_current_seed().unwrap(), before);
}
