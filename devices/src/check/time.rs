//! Estimates the least time of a run, without a device.

use super::Target;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The least time of a run, in seconds. Real runs are slower: operations also wait for one another, and the estimate leaves out
/// copies between devices.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Time {
    /// The estimate of the compiler's cost model: the sum over all of its operations.
    Modelled {
        /// The sum, in seconds.
        seconds: f64,
    },
    /// The roofline estimate: the least time for the counted operations and traffic at the chip's published peaks.
    Roofline {
        /// The larger of the time for the operations and the time for the traffic.
        seconds: f64,
        /// Whether the traffic takes longer than the operations.
        is_traffic: bool,
    },
}

/// The published peaks of a device per second: floating-point operations in bf16, and bytes of its memory's traffic.
struct Peaks {
    flops: f64,
    bytes: f64,
}

/// The peaks of a kind of device, from the pages of each generation in [Google Cloud's documentation], read in November
/// 2026. A chip of the v4 is two devices here.
///
/// [Google Cloud's documentation]: https://docs.cloud.google.com/tpu/docs/system-architecture-tpu-vm
fn peaks(kind: &str) -> Option<Peaks> {
    let (teraflops, gigabytes) = match kind {
        "TPU v4" => (275.0 / 2.0, 1228.0 / 2.0),
        "TPU v5 lite" => (197.0, 819.0),
        "TPU v5" => (459.0, 2765.0),
        "TPU v6 lite" => (918.0, 1638.0),
        _ => return None,
    };
    Some(Peaks { flops: teraflops * 1e12, bytes: gigabytes * 1e9 })
}

/// The longer of the compiler's time and the roofline's time for these operations and bytes.
pub(super) fn estimate(target: &Target, modelled: Option<f64>, counted: Option<(f64, f64)>) -> Option<Time> {
    // Versions of libtpu that do not know a device's memory give the same times for all generations. XLA adds -1 s for each
    // operation that its model lacks, so the sum may be far below the true time.
    let modelled = modelled.filter(|seconds| *seconds > 0.0 && target.memory_bytes.is_some());
    let roofline = counted.zip(peaks(&target.kind)).map(|((flops, bytes), peaks)| roofline(flops, bytes, &peaks));
    match (modelled, roofline) {
        (Some(seconds), Some(roofline)) if seconds <= roofline.seconds() => Some(roofline),
        (Some(seconds), _) => Some(Time::Modelled { seconds }),
        (None, roofline) => roofline,
    }
}

fn roofline(flops: f64, bytes: f64, peaks: &Peaks) -> Time {
    let (computing, moving) = (flops / peaks.flops, bytes / peaks.bytes);
    Time::Roofline { seconds: computing.max(moving), is_traffic: moving > computing }
}

impl Time {
    /// The least time of a run, in seconds.
    pub fn seconds(&self) -> f64 {
        match *self {
            Time::Modelled { seconds } | Time::Roofline { seconds, .. } => seconds,
        }
    }
}

impl fmt::Display for Time {
    /// Writes a text such as `at least 2.14 µs a run, as the compiler estimates`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Time::Modelled { seconds } => {
                write!(formatter, "at least {} a run, as the compiler estimates", written(seconds))
            }
            Time::Roofline { seconds, is_traffic } => {
                let what = if is_traffic { "traffic" } else { "flops" };
                write!(
                    formatter,
                    "at least {} a run, an estimate from the {what} and the chip's peak",
                    written(seconds)
                )
            }
        }
    }
}

/// A time with three digits and a unit, such as `2.14 µs`, `88.0 ms` or `1.50 s`.
fn written(seconds: f64) -> String {
    let (value, unit) = match seconds {
        seconds if seconds < 1e-3 => (seconds * 1e6, "µs"),
        seconds if seconds < 1.0 => (seconds * 1e3, "ms"),
        seconds => (seconds, "s"),
    };
    let decimals = if value < 10.0 {
        2
    } else if value < 100.0 {
        1
    } else {
        0
    };
    format!("{value:.decimals$} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(kind: &str, memory_bytes: Option<u64>) -> Target {
        let (name, version) = (String::new(), String::new());
        Target { name, kind: kind.to_owned(), devices: 1, memory_bytes, version, api: (0, 0) }
    }

    #[test]
    fn the_longer_of_both_estimates_is_taken() {
        let estimate = |kind: &str, memory, modelled, counted| {
            estimate(&target(kind, memory), modelled, counted).map(|time| time.to_string())
        };
        let counted = Some((197e12, 819e6));
        let modelled = estimate("TPU v5 lite", Some(1), Some(1.2), counted);
        assert_eq!(modelled.as_deref(), Some("at least 1.20 s a run, as the compiler estimates"));
        let partial = estimate("TPU v5 lite", Some(1), Some(0.2), counted);
        assert_eq!(partial.as_deref(), Some("at least 1.00 s a run, an estimate from the flops and the chip's peak"));
        let unknown = estimate("TPU v99", Some(1), Some(2.14e-6), counted);
        assert_eq!(unknown.as_deref(), Some("at least 2.14 µs a run, as the compiler estimates"));
        let computing = estimate("TPU v5 lite", None, Some(2.14e-6), counted);
        assert_eq!(computing.as_deref(), Some("at least 1.00 s a run, an estimate from the flops and the chip's peak"));
        let moving = estimate("TPU v6 lite", Some(1), None, Some((918e9, 163.8e9)));
        assert_eq!(moving.as_deref(), Some("at least 100 ms a run, an estimate from the traffic and the chip's peak"));
        assert_eq!(estimate("TPU v99", None, Some(1.0), counted), None);
        assert_eq!(estimate("TPU v4", None, None, None), None);
    }
}
