//! Does a device compute what plain arithmetic does? One matmul, and a small network trained for 20 steps.

mod mlp;

use crate::pjrt::{Client, CompileOptions, Device, Literal, LoadedExecutable, PjrtError};
use crate::probe::Opened;
use serde::{Deserialize, Deserializer, Serialize};
use std::fmt;
use std::time::Instant;

/// Steps of the training.
const STEPS: usize = 20;
/// Side of the matrices of the matmul.
const SIDE: usize = 256;
/// What a result may be off by. TPUs compute even the highest precision from pieces of bf16.
const TOLERANCE: f64 = 1e-3;

/// What a device made of two computations.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SelfTest {
    /// The device, and all versions.
    pub opened: Opened,
    /// A product of two matrices in single precision.
    pub matmul: Comparison,
    /// The loss of a two-layer network after each step of gradient descent.
    pub training: Comparison,
}

/// A result beside that of plain arithmetic in double precision.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// The largest difference, relative to the largest value; undefined where a value is.
    #[serde(deserialize_with = "undefined_or")]
    pub difference: f64,
    /// Time to compile.
    pub compile_s: f64,
    /// Time of one run, transfers included, the best of all runs.
    pub run_s: f64,
    /// The first value.
    #[serde(deserialize_with = "undefined_or")]
    pub first: f64,
    /// The last value.
    #[serde(deserialize_with = "undefined_or")]
    pub last: f64,
}

/// JSON has no word for a NaN or an infinity, and writes null.
fn undefined_or<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or(f64::NAN))
}

impl Comparison {
    /// Whether it is as close as it must be.
    pub fn agrees(&self) -> bool {
        // A NaN agrees with nothing.
        self.difference <= TOLERANCE
    }
}

impl SelfTest {
    /// Whether everything is as it must be.
    pub fn passes(&self) -> bool {
        self.matmul.agrees() && self.training.agrees()
    }
}

impl fmt::Display for SelfTest {
    /// Lines to paste into a bug report, the verdict last.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "ferrotune {} self-test on {}", env!("CARGO_PKG_VERSION"), self.opened.platform)?;
        writeln!(f, "  devices   {}", self.opened)?;
        writeln!(f, "  matmul    f32 {SIDE}×{SIDE}: {}", self.matmul)?;
        let Comparison { first, last, .. } = self.training;
        writeln!(f, "  training  {STEPS} steps, loss {first:.6} → {last:.6}: {}", self.training)?;
        f.write_str(if self.passes() { "passed" } else { "FAILED: the device does not compute what it should" })
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = if self.agrees() { "right" } else { "WRONG" };
        let Comparison { difference, compile_s, run_s, .. } = self;
        let run_ms = run_s * 1e3;
        write!(f, "{verdict}, off by {difference:.1e}; compiled in {compile_s:.2} s, a run takes {run_ms:.2} ms")
    }
}

/// Computes on the first device.
pub(crate) fn run(client: &Client, opened: Opened) -> Result<SelfTest, PjrtError> {
    let devices = client.devices()?;
    let device = devices
        .first()
        .ok_or_else(|| PjrtError::Mismatch { what: "the plugin has opened, but it has no device".to_owned() })?;
    Ok(SelfTest { matmul: matmul(client, device)?, training: train(client, device)?, opened })
}

fn matmul(client: &Client, device: &Device) -> Result<Comparison, PjrtError> {
    let side = SIDE as i64;
    let (program, compile_s) = compile(client, &matmul_module())?;
    let values = |seed: f64| (0..SIDE * SIDE).map(|index| mlp::wave(index, seed)).collect::<Vec<f64>>();
    let (a, b) = (values(0.7), values(1.3));
    let literal = |values: &[f64]| Literal::f32(&[side, side], &values.iter().map(|v| *v as f32).collect::<Vec<_>>());
    let (a_literal, b_literal) = (literal(&a)?, literal(&b)?);
    let mut run_s = f64::INFINITY;
    let mut got = Vec::new();
    for _ in 0..3 {
        let started = Instant::now();
        let inputs = [client.upload(&a_literal, device)?, client.upload(&b_literal, device)?];
        let outputs = program.run(&[&inputs[0], &inputs[1]])?.wait()?;
        got = outputs[0][0].download()?.wait()?.to_f32()?;
        run_s = run_s.min(started.elapsed().as_secs_f64());
    }
    let expected = mlp::product(&a, &b, SIDE, SIDE, SIDE);
    Ok(compared(&got.iter().map(|value| f64::from(*value)).collect::<Vec<_>>(), &expected, compile_s, run_s))
}

