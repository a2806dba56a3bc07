//! Compares a device with plain arithmetic: one matrix product, and a small network trained for 20 steps.
//!
//! The self-test only compares: [`run`] lets a [`Compute`] do the computations.

mod mlp;
mod plugin;

use crate::opened::Opened;
use crate::pjrt::PjrtError;
use crate::runtime::Client;
pub use mlp::{Array, Network};
use serde::{Deserialize, Deserializer, Serialize};
use std::fmt;

/// The number of training steps.
pub const STEPS: usize = 20;
/// The number of rows and columns of the matrices.
pub const SIDE: usize = 256;
/// The largest relative difference of a passing result. TPUs compute even the highest precision from pieces of bf16.
const TOLERANCE: f64 = 1e-3;

/// A device that computes the results of the self-test.
pub trait Compute {
    /// The error of a failed computation.
    type Error;

    /// The product of two matrices of [`SIDE`] rows and columns, in row-major order.
    ///
    /// # Errors
    /// The errors of the device.
    fn multiply(&mut self, a: &[f32], b: &[f32]) -> Result<Computed, Self::Error>;

    /// The loss before each of [`STEPS`] steps of gradient descent, starting with this network.
    ///
    /// # Errors
    /// The errors of the device.
    fn train(&mut self, network: &Network) -> Result<Computed, Self::Error>;
}

/// The results of a device, with their times.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Computed {
    /// The values of the result.
    pub values: Vec<f32>,
    /// The time to compile, in seconds; none for devices that do not compile.
    pub compile_s: Option<f64>,
    /// The time of the fastest run, in seconds, transfers included.
    pub run_s: f64,
}

/// A device's results of the two computations.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SelfTest {
    /// The platform of the device, such as `tpu` or `cuda`.
    pub platform: String,
    /// The device's name, and all versions.
    pub device: String,
    /// The comparison of a matrix product in single precision.
    pub matmul: Comparison,
    /// The comparison of the losses of a two-layer network, before each step of gradient descent.
    pub training: Comparison,
    /// The losses; none where one is not finite.
    pub losses: Vec<Option<f32>>,
    /// The largest relative difference from candle's losses on the CPU; none if they were not compared.
    pub candle: Option<f64>,
}

/// A result compared with plain arithmetic in double precision.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// The largest difference, relative to the largest expected value; NaN if any value is not finite.
    #[serde(deserialize_with = "undefined_or")]
    pub difference: f64,
    /// The time to compile, in seconds; none for devices that do not compile.
    pub compile_s: Option<f64>,
    /// The time of the fastest run, in seconds, transfers included.
    pub run_s: f64,
    /// The first value.
    #[serde(deserialize_with = "undefined_or")]
    pub first: f64,
    /// The last value.
    #[serde(deserialize_with = "undefined_or")]
    pub last: f64,
}

/// Reads a floating-point number, and NaN for null, since JSON has no NaN and no infinity and null is written for them.
fn undefined_or<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or(f64::NAN))
}

impl Comparison {
    /// Whether the difference is within the tolerance.
    pub fn agrees(&self) -> bool {
        // A comparison with NaN is false.
        self.difference <= TOLERANCE
    }
}

impl SelfTest {
    /// Compares the losses with those that candle has computed on the CPU.
    pub fn compare_with_candle(&mut self, losses: &[f32]) {
        let got: Vec<f64> = self.losses.iter().map(|loss| loss.map_or(f64::NAN, f64::from)).collect();
        self.candle = Some(difference(&got, &doubles(losses)));
    }

    /// Whether all results are within the tolerance.
    pub fn passes(&self) -> bool {
        self.matmul.agrees() && self.training.agrees() && self.candle.is_none_or(|candle| candle <= TOLERANCE)
    }
}

impl fmt::Display for SelfTest {
    /// Writes lines for a bug report, with the verdict last.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "ferrotune {} self-test on {}", env!("CARGO_PKG_VERSION"), self.platform)?;
        writeln!(f, "  devices   {}", self.device)?;
        writeln!(f, "  matmul    f32 {SIDE}×{SIDE}: {}", self.matmul)?;
        let Comparison { first, last, .. } = self.training;
        writeln!(f, "  training  {STEPS} steps, loss {first:.6} → {last:.6}: {}", self.training)?;
        if let Some(candle) = self.candle {
            writeln!(f, "  candle    the same {STEPS} steps on the CPU: {}", verdict(candle))?;
        }
        f.write_str(if self.passes() { "passed" } else { "FAILED: the device does not compute what it should" })
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; ", verdict(self.difference))?;
        if let Some(compile_s) = self.compile_s {
            write!(f, "compiled in {compile_s:.2} s, ")?;
        }
        write!(f, "a run takes {:.2} ms", self.run_s * 1e3)
    }
}

