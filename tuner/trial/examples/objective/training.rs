//! Scenarios that train for epochs and restore checkpoints. A scenario fails if it restores a state that it did not save.

use super::faults::die_of_a_fault;
use super::memory::status_kib;
use super::quick_parameter;
use candle_core::{DType, Device, Tensor};
use candle_nn::{Optimizer as _, ParamsAdamW, VarMap};
use ferrotune_trial::{AdamW, Result, Trial};
use std::time::Duration;

/// Counts epochs in a model of one number, and fails if a checkpoint has a wrong state.
pub(crate) fn train(trial: &Trial, work: Duration) -> Result<Option<f64>> {
    let x = quick_parameter(trial)?;
    let vars = VarMap::new();
    let count = vars.get(1, "count", candle_nn::Init::Const(0.0), DType::F32, &Device::Cpu)?;
    let mut done: f32 = if trial.restore(&vars)? { count_of(&vars)? } else { count.to_vec1::<f32>()?[0] };
    for epoch in trial.epochs(27) {
        if done as usize != epoch {
            return Err(format!("the model has seen {done} epochs at epoch {epoch}").into());
        }
        std::thread::sleep(work);
        done += 1.0;
        set_count(&vars, done)?;
        trial.report(epoch, [("val_accuracy", x * f64::from(done) / 27.0), ("done", f64::from(done))])?;
        trial.checkpoint(&vars)?;
    }
    trial.best("val_accuracy").map(Some)
}

/// A scenario whose best epoch is the second.
pub(crate) fn peaked(trial: &Trial) -> Result<Option<f64>> {
    let x = quick_parameter(trial)?;
    let mut seen = 0_u64;
    trial.restore(&mut seen)?;
    for epoch in trial.epochs(27) {
        std::thread::sleep(Duration::from_millis(20));
        seen += 1;
        trial.report(epoch, [("val_accuracy", if epoch == 1 { 1.0 + x } else { x })])?;
        trial.checkpoint(&seen)?;
    }
    trial.best("val_accuracy").map(Some)
}

/// A scenario with a state of 480 MiB. It dies after its first checkpoint, and reports the memory that the restore takes.
pub(crate) fn heavy(trial: &Trial) -> Result<Option<f64>> {
    let x = quick_parameter(trial)?;
    let (model, small) = (VarMap::new(), VarMap::new());
    let make = |vars: &VarMap, name: usize, mib: usize| {
        vars.get((mib, 1 << 18), &name.to_string(), candle_nn::Init::Const(0.0), DType::F32, &Device::Cpu)
    };
    (0..6).try_for_each(|name| make(&model, name, 64).map(drop))?;
    (0..4).try_for_each(|name| make(&small, name, 8).map(drop))?;
    let mut optimiser = AdamW::new(small.all_vars(), ParamsAdamW::default())?;
    let before_kib = status_kib("VmData:")?;
    let is_restored = trial.restore((&model, &mut optimiser))?;
    let grown_mib = (status_kib("VmData:")? - before_kib) / 1024.0;
    for epoch in trial.epochs(2) {
        for var in model.all_vars() {
            var.set(&(var.as_tensor() + 1.0)?)?;
        }
        let losses = small.all_vars().iter().map(|var| var.sum_all()).collect::<Result<Vec<_>, _>>()?;
        optimiser.backward_step(&Tensor::stack(&losses, 0)?.sum_all()?)?;
        let largest =
            model.all_vars().iter().map(|var| var.max_all()?.to_scalar::<f32>()).collect::<Result<Vec<_>, _>>()?;
        let same = f64::from(largest.iter().all(|value| *value == epoch as f32 + 1.0));
        trial.report(epoch, [("val_accuracy", x), ("grown_mib", grown_mib), ("same", same)])?;
        trial.checkpoint((&model, &optimiser))?;
        if !is_restored {
            die_of_a_fault()?;
        }
    }
    Ok(Some(x))
}

/// Reports 101 metrics in each of 1,500 steps at once, which makes megabytes.
pub(crate) fn long(trial: &Trial) -> Result<Option<f64>> {
    let x = quick_parameter(trial)?;
    let names: Vec<String> = (0..100).map(|index| format!("gradient_of_layer_{index}")).collect();
    for step in 0..1500 {
        let others = names.iter().map(|name| (name.as_str(), x + f64::from(step) / 7.0));
        trial.report(step as usize, others.chain([("val_accuracy", x)]))?;
    }
    Ok(Some(x))
}

/// Trains a model that records the number of its epochs, and the trial in which it began.
pub(crate) fn population(trial: &Trial) -> Result<Option<f64>> {
    let x = quick_parameter(trial)?;
    let vars = VarMap::new();
    let count = vars.get(1, "count", candle_nn::Init::Const(0.0), DType::F32, &Device::Cpu)?;
    let origin = candle_nn::Init::Const(trial.number() as f64);
    let origin = vars.get(1, "origin", origin, DType::F32, &Device::Cpu)?;
    trial.restore(&vars)?;
    let value_of = |var: &Tensor| Ok::<_, candle_core::Error>(f64::from(var.to_vec1::<f32>()?[0]));
    for epoch in trial.epochs(20) {
        if value_of(&count)? as usize != epoch {
            return Err(format!("the model has seen {} epochs at epoch {epoch}", value_of(&count)?).into());
        }
        let step = Tensor::new(&[epoch as f32 + 1.0], &Device::Cpu)?;
        vars.data().lock().map_err(|_| "poisoned")?["count"].set(&step)?;
        trial.report(epoch, [("val_accuracy", x + epoch as f64), ("origin", value_of(&origin)?)])?;
        trial.checkpoint(&vars)?;
    }
    trial.best("val_accuracy").map(Some)
}

/// Fails if it finds files or a state of another execution.
pub(crate) fn execution(trial: &Trial) -> Result<Option<f64>> {
    let x = quick_parameter(trial)?;
    let mut begun_by: u64 = trial.execution();
    trial.restore(&mut begun_by)?;
    if begun_by != trial.execution() {
        return Err(format!("execution {} goes on from {begun_by}", trial.execution()).into());
    }
    for epoch in trial.epochs(5) {
        std::thread::sleep(Duration::from_millis(40));
        let seed = (trial.seed() % 1_000_000) as f64;
        trial.report(epoch, [("val_accuracy", x + trial.execution() as f64), ("seed", seed)])?;
        trial.checkpoint(&begun_by)?;
    }
    Ok(None)
}

fn count_of(vars: &VarMap) -> Result<f32> {
    Ok(vars.all_vars()[0].to_vec1::<f32>()?[0])
}

fn set_count(vars: &VarMap, count: f32) -> Result<()> {
    Ok(vars.all_vars()[0].set(&Tensor::new(&[count], &Device::Cpu)?)?)
}
