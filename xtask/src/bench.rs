//! `cargo xtask bench` compares this kernel with evcxr_jupyter on this machine and writes `benchmarks/README.md`.
//! `cargo xtask bench hpo` compares the oracles with Optuna on formulas, `cargo xtask bench digits` on real training,
//! `cargo xtask bench keras` a search with Keras Tuner's, `cargo xtask bench data` the input of training with tf.data and
//! PyTorch's, `cargo xtask bench cluster` several processes with OpenMPI and Optuna, `cargo xtask bench trials` what a trial costs
//! beside its training, `cargo xtask bench training` epochs of `Fit` with those of Keras, Lightning and PyTorch, and
//! `cargo xtask bench steps` training steps with candle's own, PyTorch's, JAX's and burn's. `cargo xtask bench examples` counts which
//! examples of the standard library run.

mod digits;
mod examples;
mod hpo;
mod steps;

use crate::environment::{Environment, build_program, cargo};
use crate::step;
use anyhow::{Result, bail};
use std::path::Path;

/// The published kernel and its version for the comparison.
const RIVAL: [&str; 4] = ["evcxr_jupyter", "--version", "0.22.0", "--locked"];

pub(crate) fn run(root: &Path) -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(2).collect();
    match arguments.split_first() {
        None => kernels(root),
        Some((what, rest)) if what == "hpo" => hpo::run(root, rest),
        Some((what, [])) if what == "data" || what == "keras" => compare_with_python(root, what),
        Some((what, [])) if what == "cluster" => cluster(root),
        Some((what, [])) if what == "trials" => trials(root),
        Some((what, [])) if what == "training" => training(root),
        Some((what, [])) if what == "digits" => digits::run(root),
        Some((what, rest)) if what == "examples" => examples::run(root, rest),
        Some((what, rest)) if what == "steps" => steps::run(root, rest),
        Some((what, _)) => {
            bail!(
                "there is no bench `{what}`; use cluster, data, digits, examples, hpo, keras, steps, training, trials, or no name to compare the kernels"
            )
        }
    }
}

/// Measures notebooks, and the programs of other libraries for comparison.
fn compare_with_python(root: &Path, what: &str) -> Result<()> {
    let environment = step::step("tools", || Environment::prepare_for_tests(root))?;
    step::step("the others", || environment.add(&format!("benchmarks/requirements-{what}.txt")))?;
    measure_notebooks(root, &environment, what)
}

fn trials(root: &Path) -> Result<()> {
    let environment = step::step("tools", || Environment::prepare_for_tests(root))?;
    measure_notebooks(root, &environment, "trials")
}

fn measure_notebooks(root: &Path, environment: &Environment, what: &str) -> Result<()> {
    step::step("build", || build_program(root))?;
    step::step("install into target/jupyter", || environment.install_kernel())?;
    step::step("measure", || {
        let page = format!("benchmarks/{what}.md");
        step::run(environment.bench(&format!("bench_{what}.py")).args(["--output", &page]))
    })
}

fn cluster(root: &Path) -> Result<()> {
    let environment = step::step("tools", || Environment::prepare_for_tests(root))?;
    step::step("build", || {
        let mut build = cargo(root);
        build.args([
            "build",
            "--release",
            "--locked",
            "--examples",
            "-p",
            "ferrotune-devices",
            "-p",
            "ferrotune-study",
        ]);
        step::run(&mut build)
    })?;
    step::step("measure", || {
        step::run(environment.bench("bench_cluster.py").args(["--output", "benchmarks/cluster.md"]))
    })
}

fn training(root: &Path) -> Result<()> {
    let environment = step::step("tools", || Environment::prepare_for_tests(root))?;
    step::step("the others", || environment.add("benchmarks/requirements-training.txt"))?;
    let target = root.join("target/bench/build");
    step::step("build", || {
        let mut build = cargo(root);
        build.args(["build", "--release", "--locked", "-p", "ferrotune-fit", "--example", "training"]);
        // The library of the cells is compiled with these optimizations. Without them, an epoch on the CPU takes twice as long.
        build.args(["--config", "profile.release.lto=false"]);
        step::run(build.env("CARGO_TARGET_DIR", &target))
    })?;
    step::step("measure", || {
        let mut bench = environment.bench("bench_training.py");
        bench.args(["--output", "benchmarks/training.md", "--program"]);
        step::run(bench.arg(target.join("release/examples/training")))
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
    step::step("measure", || step::run(environment.bench("bench.py").args(["--output", "benchmarks/README.md"])))
}
