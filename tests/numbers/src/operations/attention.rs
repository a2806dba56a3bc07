//! Attention of candle-nn, which computes on the CPU alone.

use super::{Operation, operations};
use crate::numbers::Numbers;
use candle_core::{DType, Result, Tensor};
use candle_nn::attention::{AttnMask, cpu_flash, flash_attn, varlen};
use candle_nn::ops;

pub(super) fn all() -> Vec<Operation> {
    operations! {
        "candle_nn::attention::cpu_flash::flash_attn" => |x, n| attention(x, n, AttnMask::None);
        "candle_nn::attention::cpu_flash::flash_attn (causal)" => |x, n| attention(x, n, AttnMask::causal());
        "candle_nn::attention::cpu_flash::standard::run_flash_attn_cpu" => |x, n| {
            cpu_flash::standard::run_flash_attn_cpu::<f32>(&x[0], &x[1], &x[2], x.get(3), n.float(0) as f32, None, None)
        };
        "candle_nn::attention::cpu_flash::causal::run_causal_attn_cpu" => |x, n| {
            cpu_flash::causal::run_causal_attn_cpu::<f32>(&x[0], &x[1], &x[2], n.float(0) as f32, 0, None, None)
        };
        "candle_nn::attention::varlen::flash_attn_varlen_unfused" => |x, n| {
            varlen::flash_attn_varlen_unfused(&x[0], &x[1], &x[2], None, &x[3], &x[4], n.size(1), n.size(2), n.float(0) as f32, n.flag(3), None, None)
        };
        "candle_nn::attention::cpu_flash::varlen::flash_attn_varlen_cpu" => |x, n| {
            cpu_flash::varlen::flash_attn_varlen_cpu(&x[0], &x[1], &x[2], None, &x[3], &x[4], n.size(1), n.size(2), n.float(0) as f32, n.flag(3), None, None)
        };
        "candle_nn::ops::sdpa" => |x, n| ops::sdpa(&x[0], &x[1], &x[2], None, false, n.float(0) as f32, 1.0);
    }
}

fn attention(x: &[Tensor], n: &Numbers, mask: AttnMask) -> Result<Tensor> {
    let scale = n.float(0) as f32;
    match x[0].dtype() {
        DType::F32 => flash_attn::<f32>(&x[0], &x[1], &x[2], scale, mask, None, None),
        DType::F16 => flash_attn::<half::f16>(&x[0], &x[1], &x[2], scale, mask, None, None),
        DType::BF16 => flash_attn::<half::bf16>(&x[0], &x[1], &x[2], scale, mask, None, None),
        _ => flash_attn::<f64>(&x[0], &x[1], &x[2], scale, mask, None, None),
    }
}
