//! `cargo xtask demo`: from a fresh clone to the best trial of the quickstart notebook.

use crate::environment::{Environment, build_program};
use crate::step;
use anyhow::Result;
use std::path::Path;

pub(crate) fn run(root: &Path) -> Result<()> {
    let environment = step::step("tools", || Environment::prepare(root))?;
    step::step("build", || build_program(root))?;
    step::step("install into target/jupyter", || environment.install_kernel())?;
    step::step("run notebooks/01_quickstart.ipynb", || {
        let mut python = environment.python();
        python.arg("tests/run_notebook.py").arg("notebooks/01_quickstart.ipynb");
        step::run(python.args(["--output", "target/demo"]))
    })
}
