//! Layers of candle-nn: norms, linear and recurrent layers, rotary embeddings, and what passes values on.

use super::{Operation, operations};
use crate::numbers::Numbers;
use candle_core::{Device, Result, Tensor};
use candle_nn::rnn::{GRUState, LSTMState};
use candle_nn::{
    BatchNorm, Dropout, GRU, GRUConfig, GroupNorm, Init, LSTM, LSTMConfig, LayerNorm, Linear, Module as _,
    ModuleT as _, RNN as _, RmsNorm, VarBuilder, kv_cache, ops, rotary_emb,
};
use std::collections::HashMap;

pub(super) fn all() -> Vec<Operation> {
    [norms(), recurrent(), rotary(), passed_on()].into_iter().flatten().collect()
}

fn norms() -> Vec<Operation> {
    operations! {
        "candle_nn::batch_norm::BatchNorm::forward_train" => |x, n| trained(x, n.float(0), n.float(1));
        "candle_nn::batch_norm::BatchNorm::forward_t" => |x, n| batch_norm(x, n.float(0), n.float(1))?.forward_t(&x[0], false);
        "candle_nn::batch_norm::BatchNorm::forward_t (train)" => |x, n| {
            batch_norm(x, n.float(0), n.float(1))?.forward_t(&x[0], true)
        };
        "candle_nn::group_norm::GroupNorm::forward" => |x, n| {
            GroupNorm::new(x[1].clone(), x[2].clone(), n.size(0), n.size(1), n.float(2))?.forward(&x[0])
        };
        "candle_nn::layer_norm::LayerNorm::forward" => |x, n| {
            LayerNorm::new(x[1].clone(), x[2].clone(), n.float(0)).forward(&x[0])
        };
        "candle_nn::layer_norm::LayerNorm::forward (no bias)" => |x, n| {
            LayerNorm::new_no_bias(x[1].clone(), n.float(0)).forward(&x[0])
        };
        "candle_nn::layer_norm::RmsNorm::forward" => |x, n| RmsNorm::new(x[1].clone(), n.float(0)).forward(&x[0]);
        "candle_nn::layer_norm::RmsNorm::forward_diff" => |x, n| RmsNorm::new(x[1].clone(), n.float(0)).forward_diff(&x[0]);
        "candle_nn::linear::Linear::forward" => |x, n| Linear::new(x[1].clone(), Some(x[2].clone())).forward(&x[0]);
        "candle_nn::linear::Linear::forward (no bias)" => |x, n| Linear::new(x[1].clone(), None).forward(&x[0]);
    }
}

fn recurrent() -> Vec<Operation> {
    operations! {
        "candle_nn::rnn::LSTM::step" => |x, n| lstm_step(x);
        "candle_nn::rnn::RNN::seq (LSTM)" => |x, n| lstm(x)?.states_to_tensor(&lstm(x)?.seq(&x[0])?);
        "candle_nn::rnn::GRU::step" => |x, n| Ok::<_, candle_core::Error>(gru(x)?.step(&x[0], &GRUState { h: x[5].clone() })?.h);
        "candle_nn::rnn::RNN::seq (GRU)" => |x, n| gru(x)?.states_to_tensor(&gru(x)?.seq(&x[0])?);
        "candle_nn::rnn::RNN::seq_init (GRU)" => |x, n| {
            gru(x)?.states_to_tensor(&gru(x)?.seq_init(&x[0], &GRUState { h: x[5].clone() })?)
        };
    }
}

fn rotary() -> Vec<Operation> {
    operations! {
        "candle_nn::rotary_emb::rope" => |x, n| rotary_emb::rope(&x[0], &x[1], &x[2]);
        "candle_nn::rotary_emb::rope_i" => |x, n| rotary_emb::rope_i(&x[0], &x[1], &x[2]);
        "candle_nn::rotary_emb::rope_thd" => |x, n| rotary_emb::rope_thd(&x[0], &x[1], &x[2]);
        "candle_nn::rotary_emb::rope_slow" => |x, n| rotary_emb::rope_slow(&x[0], &x[1], &x[2]);
        "candle_nn::rotary_emb::rope_i_slow" => |x, n| rotary_emb::rope_i_slow(&x[0], &x[1], &x[2]);
        "candle_nn::kv_cache::rope_i_inplace" => |x, n| rotated_in_place(x);
    }
}

