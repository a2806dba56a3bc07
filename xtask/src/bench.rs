//! `cargo xtask bench` compares this kernel with evcxr_jupyter on this machine and writes `docs/benchmarks.md`.
//! `cargo xtask bench hpo` compares the oracles with Optuna on formulas, `cargo xtask bench digits` on real training, and
//! `cargo xtask bench keras` compares a search with Keras Tuner's. `cargo xtask bench steps` compares steps of training with
//! candle's own, PyTorch's, JAX's and burn's.

mod digits;
mod hpo;
mod steps;

use crate::environment::{Environment, build_program, cargo};
use crate::step;
use anyhow::{Result, bail};
use std::path::Path;

/// The published version of the kernel to compare with.
const RIVAL: [&str; 4] = ["evcxr_jupyter", "--version", "0.22.0", "--locked"];

pub(crate) fn run(root: &Path) -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(2).collect();
    match arguments.split_first() {
        None => kernels(root),
        Some((what, rest)) if what == "hpo" => hpo::run(root, rest),
        Some((what, [])) if what == "keras" => keras(root),
        Some((what, [])) if what == "digits" => digits::run(root),
        Some((what, rest)) if what == "steps" => steps::run(root, rest),
        Some((what, _)) => {
            bail!("there is no bench `{what}`; use hpo, digits, keras, steps, or no name to compare the kernels")
        }
    }
}

fn keras(root: &Path) -> Result<()> {
    let environment = step::step("tools", || Environment::prepare_for_tests(root))?;
    step::step("Keras Tuner", || environment.add("tests/requirements-keras.txt"))?;
    step::step("build", || build_program(root))?;
    step::step("install into target/jupyter", || environment.install_kernel())?;
    step::step("measure", || {
        step::run(environment.python().arg("tests/bench_keras.py").args(["--output", "docs/benchmarks-keras.md"]))
    })
}

fn kernels(root: &Path) -> Result<()> {
    let environment = step::step("tools", || Environment::prepare_for_tests(root))?;
    step::step("build", || build_program(root))?;
    step::step("install into target/jupyter", || environment.install_kernel())?;
    step::step("install evcxr_jupyter into target/evcxr", || {
        let mut install = cargo(root);
        install.arg("install").args(RIVAL).args(["--root", "target/evcxr"]);
        step::run(install.env("CARGO_TARGET_DIR", root.join("target/evcxr/build")))
    })?;
    step::step("measure", || {
        step::run(environment.python().arg("tests/bench.py").args(["--output", "docs/benchmarks.md"]))
    })
}
