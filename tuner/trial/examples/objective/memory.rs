//! Scenarios that measure memory: of shared data that are mapped, and of tensors that are freed and allocated again.

use super::quick_parameter;
use candle_core::{DType, Device, Tensor};
use ferrotune_trial::{Result, Share as _, Shared, Trial};
use std::path::Path;
use std::time::Instant;

/// Maps the shared data once more, and reports the cost in time and memory.
pub(crate) fn look_at_shared(trial: &Trial, shared: &Shared) -> Result<Option<f64>> {
    let x = quick_parameter(trial)?;
    let given = Tensor::unpack("data", shared)?;
    let path = std::env::var_os("FERROTUNE_SHARED").ok_or("nothing shared")?;
    let (start, before) = (Instant::now(), anonymous_kib()?);
    let again = Tensor::unpack("data", &Shared::open(Path::new(&path))?)?;
    let open_ms = start.elapsed().as_secs_f64() * 1e3;
    let last = again.narrow(0, again.dim(0)? - 1, 1)?.flatten_all()?.to_vec1::<f32>()?;
    let grown_kib = anonymous_kib()? - before;
    let same = f64::from(given.dims() == again.dims() && last.iter().all(|value| *value == 7.0));
    trial.report(0, [("val_accuracy", x), ("open_ms", open_ms), ("grown_kib", grown_kib), ("same", same)])?;
    Ok(None)
}

/// Reports the number of pages that the system provides for a step whose tensors have the sizes of the previous step.
pub(crate) fn step_again(trial: &Trial) -> Result<Option<f64>> {
    let x = quick_parameter(trial)?;
    let weights = Tensor::ones((512, 512), DType::F32, &Device::Cpu)?;
    let step = || -> Result<()> {
        let hidden = (0..8).try_fold(weights.clone(), |values, _| (values * 0.5)?.relu())?;
        std::hint::black_box(hidden.sum_all()?.to_scalar::<f32>()?);
        Ok(())
    };
    step()?;
    let before = page_faults()?;
    (0..20).try_for_each(|_| step())?;
    trial.report(0, [("val_accuracy", x), ("faults", (page_faults()? - before) / 20.0)])?;
    Ok(None)
}

/// Holds 130 MiB in tensors of one size, frees them, and then does the same with other sizes.
pub(crate) fn change_sizes(trial: &Trial) -> Result<Option<f64>> {
    let x = quick_parameter(trial)?;
    for mib in [1, 3, 10, 32, 130, 2] {
        let held: Result<Vec<_>> =
            (0..130 / mib).map(|_| Ok(Tensor::ones((mib, 1 << 18), DType::F32, &Device::Cpu)?)).collect();
        std::hint::black_box(held?);
        // Long enough for the memory watch to see the memory.
        std::thread::sleep(std::time::Duration::from_millis(30));
    }
    Ok(Some(x))
}

/// The number of pages that the system has provided to this process without reading them from a disk.
fn page_faults() -> Result<f64> {
    let status = std::fs::read_to_string("/proc/self/stat")?;
    let after_name = status.rsplit_once(')').ok_or("no name")?.1;
    Ok(after_name.split_whitespace().nth(7).ok_or("no faults")?.parse()?)
}

fn anonymous_kib() -> Result<f64> {
    status_kib("RssAnon:")
}

pub(crate) fn status_kib(name: &str) -> Result<f64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find(|line| line.starts_with(name)).ok_or_else(|| format!("no {name}"))?;
    Ok(line.split_whitespace().nth(1).ok_or("no number")?.parse()?)
}
