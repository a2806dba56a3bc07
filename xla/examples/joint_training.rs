//! One of several processes that train one model on the devices of a plugin in all of them: `joint_training PLUGIN DEVICES STEPS`, with
//! TensorFlow's `TF_CONFIG` and the number of devices of all processes. `joint_training cpu 1 STEPS` trains the model alone on the CPU.
//! The process prints the loss of the last step, and the weights.

use candle_core::{DType, Device, Result, Tensor, Var};
use candle_nn::{Module as _, VarBuilder, VarMap};
use ferrotune_devices::Cluster;
use ferrotune_xla::{Options, Step, open_across, with_sharding_constraint};
use std::error::Error;
use std::io::Write as _;

const WEIGHTS: [(&str, usize, f32); 4] =
    [("first.weight", 8 * 6, 2.1), ("first.bias", 8, 0.3), ("last.weight", 8, 2.9), ("last.bias", 1, 1.0)];

fn main() -> std::result::Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, plugin, devices, steps] = arguments.as_slice() else {
        return Err("usage: joint_training PLUGIN DEVICES STEPS, or joint_training cpu 1 STEPS".into());
    };
    let device = match plugin.as_str() {
        "cpu" => Device::Cpu,
        plugin => {
            let mesh: &[(&str, usize)] = &[("data", devices.parse()?)];
            open_across(plugin.as_ref(), &Cluster::from_environment()?, Options { mesh, ..Options::default() })?
        }
    };
    let (loss, weights) = train(&device, steps.parse()?)?;
    writeln!(std::io::stdout(), "{loss:?}\n{weights:?}")?;
    Ok(())
}

fn train(device: &Device, steps: usize) -> Result<(f32, Vec<f32>)> {
    let map = VarMap::new();
    let build = VarBuilder::from_varmap(&map, DType::F32, device);
    let (first, last) = (candle_nn::linear(6, 8, build.pp("first"))?, candle_nn::linear(8, 1, build.pp("last"))?);
    // The variables have another order in each process.
    let variables = map.all_vars();
    let variable = |name: &str| map.data().lock().unwrap_or_else(std::sync::PoisonError::into_inner)[name].clone();
    for (name, count, step) in WEIGHTS {
        variable(name).set(&Tensor::from_vec(wave(count, step), variable(name).shape(), device)?)?;
    }
    let zeros = |var: &Var| Var::zeros(var.shape(), DType::F32, device);
    let velocities = variables.iter().map(zeros).collect::<Result<Vec<_>>>()?;
    let mut step = Step::new(device, |args: &[Tensor]| {
        let rows = |tensor: &Tensor| with_sharding_constraint(tensor, &[Some("data"), None]);
        let made = last.forward(&first.forward(&rows(&args[0])?)?.tanh()?)?;
        let loss = made.sub(&rows(&args[1])?)?.sqr()?.mean_all()?;
        let gradients = loss.backward()?;
        for (var, velocity) in variables.iter().zip(&velocities) {
            if let Some(gradient) = gradients.get(var) {
                velocity.set(&((velocity.as_tensor() * 0.9)? + gradient)?)?;
                var.set(&(var.as_tensor() - (velocity.as_tensor() * 0.05)?)?)?;
            }
        }
        Ok(vec![loss])
    });
    let x = Tensor::from_vec(wave(32 * 6, 0.7), (32, 6), device)?;
    let y = Tensor::from_vec(wave(32, 1.3), (32, 1), device)?;
    let mut loss = f32::NAN;
    for _ in 0..steps {
        loss = step.run(&[x.clone(), y.clone()])?[0].to_scalar()?;
    }
    let weights = WEIGHTS.iter().map(|(name, ..)| variable(name).flatten_all()).collect::<Result<Vec<_>>>()?;
    Ok((loss, Tensor::cat(&weights, 0)?.to_vec1()?))
}

fn wave(count: usize, step: f32) -> Vec<f32> {
    (0..count).map(|place| (place as f32 * step).sin()).collect()
}
