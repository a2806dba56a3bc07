//! Cases on the CPU, one after the other, and how any device computes one.

use crate::case::{Arguments, Case, Cases};
use crate::operations::{self, Operation};
use crate::outcome::{Computed, Writer, caught, keep_places_of_panics};
use anyhow::{Context as _, Result};
use candle_core::{DType, Device, Tensor};
use std::path::Path;

pub(crate) fn on_cpu(folder: &Path) -> Result<()> {
    let cases = Cases::read(folder)?;
    let mut writer = Writer::create(folder)?;
    keep_places_of_panics();
    for case in &cases.cases {
        let operation = operation(case)?;
        let inputs = cases.inputs(case)?;
        writer.begin(case.id)?;
        writer.end(case.id, caught(|| computed(case, operation, &inputs, &Device::Cpu)))?;
    }
    Ok(())
}

/// The operation of a case.
pub(crate) fn operation(case: &Case) -> Result<&'static Operation> {
    let found = operations::all().iter().find(|operation| operation.name == case.operation);
    found.with_context(|| format!("the program has no operation {}", case.operation))
}

/// The results of a case for contiguous inputs of a device.
pub(crate) fn computed(
    case: &Case,
    operation: &Operation,
    inputs: &[Tensor],
    device: &Device,
) -> candle_core::Result<Computed> {
    let arguments = Arguments::new(case, inputs)?;
    let results = (operation.compute)(&arguments.tensors, &case.numbers, device)?;
    let gradients = case.gradient.then(|| caught(|| gradients(&arguments, &results)));
    Ok(Computed { results, gradients })
}

/// The gradient of the weighted sum of the results with respect to each variable.
fn gradients(arguments: &Arguments, results: &[Tensor]) -> candle_core::Result<Vec<Option<Tensor>>> {
    let mut sums = Vec::new();
    for result in results.iter().filter(|result| result.dtype().is_float()) {
        // Zeros of a result that is not finite would be NaN, but the gradient of a product does not depend on the product.
        sums.push(result.mul(&weights(result)?)?.sum_all()?.to_dtype(DType::F64)?);
    }
    let mut sums = sums.into_iter();
    let Some(first) = sums.next() else { candle_core::bail!("no result is a float") };
    let sum = sums.try_fold(first, |sum, next| sum + next)?;
    let store = sum.backward()?;
    Ok(arguments.vars.iter().map(|var| var.as_ref().and_then(|var| store.get(var).cloned())).collect())
}

/// Numbers by which results are multiplied before they are added up, so that their gradients differ. Each float type has them.
fn weights(result: &Tensor) -> candle_core::Result<Tensor> {
    const WEIGHTS: [f32; 5] = [1.0, -0.5, 2.0, 0.25, -1.0];
    let numbers: Vec<f32> = WEIGHTS.into_iter().cycle().take(result.elem_count()).collect();
    Tensor::from_vec(numbers, result.shape(), &Device::Cpu)?.to_dtype(result.dtype())?.to_device(result.device())
}
