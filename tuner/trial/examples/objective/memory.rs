//! The scenario that measures what a mapping of shared data costs.

use super::quick_parameter;
use candle_core::Tensor;
use ferrotune_trial::{Result, Share as _, Shared, Trial};
use std::path::Path;
use std::time::Instant;

/// Maps the shared data once more and reports what that cost.
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

fn anonymous_kib() -> Result<f64> {
    status_kib("RssAnon:")
}

pub(crate) fn status_kib(name: &str) -> Result<f64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find(|line| line.starts_with(name)).ok_or_else(|| format!("no {name}"))?;
    Ok(line.split_whitespace().nth(1).ok_or("no number")?.parse()?)
}
