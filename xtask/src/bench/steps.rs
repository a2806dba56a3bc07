//! `cargo xtask bench steps` measures training steps in unchanged candle, in candle as cells and trials have it, and in PyTorch,
//! JAX and burn, in turns on the same cores.
//!
//! A mode of training is one line of [`MODES`] and, in its program under `benchmarks/bench_steps`, one function.

mod figures;
mod page;
mod program;

use super::Request;
use crate::environment::Environment;
use crate::step;
use anyhow::{Context, Result, bail};
use figures::Figures;
use program::{Program, Running};

/// A mode of training: a program with an argument.
struct Mode {
    /// The head of the mode's column.
    name: &'static str,
    program: Program,
    /// The name of the mode in the program.
    argument: &'static str,
    is_ours: bool,
}

/// The modes, with unchanged candle first: the others are compared with it.
const MODES: [Mode; 7] = [
    Mode { name: "candle", program: Program::Candle, argument: "eager", is_ours: false },
    Mode { name: "candle with ours", program: Program::Ours, argument: "eager", is_ours: true },
    Mode { name: "compiled by XLA:CPU", program: Program::Ours, argument: "compiled", is_ours: true },
    Mode { name: "PyTorch", program: Program::Torch, argument: "default", is_ours: false },
    Mode { name: "PyTorch, fused", program: Program::Torch, argument: "fused", is_ours: false },
    Mode { name: "JAX", program: Program::Jax, argument: "jit", is_ours: false },
    Mode { name: "burn", program: Program::Burn, argument: "flex", is_ours: false },
];

/// A model that is trained.
struct Model {
    /// The name of the model in the programs; it ends with the batch size.
    argument: &'static str,
    name: &'static str,
    /// The number of steps of each mode before the turn of the next mode.
    steps: usize,
}

const MODELS: [Model; 4] = [
    Model { argument: "mlp128", name: "MLP, batch 128", steps: 50 },
    Model { argument: "mlp512", name: "MLP, batch 512", steps: 25 },
    Model { argument: "cnn64", name: "CNN, batch 64", steps: 25 },
    Model { argument: "transformer8", name: "transformer, batch 8 × 64", steps: 10 },
];

/// The number of turns of each mode for each model, unless `--rounds N` changes it.
const ROUNDS: usize = 7;

/// The number of steps before the first turn. All modes must have the same loss after these steps.
const WARM_UP: usize = 5;

/// The largest allowed difference between these losses, relative to the loss of the first mode.
const TOLERANCE: f64 = 1e-3;

/// A program in Python that prints the versions of the rivals from PyPI, and that of XLA:CPU.
const VERSIONS: &str = "from importlib.metadata import version\n\
                        print(', '.join(f'{name} {version(name)}' for name in ['torch', 'jax', 'fastatomstruct-xla-cpu']))";

pub(super) fn run(request: &Request<'_>) -> Result<Option<String>> {
    let root = request.root;
    let rounds = match request.options {
        [] => ROUNDS,
        [option, count] if option == "--rounds" => count.parse().context("--rounds needs a number")?,
        _ => bail!("usage: cargo xtask bench steps [--rounds N]"),
    };
    let environment = step::step("tools", || Environment::prepare_for_tests(root))?;
    step::step("PyTorch", || environment.add("benchmarks/requirements-steps.txt"))?;
    let rivals = step::output(environment.python().args(["-c", VERSIONS]))?;
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
    page::text(&table, rounds, rivals.trim()).map(Some)
}

/// Measures the figures of each mode for a model.
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
