//! The tests that candle-nn has of its layers, losses, caches and optimisers, on a device of a plugin.

use crate::compare::{Cases, Draws, wide};
use crate::plugin;
use candle_core::{DType, Device, Module as _, Result, Tensor, Var};
use candle_nn::kv_cache::{Cache, RotatingCache};
use candle_nn::{
    AdamW, BatchNorm, Conv2d, Conv2dConfig, Embedding, GroupNorm, LayerNorm, Linear, ModuleT as _, Optimizer as _,
    PReLU, ParamsAdamW, RNN as _, RmsNorm, SGD, VarBuilder, encoding, loss, ops,
};
use std::collections::HashMap;

fn input(seed: u64, dims: &[usize], device: &Device) -> Result<Tensor> {
    Draws(seed).tensor(dims, DType::F32, device)
}

#[test]
fn layers_are_candles() -> Result<()> {
    let mut cases = Cases::default();
    for groups in [2, 3] {
        cases.add(format!("group norm of {groups}"), move |device| {
            let layer = GroupNorm::new(input(1, &[6], device)?, input(2, &[6], device)?, 6, groups, 1e-5)?;
            layer.forward(&input(3, &[2, 6, 3], device)?)
        });
    }
    cases.add("layer norm", |device| {
        LayerNorm::new(input(4, &[5], device)?, input(5, &[5], device)?, 1e-3).forward(&input(6, &[2, 3, 5], device)?)
    });
    cases.add("layer norm without shift", |device| {
        LayerNorm::new_no_bias(input(4, &[5], device)?, 1e-3).forward(&input(6, &[2, 3, 5], device)?)
    });
    cases.add("RMS norm", |device| RmsNorm::new(input(7, &[5], device)?, 1e-3).forward(&input(8, &[2, 3, 5], device)?));
    cases.add("a fused RMS norm is a slow one", |device| {
        let (x, scale) = (input(9, &[24, 10, 16], device)?, input(10, &[16], device)?);
        ops::rms_norm(&x, &scale, 1e-5)? - ops::rms_norm_slow(&x, &scale, 1e-5)?
    });
    cases.add("an RMS norm of large numbers is finite", |device| {
        ops::rms_norm(&(input(11, &[4, 700], device)? * 4e9)?, &Tensor::ones(700, DType::F32, device)?, 1e-5)
    });
    cases.add("embedding", |device| {
        Embedding::new(input(12, &[7, 4], device)?, 4).forward(&Draws(13).indices((2, 3), 7, DType::U32, device)?)
    });
    cases.add("linear", |device| {
        Linear::new(input(14, &[4, 3], device)?, Some(input(15, &[4], device)?)).forward(&input(
            16,
            &[2, 5, 3],
            device,
        )?)
    });
    cases.add("conv2d with groups", |device| {
        let config = Conv2dConfig { padding: 1, stride: 2, groups: 2, ..Conv2dConfig::default() };
        let layer = Conv2d::new(input(17, &[6, 2, 3, 3], device)?, Some(input(18, &[6], device)?), config);
        layer.forward(&input(19, &[2, 4, 7, 7], device)?)
    });
    cases.add("PReLU", |device| PReLU::new(input(20, &[3], device)?, false).forward(&input(21, &[2, 3, 4], device)?));
    cases.add("a softmax of large numbers is stable", |device| ops::softmax(&Tensor::new(&[1234f32, 0.], device)?, 0));
    cases.add("SwiGLU", |device| ops::swiglu(&input(22, &[3, 8], device)?));
    cases.add("pixel shuffle", |device| ops::pixel_shuffle(&input(23, &[1, 8, 2, 3], device)?, 2));
    cases.check(&plugin::open()?)
}

#[test]
fn batch_norm_normalises_and_keeps_running_statistics() -> Result<()> {
    let norm = |device: &Device| {
        let (mean, variance) = (Tensor::zeros(5, DType::F32, device)?, Tensor::ones(5, DType::F32, device)?);
        BatchNorm::new(5, mean, variance, input(1, &[5], device)?, input(2, &[5], device)?, 1e-8)
    };
    let mut cases = Cases::default();
    cases.add("training", move |device| norm(device)?.forward_t(&input(3, &[2, 5, 3, 4], device)?, true));
    cases.add("evaluation", move |device| norm(device)?.forward_t(&input(3, &[2, 5, 3, 4], device)?, false));
    cases.add("running mean and variance", move |device| {
        let norm = norm(device)?;
        norm.forward_train(&input(3, &[2, 5, 3, 4], device)?)?;
        Tensor::cat(&[norm.running_mean(), norm.running_var()], 0)
    });
    cases.check(&plugin::open()?)
}

#[test]
fn losses_are_candles() -> Result<()> {
    let mut cases = Cases::default();
    let classes = |device: &Device| Draws(2).indices(6, 5, DType::U32, device);
    let targets = |device: &Device| Draws(3).indices((6, 5), 2, DType::F32, device);
    let scores = |device: &Device| input(4, &[6, 5], device);
    cases.add("cross entropy", move |device| loss::cross_entropy(&scores(device)?, &classes(device)?));
    cases.add("likelihood", move |device| loss::nll(&ops::log_softmax(&scores(device)?, 1)?, &classes(device)?));
    cases.add("binary cross entropy", move |device| {
        loss::binary_cross_entropy_with_logit(&scores(device)?, &targets(device)?)
    });
    cases.add("squares", move |device| loss::mse(&scores(device)?, &targets(device)?));
    for delta in [1.0, 0.88] {
        cases.add(format!("Huber's of {delta}"), move |device| loss::huber(&scores(device)?, &targets(device)?, delta));
    }
    cases.add("one hot", |device| {
        encoding::one_hot(Tensor::new(&[[0i64, 2], [1, -1]], device)?, 4, 1f32, 0f32)?.to_device(device)
    });
    cases.check(&plugin::open()?)
}

