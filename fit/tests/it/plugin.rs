//! Trainings on XLA:CPU, where each step is a program.

use crate::waves;
use candle_core::{DType, Device, Tensor};
use ferrotune_data::digits;
use ferrotune_devices::{Replica, Strategy};
use ferrotune_fit::Fit;
use ferrotune_nn::{self as nn, Model as _, metrics};
use ferrotune_state::Result;
use ferrotune_trial::{AdamW, optim};
use ferrotune_xla::{Options, backend_of};
use std::path::PathBuf;

fn plugin() -> PathBuf {
    let beside = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../target/venv/lib/python3.11/site-packages/fastatomstruct_xla_cpu/libpjrt_cpu.so"
    );
    std::env::var_os("FERROTUNE_XLA_CPU").unwrap_or_else(|| beside.into()).into()
}

fn device() -> Result<Device> {
    Ok(ferrotune_xla::open(&plugin())?)
}

#[test]
fn a_training_is_that_of_the_cpu_and_has_two_programs_for_batches_of_any_size() -> Result<()> {
    let [train, valid] = digits()?.split([0.8, 0.2], 7)?;
    let mut losses = Vec::new();
    let xla = device()?;
    for device in [&Device::Cpu, &xla] {
        let model = nn::mlp(64, &[32], 10).build(device)?;
        waves(&model)?;
        let fit =
            Fit::classifier(&model).optimizer(AdamW::lr(1e-2)).batch(100).metric("auc", metrics::auc()).clip_norm(1.0);
        let before = backend_of(device).map(|backend| backend.compilations());
        let history = fit.schedule(optim::linear(0.1)).epochs(4).early_stop("val_loss", 2).run(&train, &valid)?;
        if let (Some(backend), Some(before)) = (backend_of(device), before) {
            // The steps of training and validation, the reads of 15 and of 4 batches, the copies of the variables, and small ones. More
            // epochs need no other.
            let programs = backend.compilations() - before;
            assert!(programs <= 10, "{programs} programs were compiled");
        }
        losses.push(
            [history.get("loss"), history.get("val_loss"), history.get("val_auc"), history.get("accuracy")].concat(),
        );
        let (images, labels) = valid.to_tensors()?;
        let mut accuracy = metrics::accuracy();
        accuracy.update(&model.predict(&images.to_device(device)?)?, &labels.to_device(device)?)?;
        assert_eq!(Some(accuracy.value()?), history.value("val_accuracy"));
    }
    for (cpu, xla) in losses[0].iter().zip(&losses[1]) {
        assert!((cpu - xla).abs() < 2e-3 * cpu.abs().max(1.0), "{cpu} and {xla}");
    }
    Ok(())
}

#[test]
fn batch_norm_sees_no_filled_rows() -> Result<()> {
    let [train, valid] = digits()?.split([0.8, 0.2], 7)?;
    let mut losses = Vec::new();
    let xla = device()?;
    for device in [&Device::Cpu, &xla] {
        let model = nn::mlp(64, &[16], 10).batch_norm().build(device)?;
        waves(&model)?;
        // The last batch has 37 rows.
        let history =
            Fit::classifier(&model).optimizer(optim::SGD::lr(0.05)).batch(100).epochs(2).run(&train, &valid)?;
        losses.push([history.get("loss"), history.get("val_loss")].concat());
    }
    for (cpu, xla) in losses[0].iter().zip(&losses[1]) {
        assert!((cpu - xla).abs() < 1e-3 * cpu.abs().max(1.0), "{cpu} and {xla}");
    }
    Ok(())
}

#[test]
fn a_closure_of_the_mean_counts_each_row_once() -> Result<()> {
    let [train, valid] = digits()?.split([0.8, 0.2], 7)?;
    let mut losses = Vec::new();
    let xla = device()?;
    for device in [&Device::Cpu, &xla] {
        let model = nn::mlp(64, &[8], 10).build(device)?;
        for var in model.trainable() {
            var.set(&var.zeros_like()?)?;
        }
        let fit = Fit::new(&model).loss(candle_nn::loss::cross_entropy).optimizer(optim::SGD::lr(0.1)).batch(100);
        losses.push(fit.epochs(2).run(&train, &valid)?.get("val_loss"));
    }
    for (cpu, xla) in losses[0].iter().zip(&losses[1]) {
        assert!((cpu - xla).abs() < 1e-4, "{cpu} and {xla}");
    }
    Ok(())
}

