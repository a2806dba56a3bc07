//! Trainings on XLA:CPU, where each step is a program.

use candle_core::{Device, Tensor};
use ferrotune_data::digits;
use ferrotune_fit::Fit;
use ferrotune_nn::{self as nn, Model as _, Sequential, metrics};
use ferrotune_state::Result;
use ferrotune_trial::{AdamW, optim};
use ferrotune_xla::backend_of;

fn device() -> Result<Device> {
    let beside = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../target/venv/lib/python3.11/site-packages/xla_plugins/xla_cpu_pjrt/xla_cpu_pjrt.so"
    );
    let plugin = std::env::var_os("FERROTUNE_XLA_CPU").unwrap_or_else(|| beside.into());
    Ok(ferrotune_xla::open(plugin.as_ref())?)
}

/// Sets the first weights to numbers that are not random.
fn set_waves(model: &Sequential) -> Result<()> {
    for (place, var) in model.trainable().into_iter().enumerate() {
        let wave: Vec<f32> = (0..var.elem_count()).map(|index| (index as f32 + place as f32).sin() * 0.2).collect();
        var.set(&Tensor::from_vec(wave, var.shape(), &Device::Cpu)?.to_device(var.device())?)?;
    }
    Ok(())
}

#[test]
fn a_training_is_that_of_the_cpu_and_has_two_programs_for_batches_of_any_size() -> Result<()> {
    let [train, valid] = digits()?.split([0.8, 0.2], 7)?;
    let mut losses = Vec::new();
    let xla = device()?;
    for device in [&Device::Cpu, &xla] {
        let model = nn::mlp(64, &[32], 10).build(device)?;
        set_waves(&model)?;
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
        set_waves(&model)?;
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