fn verdict(difference: f64) -> String {
    format!("{}, off by {difference:.1e}", if difference <= TOLERANCE { "right" } else { "WRONG" })
}

/// Lets a device compute, and compares the results with plain arithmetic in double precision.
///
/// # Errors
/// The errors of the device. Wrong results are no error.
pub fn run<C: Compute>(platform: &str, device: &str, compute: &mut C) -> Result<SelfTest, C::Error> {
    let matrix = |seed: f64| (0..SIDE * SIDE).map(|index| mlp::wave(index, seed)).collect::<Vec<f64>>();
    let (a, b) = (matrix(0.7), matrix(1.3));
    let product = compute.multiply(&singles(&a), &singles(&b))?;
    let mut network = Network::default();
    let trained = compute.train(&network)?;
    let expected: Vec<f64> = (0..STEPS).map(|_| network.step()).collect();
    Ok(SelfTest {
        platform: platform.to_owned(),
        device: device.to_owned(),
        matmul: compared(&product, &mlp::product(&a, &b, SIDE, SIDE, SIDE)),
        training: compared(&trained, &expected),
        losses: trained.values.iter().map(|loss| Some(*loss).filter(|loss| loss.is_finite())).collect(),
        candle: None,
    })
}

/// Runs the self-test on the first device of a plugin.
///
/// # Errors
/// The errors of the plugin. Wrong results are no error.
pub fn run_plugin(client: &Client, opened: &Opened) -> Result<SelfTest, PjrtError> {
    run(&opened.platform, &opened.to_string(), &mut plugin::FirstDevice::of(client)?)
}

fn singles(values: &[f64]) -> Vec<f32> {
    values.iter().map(|value| *value as f32).collect()
}

fn doubles(values: &[f32]) -> Vec<f64> {
    values.iter().map(|value| f64::from(*value)).collect()
}

fn compared(computed: &Computed, expected: &[f64]) -> Comparison {
    let got = doubles(&computed.values);
    let (first, last) = (got.first().copied().unwrap_or(f64::NAN), got.last().copied().unwrap_or(f64::NAN));
    let Computed { compile_s, run_s, .. } = *computed;
    Comparison { difference: difference(&got, expected), compile_s, run_s, first, last }
}

/// The largest difference, relative to the largest expected value.
fn difference(got: &[f64], expected: &[f64]) -> f64 {
    if got.len() != expected.len() {
        return f64::INFINITY;
    }
    let scale = expected.iter().fold(f64::MIN_POSITIVE, |scale, value| scale.max(value.abs()));
    let worst = |worst: f64, (got, expected): (&f64, &f64)| {
        let difference = (got - expected).abs();
        // `max` would ignore a NaN.
        if worst.is_nan() || difference.is_nan() { f64::NAN } else { worst.max(difference) }
    };
    got.iter().zip(expected).fold(0.0, worst) / scale
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[f32]) -> Comparison {
        compared(&Computed { values: values.to_vec(), compile_s: Some(0.1), run_s: 0.2 }, &[1.0, -2.0])
    }

    #[test]
    fn result_that_is_no_number_is_wrong_after_a_round_trip_through_json() {
        let json = serde_json::to_string(&of(&[f32::NAN, f32::INFINITY])).expect("plain data");
        let back: Comparison = serde_json::from_str(&json).expect("as it was written");
        assert!(!back.agrees(), "{json}");
    }

    #[test]
    fn wrong_missing_and_undefined_values_do_not_agree() {
        assert!(of(&[1.0005, -2.0]).agrees());
        for got in [&[1.01, -2.0][..], &[1.0], &[f32::NAN, -2.0], &[1.0, f32::INFINITY], &[]] {
            assert!(!of(got).agrees(), "{got:?}");
        }
    }

    #[test]
    fn another_result_than_candles_fails() {
        let (matmul, training) = (of(&[1.0, -2.0]), of(&[1.0, -2.0]));
        let (platform, device, losses) = ("tpu".into(), "one".into(), vec![Some(0.5), Some(0.25)]);
        let mut test = SelfTest { platform, device, matmul, training, losses, candle: None };
        for (candles, passes) in [(&[0.5, 0.25][..], true), (&[0.5, 0.3], false), (&[0.5], false)] {
            test.compare_with_candle(candles);
            assert_eq!(test.passes(), passes, "{test}");
        }
        test.losses[1] = None;
        test.compare_with_candle(&[0.5, 0.25]);
        assert!(!test.passes(), "{test}");
    }
}
