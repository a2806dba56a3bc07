//! Chooses the device: a TPU, else CUDA, else the CPU, always with the reason.

use crate::report::Report;
use crate::tpu::Tpu;
use serde::{Deserialize, Serialize};

/// Which devices this build can drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Support {
    /// Whether candle is built with CUDA.
    pub cuda: bool,
}

/// The device to use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Connection {
    /// `tpu`, `cuda:0`, `cpu`, or a plugin's: `xla:cpu`, `xla:/opt/plugin.so`.
    pub device: String,
    /// Why this one, and no better one, on one line.
    pub reason: String,
}

/// The TPU that was required cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// A TPU is required, and none can be used.
    #[error("{reason}; leave out --require to fall back to CUDA or the CPU")]
    NoTpu {
        /// Why.
        reason: String,
    },
}

/// Chooses the best device of a report that this build can drive.
///
/// # Errors
///
/// If `require` is set and there is no TPU that can be used.
pub fn connect(report: &Report, support: Support, require: bool) -> Result<Connection, ConnectError> {
    let without_tpu = match (&report.tpu, tpu_obstacle(report)) {
        (Some(tpu), None) => {
            return Ok(Connection { device: "tpu".into(), reason: format!("using the {tpu}") });
        }
        (Some(tpu), Some(obstacle)) => format!("the {tpu} is not used: {obstacle}"),
        (None, _) => format!("no TPU: {}", report.no_tpu),
    };
    if require {
        return Err(ConnectError::NoTpu { reason: without_tpu });
    }
    let without_cuda = match report.cuda.first() {
        Some(device) if support.cuda => {
            let reason = format!("{without_tpu}; using CUDA device {} ({})", device.index, device.name);
            return Ok(Connection { device: format!("cuda:{}", device.index), reason });
        }
        Some(device) => {
            let name = &device.name;
            format!("the {name} is not used: this build of candle has no CUDA; `ferrotune install --cuda` makes one")
        }
        None if support.cuda => format!("no CUDA: {}", report.no_cuda),
        None => format!("no CUDA: {}, and this build of candle has no CUDA", report.no_cuda),
    };
    let reason = format!("{without_tpu}; {without_cuda}");
    Ok(Connection { device: "cpu".into(), reason: format!("{reason}; using the CPU ({})", report.cpu) })
}

/// Why the TPU that was found cannot be used.
fn tpu_obstacle(report: &Report) -> Option<String> {
    let Tpu { name, chips, .. } = report.tpu.as_ref()?;
    if chips.is_none() {
        let why = match name {
            Some(_) => "it is named but not attached to this machine, and only attached TPUs can be driven",
            None => "no chip is visible here; a container needs --privileged or the TPU's device nodes",
        };
        return Some(why.to_owned());
    }
    if report.libtpu.is_none() {
        return Some("libtpu is not installed; pip install libtpu, or set TPU_LIBRARY_PATH".to_owned());
    }
    report.tpu_failure.as_ref().map(|failure| format!("it does not open: {failure}"))
}