#[test]
fn mixed_precision_trains_and_rounds_factors() -> Result<()> {
    let [train, valid] = digits()?.split([0.8, 0.2], 7)?;
    let xla = device()?;
    let mut all = Vec::new();
    for precision in [DType::F32, DType::BF16] {
        let model = nn::cnn([1, 8, 8], &[8], 10).build(&xla)?;
        waves(&model)?;
        let images = |(images, label): (Tensor, Tensor)| Ok((images.reshape((1, 8, 8))?, label));
        let (train, valid) = (train.map(1, images), valid.map(1, images));
        let fit = Fit::classifier(&model).optimizer(AdamW::lr(1e-2)).batch(100).precision(precision);
        let history = fit.epochs(3).run(&train, &valid)?;
        assert!(model.trainable().iter().all(|var| var.dtype() == DType::F32));
        all.push(history);
    }
    let losses = |history: usize| all[history].get("val_loss");
    for (full, mixed) in losses(0).iter().zip(losses(1)) {
        assert!((full - mixed).abs() < 0.05 * full.max(0.2), "{full} and {mixed}");
        assert!((full - mixed).abs() > 1e-7, "the precision changed nothing");
    }
    Ok(())
}

#[test]
fn accumulated_gradients_and_steps_of_ones_own_are_programs_too() -> Result<()> {
    let [train, valid] = digits()?.split([0.8, 0.2], 7)?;
    let mut losses = Vec::new();
    let xla = device()?;
    for device in [&Device::Cpu, &xla] {
        let model = nn::mlp(64, &[16], 10).build(device)?;
        waves(&model)?;
        let accumulated = Fit::classifier(&model).optimizer(optim::SGD::lr(0.1)).batch(50).accumulate(4).epochs(2);
        let before = backend_of(device).map(|backend| backend.compilations());
        let accumulated = accumulated.run(&train, &valid)?;
        let own = Fit::new(&model)
            .optimizer_of("0.", AdamW::lr(1e-3))
            .optimizer_of("2.", optim::SGD::lr(0.1))
            .step(|model, batch| {
                let outputs = model.forward(&batch.inputs, batch.train)?;
                let likelihoods = candle_nn::ops::log_softmax(&outputs, 1)?;
                let losses = likelihoods.gather(&batch.targets.unsqueeze(1)?, 1)?.neg()?;
                batch.log("worst", &losses)?;
                Ok(losses)
            })
            .batch(100)
            .epochs(2)
            .run(&train, &valid)?;
        let steps = Fit::new(&model)
            .optimizer_of("0.", AdamW::lr(1e-3))
            .optimizer_of("2.", AdamW::lr(1e-3))
            .steps(|model, batch| {
                let loss = || {
                    let outputs = model.forward(&batch.inputs, batch.train)?;
                    candle_nn::loss::cross_entropy(&outputs, &batch.targets)
                };
                batch.minimize("0.", &loss()?)?;
                batch.minimize("2.", &loss()?)
            })
            .batch(100)
            .epochs(2)
            .run(&train, &valid)?;
        if let (Some(backend), Some(before)) = (backend_of(device), before) {
            let programs = backend.compilations() - before;
            assert!(programs <= 30, "{programs} programs were compiled");
        }
        assert_eq!(own.get("worst"), own.get("loss"));
        let of = |history: &ferrotune_fit::History| [history.get("loss"), history.get("val_loss")].concat();
        losses.push([of(&accumulated), of(&own), of(&steps)].concat());
    }
    for (cpu, xla) in losses[0].iter().zip(&losses[1]) {
        assert!((cpu - xla).abs() < 2e-3 * cpu.abs().max(1.0), "{cpu} and {xla}");
    }
    Ok(())
}

#[test]
fn several_cores_train_as_one_device() -> Result<()> {
    let [train, valid] = digits()?.split([0.8, 0.2], 7)?;
    let mut losses = Vec::new();
    let mesh = ferrotune_xla::open_with(&plugin(), Options { mesh: &[("data", 2)], ..Options::default() })?;
    let strategy = Strategy::cores("xla:cpu", 2)?;
    let trained = |device: &Device, replica: Option<&Replica<'_>>| -> Result<Vec<f64>> {
        let model = nn::mlp(64, &[16], 10).build(device)?;
        waves(&model)?;
        let fit = Fit::classifier(&model).optimizer(optim::SGD::lr(0.1)).batch(100).epochs(2);
        let fit = if let Some(replica) = replica { fit.replica(replica) } else { fit };
        let history = fit.run(&train, &valid)?;
        Ok([history.get("loss"), history.get("val_accuracy")].concat())
    };
    losses.push(trained(&Device::Cpu, None)?);
    losses.extend(strategy.scope(|replica| trained(&mesh, Some(replica))).into_iter().collect::<Result<Vec<_>>>()?);
    let elsewhere = strategy.scope(|replica| trained(&Device::Cpu, Some(replica))).swap_remove(0);
    let told = elsewhere.expect_err("the CPU is not the strategy's device").to_string();
    assert!(told.contains("with 1 cores, and the strategy has 2; build it on `strategy::device(replica)?`"), "{told}");
    for (cpu, mesh) in losses[0].iter().zip(&losses[1]) {
        assert!((cpu - mesh).abs() < 2e-3 * cpu.abs().max(1.0), "{cpu} and {mesh}");
    }
    Ok(())
}