/// The weights of a recurrent layer with two inputs and three outputs.
fn recurrent(gates: usize, device: &Device) -> Result<VarBuilder<'static>> {
    let rows = 3 * gates;
    let shapes: [(&str, &[usize]); 4] =
        [("weight_ih_l0", &[rows, 2]), ("weight_hh_l0", &[rows, 3]), ("bias_ih_l0", &[rows]), ("bias_hh_l0", &[rows])];
    let mut tensors = HashMap::new();
    for (seed, (name, dims)) in shapes.into_iter().enumerate() {
        tensors.insert(name.to_owned(), input(seed as u64, dims, device)?);
    }
    Ok(VarBuilder::from_tensors(tensors, DType::F32, device))
}

#[test]
fn recurrent_layers_are_candles() -> Result<()> {
    let mut cases = Cases::default();
    cases.add("LSTM", |device| {
        let layer = candle_nn::lstm(2, 3, Default::default(), recurrent(4, device)?)?;
        let states = layer.seq(&input(9, &[2, 5, 2], device)?)?;
        layer.states_to_tensor(&states)
    });
    cases.add("GRU", |device| {
        let layer = candle_nn::gru(2, 3, Default::default(), recurrent(3, device)?)?;
        let states = layer.seq(&input(9, &[2, 5, 2], device)?)?;
        layer.states_to_tensor(&states)
    });
    cases.check(&plugin::open()?)
}

#[test]
fn caches_of_keys_and_values_are_candles() -> Result<()> {
    let mut cases = Cases::default();
    cases.add("cache", |device| {
        let mut cache = Cache::new(1, 8);
        for (seed, size) in [(1, 3), (2, 1), (3, 4)] {
            cache.append(&input(seed, &[2, size, 3], device)?)?;
        }
        Ok(cache.current_data()?.expect("it has data"))
    });
    cases.add("rotating cache", |device| {
        let mut cache = RotatingCache::new(1, 6);
        let mut data = Tensor::zeros(1, DType::F32, device)?;
        for (seed, size) in [(1, 3), (2, 1), (3, 4), (4, 1), (5, 2)] {
            data = cache.append(&input(seed, &[2, size, 3], device)?)?;
        }
        Ok(data)
    });
    cases.check(&plugin::open()?)
}

#[test]
fn bf16_is_near_f32() -> Result<()> {
    let device = plugin::open()?;
    let x = input(1, &[4, 8, 256], &device)?;
    let short = x.to_dtype(DType::BF16)?;
    let functions: [fn(&Tensor) -> Result<Tensor>; 5] =
        [Tensor::silu, ops::softmax_last_dim, Tensor::sqr, |x| x.sum(2), |x| x.matmul(&x.t()?)];
    for (place, function) in functions.into_iter().enumerate() {
        let (found, expected) = (wide(&function(&short)?)?, wide(&function(&x)?)?);
        let greatest = expected.iter().fold(1f64, |greatest, number| greatest.max(number.abs()));
        for (found, expected) in found.iter().zip(&expected) {
            assert!((found - expected).abs() < 0.02 * greatest, "function {place}: {found} and {expected}");
        }
    }
    Ok(())
}

#[test]
fn optimisers_reach_the_least_of_a_parabola() -> Result<()> {
    let device = plugin::open()?;
    let x = Var::new(0f32, &device)?;
    let mut optimiser = SGD::new(vec![x.clone()], 0.1)?;
    for _ in 0..60 {
        optimiser.backward_step(&(x.as_tensor() - 4.2)?.sqr()?)?;
    }
    assert!((x.to_scalar::<f32>()? - 4.2).abs() < 1e-4);
    Ok(())
}

#[test]
fn adamw_takes_candles_steps() -> Result<()> {
    let weights = |device: &Device| -> Result<Vec<f64>> {
        let weight = Var::from_tensor(&Tensor::zeros((1, 2), DType::F32, device)?)?;
        let mut optimiser = AdamW::new(vec![weight.clone()], ParamsAdamW { lr: 0.1, ..ParamsAdamW::default() })?;
        let x = Tensor::new(&[[2f32, 1.], [7., 4.], [-4., 12.], [5., 8.]], device)?;
        let y = Tensor::new(&[[7f32], [25.], [0.], [23.]], device)?;
        for _ in 0..30 {
            optimiser.backward_step(&(x.matmul(&weight.t()?)? - &y)?.sqr()?.sum_all()?)?;
        }
        wide(&weight)
    };
    for (found, expected) in weights(&plugin::open()?)?.iter().zip(weights(&Device::Cpu)?) {
        assert!((found - expected).abs() < 1e-4, "{found} and {expected}");
    }
    Ok(())
}
