//! The self-test's computations on a device of a plugin.

use super::mlp::{self, Array};
use super::{Compute, Computed, Network, SIDE, STEPS};
use crate::pjrt::{CompileOptions, Literal, PjrtError};
use crate::runtime::{Client, Device, LoadedExecutable};
use std::time::Instant;

/// The number of runs of the matrix product; the fastest run is reported.
const RUNS: usize = 3;

pub(super) struct FirstDevice<'a> {
    client: &'a Client,
    device: Device,
}

impl FirstDevice<'_> {
    pub(super) fn of(client: &Client) -> Result<FirstDevice<'_>, PjrtError> {
        let device = client.devices()?.into_iter().next();
        let device = device.ok_or_else(|| mismatch("the plugin has opened, but it has no device"))?;
        Ok(FirstDevice { client, device })
    }

    fn compile(&self, module: &str) -> Result<(LoadedExecutable, f64), PjrtError> {
        let started = Instant::now();
        let program = self.client.compile(module.as_bytes(), &CompileOptions::default())?;
        Ok((program, started.elapsed().as_secs_f64()))
    }
}

fn mismatch(what: &str) -> PjrtError {
    PjrtError::Mismatch { what: what.to_owned() }
}

impl Compute for FirstDevice<'_> {
    type Error = PjrtError;

    fn multiply(&mut self, a: &[f32], b: &[f32]) -> Result<Computed, PjrtError> {
        let (program, compile_s) = self.compile(&matmul_module())?;
        let dims = [SIDE as i64, SIDE as i64];
        let (a, b) = (Literal::f32(&dims, a)?, Literal::f32(&dims, b)?);
        let mut computed = Computed { values: Vec::new(), compile_s: Some(compile_s), run_s: f64::INFINITY };
        for _ in 0..RUNS {
            let started = Instant::now();
            let inputs = [self.client.upload(&a, &self.device)?, self.client.upload(&b, &self.device)?];
            let outputs = program.run(&[&inputs[0], &inputs[1]])?.wait()?;
            computed.values = outputs[0][0].download()?.wait()?.to_f32()?;
            computed.run_s = computed.run_s.min(started.elapsed().as_secs_f64());
        }
        Ok(computed)
    }

    fn train(&mut self, network: &Network) -> Result<Computed, PjrtError> {
        let (program, compile_s) = self.compile(mlp::MODULE)?;
        let upload =
            |(dims, values): Array<'_>| self.client.upload(&Literal::f32(dims, &super::singles(values))?, &self.device);
        let data = network.data().into_iter().map(upload).collect::<Result<Vec<_>, _>>()?;
        let mut weights = network.weights().into_iter().map(upload).collect::<Result<Vec<_>, _>>()?;
        let mut computed = Computed { values: Vec::new(), compile_s: Some(compile_s), run_s: f64::INFINITY };
        for _ in 0..STEPS {
            let started = Instant::now();
            let inputs: Vec<_> = weights.iter().chain(&data).collect();
            let mut outputs = program.run(&inputs)?.wait()?.swap_remove(0);
            let loss = outputs.pop().ok_or_else(|| mismatch("the training step has no outputs"))?;
            computed.values.extend(loss.download()?.wait()?.to_f32()?);
            computed.run_s = computed.run_s.min(started.elapsed().as_secs_f64());
            weights = outputs;
        }
        Ok(computed)
    }
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
