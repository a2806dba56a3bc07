//! Chooses the device: a TPU, else a card, else the CPU, always with the reason of the choice.

use crate::report::Report;
use crate::tpu::Tpu;
use serde::{Deserialize, Serialize};

/// The chosen device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Connection {
    /// Name of the device: `tpu`, `cuda`, `rocm`, `oneapi` or `cpu`.
    pub device: String,
    /// The reason for this device and against better ones, on one line.
    pub reason: String,
}

/// The error for a required TPU that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// A TPU is required, but no TPU can be used.
    #[error("{reason}; leave out --require to fall back to a card or the CPU")]
    NoTpu {
        /// The reason why no TPU can be used.
        reason: String,
    },
}

/// Chooses the best device of a report that can be driven.
///
/// # Errors
///
/// If `require` is set, but no TPU can be used.
pub fn connect(report: &Report, require: bool) -> Result<Connection, ConnectError> {
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
    let mut reasons = vec![without_tpu];
    for cards in &report.cards {
        let Some(obstacle) = &cards.obstacle else {
            let reason = format!("{}; using the {cards}", reasons.join("; "));
            return Ok(Connection { device: cards.device.clone(), reason });
        };
        reasons.push(format!("the {} is not used: {obstacle}", cards.model));
    }
    if report.cards.is_empty() {
        reasons.push(format!("no CUDA: {}", report.no_cuda));
    }
    let reason = format!("{}; using the CPU ({})", reasons.join("; "), report.cpu);
    Ok(Connection { device: "cpu".into(), reason })
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