fn train(client: &Client, device: &Device) -> Result<Comparison, PjrtError> {
    let (program, compile_s) = compile(client, mlp::MODULE)?;
    let mut network = mlp::Network::new();
    let upload = |(dims, values): (&[i64], &[f64])| {
        let values: Vec<f32> = values.iter().map(|value| *value as f32).collect();
        client.upload(&Literal::f32(dims, &values)?, device)
    };
    let data = network.data().into_iter().map(upload).collect::<Result<Vec<_>, _>>()?;
    let mut weights = network.weights().into_iter().map(upload).collect::<Result<Vec<_>, _>>()?;
    let (mut losses, mut expected, mut run_s) = (Vec::new(), Vec::new(), f64::INFINITY);
    for _ in 0..STEPS {
        let started = Instant::now();
        let inputs: Vec<_> = weights.iter().chain(&data).collect();
        let mut outputs = program.run(&inputs)?.wait()?.swap_remove(0);
        let loss =
            outputs.pop().ok_or_else(|| PjrtError::Mismatch { what: "the training step has no outputs".to_owned() })?;
        losses.extend(loss.download()?.wait()?.to_f32()?.into_iter().map(f64::from));
        run_s = run_s.min(started.elapsed().as_secs_f64());
        weights = outputs;
        expected.push(network.step());
    }
    Ok(compared(&losses, &expected, compile_s, run_s))
}

fn compile(client: &Client, module: &str) -> Result<(LoadedExecutable, f64), PjrtError> {
    let started = Instant::now();
    let program = client.compile(module.as_bytes(), &CompileOptions::default())?;
    Ok((program, started.elapsed().as_secs_f64()))
}

fn compared(got: &[f64], expected: &[f64], compile_s: f64, run_s: f64) -> Comparison {
    let scale = expected.iter().fold(f64::MIN_POSITIVE, |scale, value| scale.max(value.abs()));
    let worst = |worst: f64, (got, expected): (&f64, &f64)| {
        let difference = (got - expected).abs();
        // `max` would forget a NaN.
        if worst.is_nan() || difference.is_nan() { f64::NAN } else { worst.max(difference) }
    };
    let difference = got.iter().zip(expected).fold(0.0, worst) / scale;
    let difference = if got.len() == expected.len() { difference } else { f64::INFINITY };
    let (first, last) = (got.first().copied().unwrap_or(f64::NAN), got.last().copied().unwrap_or(f64::NAN));
    Comparison { difference, compile_s, run_s, first, last }
}

fn matmul_module() -> String {
    let matrix = format!("tensor<{SIDE}x{SIDE}xf32>");
    format!(
        "module @matmul {{
  func.func public @main(%a: {matrix}, %b: {matrix}) -> {matrix} {{
    %c = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0], precision = [HIGHEST, HIGHEST]
        : ({matrix}, {matrix}) -> {matrix}
    return %c : {matrix}
  }}
}}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_result_is_told_even_if_it_is_no_number() {
        let comparison = compared(&[f64::NAN, f64::INFINITY], &[1.0, 2.0], 0.1, 0.2);
        let json = serde_json::to_string(&comparison).expect("plain data");
        let back: Comparison = serde_json::from_str(&json).expect("as it was written");
        assert!(!back.agrees(), "{json}");
    }

    #[test]
    fn wrong_missing_and_undefined_values_do_not_agree() {
        let agrees = |got: &[f64]| compared(got, &[1.0, -2.0], 0.0, 0.0).agrees();
        assert!(agrees(&[1.0005, -2.0]));
        for got in [&[1.01, -2.0][..], &[1.0], &[f64::NAN, -2.0], &[1.0, f64::INFINITY], &[]] {
            assert!(!agrees(got), "{got:?}");
        }
    }
}
