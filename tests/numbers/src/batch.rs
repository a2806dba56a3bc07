//! Cases on a plugin. Many are one program, because a program for each would be compiled for longer than the suite may take.

use crate::case::{Case, Cases};
use crate::outcome::{Computed, Failure, Outcome, Writer, caught, keep_places_of_panics};
use crate::run::{computed, operation};
use anyhow::Result;
use candle_core::{Device, Tensor, Var};
use ferrotune_xla::{Options, Step};
use std::path::Path;

/// How the plugin is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Operations are noted, and computed when a value is read.
    Lazy,
    /// Operations are noted once, in a compiled step.
    Compiled,
}

/// The number of cases in one program.
const BATCH: usize = 64;

pub(crate) fn on_plugin(folder: &Path, plugin: &Path, cache: &Path, mode: Mode) -> Result<()> {
    let cases = Cases::read(folder)?;
    let mut writer = Writer::create(folder)?;
    keep_places_of_panics();
    let device = ferrotune_xla::open_with(plugin, Options { cache: Some(cache), ..Options::default() })?;
    let (alone, together): (Vec<&Case>, Vec<&Case>) = cases.cases.iter().partition(|case| case.alone);
    for batch in together.chunks(BATCH).chain(alone.chunks(1)) {
        write(&cases, batch, &device, mode, &mut writer)?;
    }
    Ok(())
}

/// Computes a batch, in halves where the whole fails, so that a case that fails is alone.
fn write(cases: &Cases, batch: &[&Case], device: &Device, mode: Mode, writer: &mut Writer) -> Result<()> {
    for case in batch {
        operation(case)?;
        writer.begin(case.id)?;
    }
    let inputs = batch.iter().map(|case| cases.inputs(case)).collect::<Result<Vec<_>>>()?;
    let outcomes = caught(|| {
        let inputs = inputs.iter().map(|inputs| inputs.iter().map(|input| input.to_device(device)).collect());
        let inputs = inputs.collect::<candle_core::Result<Vec<Vec<Tensor>>>>()?;
        match mode {
            Mode::Lazy => lazily(batch, &inputs, device),
            Mode::Compiled => compiled(batch, &inputs, device),
        }
    });
    match outcomes {
        Ok(outcomes) => {
            for (case, outcome) in batch.iter().zip(outcomes) {
                writer.end(case.id, outcome)?;
            }
            Ok(())
        }
        Err(failure) if batch.len() == 1 => writer.end(batch[0].id, Err(failure)),
        Err(_) => {
            let (left, right) = batch.split_at(batch.len() / 2);
            write(cases, left, device, mode, writer)?;
            write(cases, right, device, mode, writer)
        }
    }
}

/// Notes the operations of all cases. Whatever fails here fails alone.
fn noted(batch: &[&Case], inputs: &[Vec<Tensor>], device: &Device) -> Vec<Outcome<Computed>> {
    let noted = batch.iter().zip(inputs).map(|(case, inputs)| {
        let operation = operation(case).map_err(|error| Failure::Error(error.to_string()))?;
        caught(|| computed(case, operation, inputs, device))
    });
    noted.collect()
}

fn lazily(batch: &[&Case], inputs: &[Vec<Tensor>], device: &Device) -> candle_core::Result<Vec<Outcome<Computed>>> {
    let outcomes = noted(batch, inputs, device);
    // What variables are set to is computed by one program, when the first one is read.
    let kept = tensors(&outcomes).into_iter().map(|tensor| {
        let var = Var::zeros(tensor.shape(), tensor.dtype(), device)?;
        var.set(tensor)?;
        Ok(var)
    });
    let kept = kept.collect::<candle_core::Result<Vec<_>>>()?;
    let values = kept.iter().map(|var| var.to_device(&Device::Cpu)).collect::<candle_core::Result<Vec<_>>>()?;
    Ok(with(outcomes, values))
}

fn compiled(batch: &[&Case], inputs: &[Vec<Tensor>], device: &Device) -> candle_core::Result<Vec<Outcome<Computed>>> {
    let mut outcomes = Vec::new();
    let arguments: Vec<Tensor> = inputs.iter().flatten().cloned().collect();
    let mut step = Step::new(device, |arguments: &[Tensor]| {
        let mut arguments = arguments.iter().cloned();
        let inputs: Vec<Vec<Tensor>> =
            inputs.iter().map(|inputs| arguments.by_ref().take(inputs.len()).collect()).collect();
        outcomes = noted(batch, &inputs, device);
        Ok(tensors(&outcomes).into_iter().cloned().collect())
    });
    let values = step.run(&arguments)?;
    drop(step);
    let values = values.iter().map(|value| value.to_device(&Device::Cpu)).collect::<candle_core::Result<Vec<_>>>()?;
    Ok(with(outcomes, values))
}

/// All tensors of outcomes, the results of a case before its gradients.
fn tensors(outcomes: &[Outcome<Computed>]) -> Vec<&Tensor> {
    let mut all = Vec::new();
    for computed in outcomes.iter().flatten() {
        all.extend(computed.results.iter());
        if let Some(Ok(gradients)) = &computed.gradients {
            all.extend(gradients.iter().flatten());
        }
    }
    all
}

/// The same outcomes with these tensors.
fn with(outcomes: Vec<Outcome<Computed>>, values: Vec<Tensor>) -> Vec<Outcome<Computed>> {
    let mut values = values.into_iter();
    let mut replaced = |computed: Computed| {
        let results = values.by_ref().take(computed.results.len()).collect();
        let gradients = computed.gradients.map(|gradients| {
            gradients
                .map(|gradients| gradients.into_iter().map(|gradient| gradient.and_then(|_| values.next())).collect())
        });
        Computed { results, gradients }
    };
    outcomes.into_iter().map(|outcome| outcome.map(&mut replaced)).collect()
}