fn passed_on() -> Vec<Operation> {
    operations! {
        "candle_nn::ops::dropout" => |x, n, device| ops::dropout(&x[0], n.float(0) as f32);
        "candle_nn::ops::Dropout::forward" => |x, n, device| Dropout::new(n.float(0) as f32).forward(&x[0], false);
        "candle_nn::ops::Dropout::forward_t" => |x, n, device| Dropout::new(n.float(0) as f32).forward_t(&x[0], false);
        "candle_nn::ops::Identity::forward" => |x, n, device| ops::Identity::new().forward(&x[0]);
        "candle_nn::init::Init::var" => |x, n, device| initial(n, device);
        "candle_nn::sequential::Sequential::forward" => |x, n, device| {
            candle_nn::seq().add_fn(|x| x.sqr()).add_fn(|x| x + 1.0).forward(&x[0])
        };
        "candle_nn::sequential::Sequential::forward_all" => |x, n, device| {
            candle_nn::seq().add_fn(|x| x.sqr()).add_fn(|x| x + 1.0).forward_all(&x[0])
        };
        "candle_nn::kv_cache::Cache::append" => |x, n, device| cached(x, n.size(0), n.size(1));
        "candle_nn::kv_cache::RotatingCache::append" => |x, n, device| rotated(x, n.size(0), n.size(1));
        "candle_nn::kv_cache::ConcatKvCache::append" => |x, n, device| concatenated(x, n.size(0));
    }
}

fn batch_norm(x: &[Tensor], epsilon: f64, momentum: f64) -> Result<BatchNorm> {
    let features = x[1].elem_count();
    let of = |tensor: &Tensor| tensor.detach().copy();
    BatchNorm::new_with_momentum(features, of(&x[1])?, of(&x[2])?, x[3].clone(), x[4].clone(), epsilon, momentum)
}

/// What a step of training returns, and the running mean and variance after it.
fn trained(x: &[Tensor], epsilon: f64, momentum: f64) -> Result<Vec<Tensor>> {
    let norm = batch_norm(x, epsilon, momentum)?;
    let result = norm.forward_train(&x[0])?;
    Ok(vec![result, norm.running_mean().detach(), norm.running_var().detach()])
}

/// The weights of a recurrent layer from the second tensor on.
fn weights(x: &[Tensor]) -> VarBuilder<'static> {
    let names = ["weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"];
    let named: HashMap<String, Tensor> = names.into_iter().map(str::to_owned).zip(x[1..5].iter().cloned()).collect();
    VarBuilder::from_tensors(named, x[0].dtype(), x[0].device())
}

fn lstm(x: &[Tensor]) -> Result<LSTM> {
    LSTM::new(x[1].dim(1)?, x[2].dim(1)?, LSTMConfig::default(), weights(x))
}

fn lstm_step(x: &[Tensor]) -> Result<Vec<Tensor>> {
    let state = lstm(x)?.step(&x[0], &LSTMState::new(x[5].clone(), x[6].clone()))?;
    Ok(vec![state.h, state.c])
}

fn gru(x: &[Tensor]) -> Result<GRU> {
    GRU::new(x[1].dim(1)?, x[2].dim(1)?, GRUConfig::default(), weights(x))
}

fn rotated_in_place(x: &[Tensor]) -> Result<Tensor> {
    let (heads, width) = x[0].dims2()?;
    let mut values = x[0].flatten_all()?.to_vec1::<f32>()?;
    kv_cache::rope_i_inplace(&mut values, &x[1].to_vec1::<f32>()?, &x[2].to_vec1::<f32>()?, heads, width);
    Tensor::from_vec(values, (heads, width), &Device::Cpu)
}

fn initial(n: &Numbers, device: &Device) -> Result<Tensor> {
    Ok(Init::Const(n.float(0)).var(n.sizes(1), n.dtype(2), device)?.as_tensor().clone())
}

fn cached(x: &[Tensor], dim: usize, length: usize) -> Result<Tensor> {
    let mut cache = kv_cache::Cache::new(dim, length);
    x.iter().try_for_each(|x| cache.append(x))?;
    cache.current_data()?.ok_or_else(|| candle_core::Error::Msg("an empty cache".to_owned()))
}

fn rotated(x: &[Tensor], dim: usize, length: usize) -> Result<Vec<Tensor>> {
    let mut cache = kv_cache::RotatingCache::new(dim, length);
    x.iter().map(|x| cache.append(x)?.copy()).collect()
}

fn concatenated(x: &[Tensor], dim: usize) -> Result<(Tensor, Tensor)> {
    let mut cache = kv_cache::ConcatKvCache::new(dim);
    cache.append(&x[0], &x[1])?;
    cache.append(&x[2], &x[3])
}
