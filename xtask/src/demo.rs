//! `cargo xtask demo` runs the quickstart notebook from a fresh clone up to the best trial.

use crate::environment::{Environment, build_program, find_tools};
use crate::step;
use anyhow::Result;
use std::path::Path;

pub(crate) fn run(root: &Path) -> Result<()> {
    find_tools(root)?;
    // The packages are downloaded while the compiler works.
    let own = root.to_owned();
    let packages = step::begin(move || Environment::prepare(&own));
    step::step("1 of 4: build the kernel, the longest step", || build_program(root))?;
    let environment = step::step("2 of 4: Python packages that run notebooks", packages)?;
    step::step("3 of 4: build what cells are linked with, candle among it", || environment.install_kernel())?;
    step::step("4 of 4: run notebooks/01_quickstart.ipynb", || {
        let mut python = environment.python();
        python.arg("tests/run_notebook.py").arg("notebooks/01_quickstart.ipynb");
        step::run(python.args(["--output", "target/demo"]))
    })
}
