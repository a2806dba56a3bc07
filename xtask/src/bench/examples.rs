//! `cargo xtask bench examples` runs the examples of Rust's standard library as cells, whole and cut into statements, and writes
//! `benchmarks/examples.md`. Its options are those of `benchmarks/bench_examples.py`; `--rival` is evcxr_jupyter's program, which this
//! bench does not build.

use crate::environment::{Environment, build_program};
use crate::step;
use anyhow::Result;
use std::path::Path;

pub(super) fn run(root: &Path, options: &[String]) -> Result<()> {
    let environment = step::step("tools", || Environment::prepare_for_tests(root))?;
    step::step("build", || build_program(root))?;
    step::step("install into target/jupyter", || environment.install_kernel())?;
    step::step("measure", || {
        let mut python = environment.bench("bench_examples.py");
        step::run(python.args(["--output", "benchmarks/examples.md"]).args(options))
    })
}
