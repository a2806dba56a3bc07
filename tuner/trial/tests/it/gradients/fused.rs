//! Tests of candle-nn's fused operations, which have no gradient of their own, and of its layers and losses.

use super::difference::{Draws, assert_close, backward, check, check_f32};
use candle_core::{DType, Device, Result, Tensor};
use candle_nn::{BatchNorm, loss, ops, rotary_emb};

const RANGE: (f64, f64) = (-2., 2.);

#[test]
fn softmax_of_the_last_dimension() {
    let inputs = [Draws::new(1).tensor(&[2, 3, 4], RANGE)];
    check("softmax_last_dim", &inputs, |inputs| ops::softmax_last_dim(&inputs[0]));
    check("softmax_last_dim of a copy", &inputs, |inputs| {
        ops::softmax_last_dim(&inputs[0].transpose(0, 2)?.contiguous()?)
    });
}

#[test]
fn norms() {
    for (seed, epsilon) in [1e-5, 1e-3, 0.5].into_iter().enumerate() {
        let mut draws = Draws::new(seed as u64);
        let inputs = [draws.tensor(&[2, 3, 5], RANGE), draws.tensor(&[5], RANGE), draws.tensor(&[5], RANGE)];
        let slow_rms = |inputs: &[Tensor]| ops::rms_norm_slow(&inputs[0], &inputs[1], epsilon);
        let slow_layer = |inputs: &[Tensor]| ops::layer_norm_slow(&inputs[0], &inputs[1], &inputs[2], epsilon);
        check("rms_norm_slow", &inputs[..2], slow_rms);
        check("layer_norm_slow", &inputs, slow_layer);
        check_f32("rms_norm", &inputs[..2], |inputs| ops::rms_norm(&inputs[0], &inputs[1], epsilon), slow_rms);
        check_f32(
            "layer_norm",
            &inputs,
            |inputs| ops::layer_norm(&inputs[0], &inputs[1], &inputs[2], epsilon),
            slow_layer,
        );
    }
}

#[test]
fn norms_in_half_precision_are_computed_in_f32() {
    let mut draws = Draws::new(5);
    let inputs = [draws.tensor(&[3, 64], RANGE), draws.tensor(&[64], RANGE), draws.tensor(&[64], RANGE)];
    let layer_norm = |inputs: &[Tensor]| ops::layer_norm(&inputs[0], &inputs[1], &inputs[2], 1e-5);
    for dtype in [DType::BF16, DType::F16] {
        let half: Vec<Tensor> = inputs.iter().map(|input| input.to_dtype(dtype).unwrap()).collect();
        let single: Vec<Tensor> = half.iter().map(|input| input.to_dtype(DType::F32).unwrap()).collect();
        let expected = backward(&single, layer_norm).unwrap();
        for (gradient, expected) in backward(&half, layer_norm).unwrap().iter().zip(&expected) {
            assert_eq!(gradient.dtype(), dtype);
            assert_close(&format!("layer_norm in {dtype:?}"), gradient, expected, 1e-2);
        }
    }
}

#[test]
fn rotary_embeddings() {
    type Rope = fn(&Tensor, &Tensor, &Tensor) -> Result<Tensor>;
    let cases: [(&str, Rope, [usize; 4]); 3] = [
        ("rope", rotary_emb::rope, [2, 2, 3, 4]),
        ("rope_i", rotary_emb::rope_i, [2, 2, 3, 4]),
        ("rope_thd", rotary_emb::rope_thd, [2, 3, 2, 4]),
    ];
    for (name, function, dims) in cases {
        // Tables with as many rows as positions, with more rows, and with one table for each sequence.
        let tables: [&[usize]; 3] = [&[3, 2], &[5, 2], &[2, 3, 2]];
        for table in tables {
            let mut draws = Draws::new(2);
            let inputs = [draws.tensor(&dims, RANGE), draws.tensor(table, RANGE), draws.tensor(table, RANGE)];
            check(&format!("{name} with a table of {table:?}"), &inputs, |inputs| {
                function(&inputs[0], &inputs[1], &inputs[2])
            });
        }
    }
}

#[test]
fn batch_norm_in_training() {
    let mut draws = Draws::new(4);
    let inputs = [draws.tensor(&[4, 3, 2], RANGE), draws.tensor(&[3], RANGE), draws.tensor(&[3], RANGE)];
    check("BatchNorm", &inputs, |inputs| {
        let dtype = inputs[0].dtype();
        let mean = Tensor::zeros(3, dtype, &Device::Cpu)?;
        let variance = Tensor::ones(3, dtype, &Device::Cpu)?;
        BatchNorm::new(3, mean, variance, inputs[1].clone(), inputs[2].clone(), 1e-5)?.forward_train(&inputs[0])
    });
}

#[test]
fn losses() {
    let mut draws = Draws::new(6);
    let inputs = [draws.tensor(&[4, 3], RANGE), draws.tensor(&[4, 3], (0.1, 0.9))];
    let classes = draws.indexes(&[4], 3);
    check("cross_entropy", &inputs[..1], |inputs| loss::cross_entropy(&inputs[0], &classes));
    check("mse", &inputs, |inputs| loss::mse(&inputs[0], &inputs[1]));
    check("huber", &inputs, |inputs| loss::huber(&inputs[0], &inputs[1], 0.7));
    check("binary_cross_entropy_with_logit", &inputs, |inputs| {
        loss::binary_cross_entropy_with_logit(&inputs[0], &inputs[1])
    });
}
