//! `cargo xtask bench steps`: steps of training in candle as it is, in candle as cells and trials have it, and in PyTorch,
//! JAX and burn, taken in turn on the same cores; writes the tables of `benchmarks/steps.md`.
//!
//! A way to train is one line of [`MODES`] and, in its program under `tests/bench_steps`, one function.

mod figures;
mod page;
mod program;

use crate::environment::Environment;
use crate::step;
use anyhow::{Context, Result, bail};
use figures::Figures;
use program::{Program, Running};
use std::path::Path;

/// One way to train.
struct Mode {
    /// The head of its column.
    name: &'static str,
    program: Program,
    /// What the program calls it.
    argument: &'static str,
    is_ours: bool,
}

/// candle as it is comes first: the others are compared with it.
const MODES: [Mode; 7] = [
    Mode { name: "candle", program: Program::Candle, argument: "eager", is_ours: false },
    Mode { name: "candle with ours", program: Program::Ours, argument: "eager", is_ours: true },
    Mode { name: "compiled by XLA:CPU", program: Program::Ours, argument: "compiled", is_ours: true },
    Mode { name: "PyTorch", program: Program::Torch, argument: "default", is_ours: false },
    Mode { name: "PyTorch, fused", program: Program::Torch, argument: "fused", is_ours: false },
    Mode { name: "JAX", program: Program::Jax, argument: "jit", is_ours: false },
    Mode { name: "burn", program: Program::Burn, argument: "flex", is_ours: false },
];

/// What is trained.
struct Model {
    /// What the programs call it; ends with the batch size.
    argument: &'static str,
    name: &'static str,
    /// Steps that each mode makes before the next mode has its turn.
    steps: usize,
}

const MODELS: [Model; 4] = [
    Model { argument: "mlp128", name: "MLP, batch 128", steps: 50 },
    Model { argument: "mlp512", name: "MLP, batch 512", steps: 25 },
    Model { argument: "cnn64", name: "CNN, batch 64", steps: 25 },
    Model { argument: "transformer8", name: "transformer, batch 8 × 64", steps: 10 },
];

/// Turns of each mode for each model, unless `--rounds N` says otherwise.
const ROUNDS: usize = 7;

/// Steps before the first turn. All modes must have the same loss after them.
const WARM_UP: usize = 5;

/// How much these losses may differ, relative to the loss of the first mode.
const TOLERANCE: f64 = 1e-3;

pub(super) fn run(root: &Path, arguments: &[String]) -> Result<()> {
    let rounds = match arguments {
        [] => ROUNDS,
        [option, count] if option == "--rounds" => count.parse().context("--rounds needs a number")?,
        _ => bail!("usage: cargo xtask bench steps [--rounds N]"),
    };
    let environment = step::step("tools", || Environment::prepare_for_tests(root))?;
    step::step("PyTorch", || environment.add("tests/requirements-steps.txt"))?;
    let weights = program::write_weights(root)?;
    for program in [Program::Candle, Program::Ours, Program::Burn] {
        step::step(&format!("build {}", program.name()), || program.build(root))?;
    }
    let mut running = MODES
        .iter()
        .map(|mode| Running::start(mode.program.command(root, &environment), mode, &weights))
        .collect::<Result<Vec<_>>>()?;
    let mut table = Vec::new();
    for model in &MODELS {
        table.push(step::step(model.name, || measure(model, rounds, &mut running))?);
    }
    page::write(root, &table, rounds)
}

/// The figures of each mode.
fn measure(model: &Model, rounds: usize, running: &mut [Running]) -> Result<Vec<Figures>> {
    let mut losses = Vec::new();
    for (mode, program) in MODES.iter().zip(&mut *running) {
        let loss =
            program.turn(model.argument, WARM_UP).with_context(|| format!("{}: {}", mode.name, model.name))?.loss;
        let first = *losses.first().unwrap_or(&loss);
        if (loss - first).abs() > TOLERANCE * first.abs() || !loss.is_finite() {
            bail!(
                "{}: {} has the loss {loss} after {WARM_UP} steps, and {} {first}",
                mode.name,
                model.name,
                MODES[0].name
            );
        }
        losses.push(loss);
    }
    let mut turns: Vec<Vec<Figures>> = MODES.iter().map(|_| Vec::new()).collect();
    for _ in 0..rounds {
        for (program, turns) in running.iter_mut().zip(&mut turns) {
            turns.push(program.turn(model.argument, model.steps)?);
        }
    }
    turns.iter().map(|turns| Figures::median(turns).context("no rounds")).collect()
}
