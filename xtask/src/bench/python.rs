//! The tables that programs in Python measure: `benchmarks/bench*.py` and `tests/numbers`. Builds what they run; each program writes
//! the text of its table into a file, and prepares nothing.

use super::Request;
use crate::environment::{Environment, build_program, cargo};
use crate::step;
use anyhow::{Context, Result};
use std::fs;
use std::path::Path;
use std::process::Command;

/// The published kernel and its version for the comparison.
const RIVAL: [&str; 4] = ["evcxr_jupyter", "--version", "0.22.0", "--locked"];

/// This kernel and evcxr_jupyter.
pub(super) fn cells(request: &Request<'_>) -> Result<Option<String>> {
    let root = request.root;
    let environment = with_kernel(root, None)?;
    step::step("install evcxr_jupyter into target/evcxr", || {
        let mut install = cargo(root);
        install.arg("install").args(RIVAL).args(["--root", "target/evcxr"]);
        step::run(install.env("CARGO_TARGET_DIR", root.join("target/evcxr/build")))
    })?;
    written(request, environment.bench("bench.py").arg(request.name))
}

/// This kernel alone.
pub(super) fn kernel(request: &Request<'_>) -> Result<Option<String>> {
    written(request, with_kernel(request.root, None)?.bench("bench.py").arg(request.name))
}

/// Notebooks, and the programs of other libraries.
pub(super) fn library(request: &Request<'_>) -> Result<Option<String>> {
    let requirements = format!("benchmarks/requirements-{}.txt", request.name);
    let environment = with_kernel(request.root, Some(&requirements))?;
    written(request, &mut environment.bench(&format!("bench_{}.py", request.name)))
}

pub(super) fn trials(request: &Request<'_>) -> Result<Option<String>> {
    written(request, &mut with_kernel(request.root, None)?.bench("bench_trials.py"))
}

/// The examples of Rust's standard library as cells, whole and cut into statements. Does not build evcxr_jupyter, whose program is the
/// value of `--rival`.
pub(super) fn examples(request: &Request<'_>) -> Result<Option<String>> {
    written(request, &mut with_kernel(request.root, None)?.bench("bench_examples.py"))
}

pub(super) fn cluster(request: &Request<'_>) -> Result<Option<String>> {
    let environment = step::step("tools", || Environment::prepare_for_tests(request.root))?;
    step::step("build", || {
        let mut build = cargo(request.root);
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
    written(request, environment.bench("bench_cluster.py").arg(request.name))
}

pub(super) fn training(request: &Request<'_>) -> Result<Option<String>> {
    let environment = step::step("tools", || Environment::prepare_for_tests(request.root))?;
    step::step("the others", || environment.add("benchmarks/requirements-training.txt"))?;
    let target = request.root.join("target/bench/build");
    step::step("build", || {
        let mut build = cargo(request.root);
        build.args(["build", "--release", "--locked", "-p", "ferrotune-fit", "--example", "training"]);
        // The library of the cells is compiled with these optimizations. Without them, an epoch on the CPU takes twice as long.
        build.args(["--config", "profile.release.lto=false"]);
        step::run(build.env("CARGO_TARGET_DIR", &target))
    })?;
    let program = target.join("release/examples/training");
    written(request, environment.bench("bench_training.py").arg("--program").arg(program))
}

/// The cases of `tests/numbers`, and how many of them differ.
pub(super) fn numbers(request: &Request<'_>) -> Result<Option<String>> {
    let environment = step::step("tools", || Environment::prepare_for_tests(request.root))?;
    step::step("build", || {
        step::run(cargo(request.root).args(["build", "--release", "--locked", "-p", "ferrotune-numbers"]))
    })?;
    let mut python = environment.python();
    python.env("PYTHONPATH", request.root.join("tests/numbers")).args(["-m", "differences"]);
    written(request, &mut python)
}

/// The tests' tools with this kernel, and with other packages for the comparison.
fn with_kernel(root: &Path, requirements: Option<&str>) -> Result<Environment> {
    let environment = step::step("tools", || Environment::prepare_for_tests(root))?;
    if let Some(requirements) = requirements {
        step::step("the others", || environment.add(requirements))?;
    }
    step::step("build", || build_program(root))?;
    step::step("install into target/jupyter", || environment.install_kernel())?;
    Ok(environment)
}

/// Runs a program, and returns the text that it writes into the file of its option `--output`. Some options make it write none.
fn written(request: &Request<'_>, python: &mut Command) -> Result<Option<String>> {
    let folder = request.root.join("target/bench");
    let output = folder.join(format!("{}.md", request.name));
    fs::create_dir_all(&folder).context("cannot create target/bench")?;
    fs::write(&output, "").with_context(|| format!("cannot write {}", output.display()))?;
    step::step("measure", || step::run(python.arg("--output").arg(&output).args(request.options)))?;
    let text = fs::read_to_string(&output).with_context(|| format!("cannot read {}", output.display()))?;
    Ok(Some(text).filter(|text| !text.is_empty()))
}
