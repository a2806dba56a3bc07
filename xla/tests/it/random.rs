//! Tests of random numbers: their range, mean and deviation, and the effect of a seed.

use crate::plugin;
use candle_core::{DType, Device, Result, Tensor};
use candle_nn::ops;
use ferrotune_xla::Step;
use std::thread;

const COUNT: usize = 40_000;

/// The mean, the standard deviation, and the least and greatest number of a tensor.
fn moments(tensor: &Tensor) -> Result<[f64; 4]> {
    let numbers: Vec<f64> = tensor.to_dtype(DType::F64)?.to_vec1()?;
    let count = numbers.len() as f64;
    let mean = numbers.iter().sum::<f64>() / count;
    let variance = numbers.iter().map(|number| (number - mean).powi(2)).sum::<f64>() / count;
    let least = numbers.iter().copied().fold(f64::INFINITY, f64::min);
    let greatest = numbers.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    Ok([mean, variance.sqrt(), least, greatest])
}

#[test]
fn uniform_numbers_fill_their_range_evenly() -> Result<()> {
    let device = plugin::open()?;
    for (dtype, slack) in [(DType::F32, 0.02), (DType::F64, 0.02), (DType::F16, 0.02), (DType::BF16, 0.05)] {
        // A number one step of the type below 5 may be rounded to 5.
        let (low, high) = (-1.0, 5.0);
        let numbers = Tensor::zeros(COUNT, dtype, &device)?.rand_like(low, high)?;
        let [mean, deviation, least, greatest] = moments(&numbers)?;
        assert!((mean - 2.0).abs() < 0.03 + slack, "{dtype:?}: mean {mean}");
        assert!((deviation - 6.0 / 12f64.sqrt()).abs() < 0.03, "{dtype:?}: deviation {deviation}");
        assert!(least >= low && least < low + slack && greatest <= high, "{dtype:?}: {least} to {greatest}");
        assert!(greatest > high - slack, "{dtype:?}: {least} to {greatest}");
    }
    Ok(())
}

#[test]
fn double_precision_has_more_than_single_precision() -> Result<()> {
    let numbers: Vec<f64> = Tensor::rand(0f64, 1f64, 1000, &plugin::open()?)?.to_vec1()?;
    let is_single = |number: &&f64| f64::from(**number as f32) == **number;
    assert!(numbers.iter().filter(is_single).count() < 10);
    Ok(())
}

#[test]
fn normal_numbers_have_mean_and_deviation() -> Result<()> {
    let device = plugin::open()?;
    for dtype in [DType::F32, DType::F64, DType::BF16] {
        let numbers = Tensor::zeros(COUNT, dtype, &device)?.randn_like(3.0, 0.5)?;
        let [mean, deviation, least, greatest] = moments(&numbers)?;
        assert!((mean - 3.0).abs() < 0.02, "{dtype:?}: mean {mean}");
        assert!((deviation - 0.5).abs() < 0.01, "{dtype:?}: deviation {deviation}");
        assert!(least < 1.5 && greatest > 4.5 && greatest < 6.0, "{dtype:?}: {least} to {greatest}");
    }
    Ok(())
}

#[test]
fn a_seed_repeats_the_numbers_and_each_draw_differs() -> Result<()> {
    let device = plugin::open()?;
    let draw = |device: &Device| Tensor::rand(0f32, 1f32, 64, device)?.to_vec1::<f32>();
    device.set_seed(7)?;
    let (first, second) = (draw(&device)?, draw(&device)?);
    // The second draw must not be the first one, shifted by some elements.
    assert!(first.iter().all(|number| !second.contains(number)), "{first:?} {second:?}");
    device.set_seed(7)?;
    assert_eq!([first, second], [draw(&device)?, draw(&device)?]);
    device.set_seed(8)?;
    assert_ne!(draw(&device)?, draw(&plugin::open()?)?);
    Ok(())
}

#[test]
fn a_thread_that_draws_while_a_step_is_traced_shares_no_numbers() -> Result<()> {
    let device = plugin::open()?;
    let draw = || Tensor::rand(0f32, 1f32, 16, &device);
    let mut drawn = Vec::new();
    let mut step = Step::new(&device, |arguments: &[Tensor]| {
        drawn.push(thread::scope(|scope| scope.spawn(draw).join()).expect("the thread does not panic")?);
        Ok(vec![ops::dropout(&arguments[0], 0.5)?])
    });
    step.run(&[Tensor::ones(16, DType::F32, &device)?])?;
    for _ in 0..4 {
        drawn.push(draw()?);
    }
    let drawn = drawn.iter().map(Tensor::to_vec1).collect::<Result<Vec<Vec<f32>>>>()?;
    for (index, numbers) in drawn.iter().enumerate() {
        assert!(!drawn[..index].contains(numbers), "{index} of {} has the numbers of another", drawn.len());
    }
    Ok(())
}

#[test]
fn cores_draw_different_numbers_from_the_same_seed() -> Result<()> {
    let devices = ferrotune_xla::cores(&plugin::open()?)?;
    let [first, second, ..] = devices.as_slice() else { candle_core::bail!("the plugin has one core") };
    let drawn = |device: &Device| -> Result<Vec<f32>> {
        device.set_seed(7)?;
        Tensor::rand(0f32, 1f32, 100, device)?.to_vec1()
    };
    assert_ne!(drawn(first)?, drawn(second)?);
    assert_eq!(drawn(second)?, drawn(second)?);
    Ok(())
}
