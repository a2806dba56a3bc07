//! Chooses the device: a TPU, else CUDA, else the CPU, always with the reason of the choice.

use crate::report::Report;
use crate::tpu::Tpu;
use serde::{Deserialize, Serialize};

/// The kinds of devices that this build can drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Support {
    /// Whether candle is built with CUDA.
    pub cuda: bool,
}

/// The chosen device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Connection {
    /// Name of the device: `tpu`, `cuda:0`, `cpu`, or a plugin's: `xla:cpu`, `xla:/opt/plugin.so`.
    pub device: String,
    /// The reason for this device and against better ones, on one line.
    pub reason: String,
}

/// The error for a required TPU that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// A TPU is required, but no TPU can be used.
    #[error("{reason}; leave out --require to fall back to CUDA or the CPU")]
    NoTpu {
        /// The reason why no TPU can be used.
        reason: String,
    },
}

/// Chooses the best device of a report that this build can drive.
///
/// # Errors
///
/// If `require` is set, but no TPU can be used.
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

/// The reason why the TPU that was found cannot be used.
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
