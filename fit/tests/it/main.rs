//! Trainings beside loops written by hand, on the CPU and on XLA:CPU.

mod cpu;
mod plugin;
mod replicas;
mod steps;

use candle_core::{Device, Result, Tensor};
use ferrotune_nn::{Model as _, Sequential};

/// Sets the first weights to numbers that are not random.
fn waves(model: &Sequential) -> Result<()> {
    for (place, var) in model.trainable().into_iter().enumerate() {
        let wave: Vec<f32> =
            (0..var.elem_count()).map(|index| (index as f32 * 0.7 + place as f32).sin() * 0.2).collect();
        var.set(&Tensor::from_vec(wave, var.shape(), &Device::Cpu)?.to_device(var.device())?)?;
    }
    Ok(())
}
