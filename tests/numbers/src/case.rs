//! The cases of a folder, which the suite has written: `cases.json`, and `inputs.bin` with the bytes of all inputs.

use crate::numbers::{Numbers, dtype};
use crate::view::View;
use anyhow::{Context as _, Result};
use candle_core::{Device, Tensor, Var};
use serde::Deserialize;
use std::path::Path;

/// One call of an operation.
#[derive(Debug, Deserialize)]
pub(crate) struct Case {
    pub(crate) id: usize,
    pub(crate) operation: String,
    pub(crate) inputs: Vec<Input>,
    pub(crate) numbers: Numbers,
    /// Whether the gradients are wanted, of the weighted sum of all results that are floats.
    pub(crate) gradient: bool,
    /// Whether an error is expected, which would fail the other cases of a program.
    pub(crate) alone: bool,
}

/// A tensor that a case is given.
#[derive(Debug, Deserialize)]
pub(crate) struct Input {
    dtype: String,
    shape: Vec<usize>,
    /// Where its bytes begin in `inputs.bin`.
    offset: usize,
    bytes: usize,
    view: View,
}

/// All cases of a folder.
#[derive(Debug)]
pub(crate) struct Cases {
    pub(crate) cases: Vec<Case>,
    bytes: Vec<u8>,
}

impl Cases {
    pub(crate) fn read(folder: &Path) -> Result<Cases> {
        let read = |name: &str| {
            std::fs::read(folder.join(name)).with_context(|| format!("cannot read {name} of {}", folder.display()))
        };
        Ok(Cases { cases: serde_json::from_slice(&read("cases.json")?)?, bytes: read("inputs.bin")? })
    }

    /// The inputs of a case on the CPU, contiguous.
    pub(crate) fn inputs(&self, case: &Case) -> Result<Vec<Tensor>> {
        let tensor = |input: &Input| {
            let bytes = &self.bytes[input.offset..input.offset + input.bytes];
            Ok(Tensor::from_raw_buffer(bytes, dtype(&input.dtype)?, &input.shape, &Device::Cpu)?)
        };
        case.inputs.iter().map(tensor).collect()
    }
}

/// The inputs as the operation sees them, and the variables of which they are views.
pub(crate) struct Arguments {
    pub(crate) tensors: Vec<Tensor>,
    pub(crate) vars: Vec<Option<Var>>,
}

impl Arguments {
    /// Views of contiguous tensors, which are variables where a gradient is wanted and they have one.
    pub(crate) fn new(case: &Case, contiguous: &[Tensor]) -> candle_core::Result<Arguments> {
        let var = |tensor: &Tensor| match case.gradient && tensor.dtype().is_float() {
            true => Var::from_tensor(tensor).map(Some),
            false => Ok(None),
        };
        let vars = contiguous.iter().map(var).collect::<candle_core::Result<Vec<_>>>()?;
        let tensors = contiguous.iter().zip(&vars).zip(&case.inputs);
        let tensors =
            tensors.map(|((tensor, var), input)| input.view.of(var.as_ref().map_or(tensor, |var| var.as_tensor())));
        Ok(Arguments { tensors: tensors.collect::<candle_core::Result<_>>()?, vars })
    }
}
