//! `cargo xtask test`: everything that CI runs, the fastest steps first.
//!
//! Everything is built with one profile, release, because the kernel's dependencies are large and must be built only once.

use crate::environment::{Environment, cargo, find_style_tools};
use crate::{step, tidy};
use anyhow::{Result, ensure};
use std::fs::File;
use std::path::Path;

/// The tests that compile large models for TPUs.
const COMPILATIONS: &str = "tests/test_tpu_memory.py";

/// The tests that also run with the versions of Colab's Jupyter and IPython.
const COLAB: [&str; 3] = [SERVERS, "tests/test_python_arrays.py", "tests/test_python_extension.py"];
/// The tests that run only with them.
const SERVERS: &str = "tests/test_colab.py";

pub(crate) fn run(root: &Path) -> Result<()> {
    let environment = step::step("tools", || {
        find_style_tools(root)?;
        Environment::prepare_for_tests(root)
    })?;
    step::step("fmt", || step::run(cargo(root).args(["fmt", "--all", "--check"])))?;
    step::step("tidy", || tidy::run(root))?;
    step::step("clippy", || {
        let mut clippy = cargo(root);
        clippy.args(["clippy", "--release", "--locked", "--workspace", "--all-targets", "--", "-D", "warnings"]);
        step::run(&mut clippy)
    })?;
    // The integration tests of the kernel make cargo build the program, which the next steps install.
    step::step("cargo test", || step::run(cargo(root).args(["test", "--release", "--locked", "--workspace"])))?;
    step::step("install into target/jupyter", || environment.install_kernel())?;
    step::step("protocol with jupyter_client 7.4.9", || {
        let old_client = Environment::prepare_old_client(root)?;
        step::run(old_client.python().args(["-m", "pytest", "tests/protocol/test_kernel_test_suite.py"]))
    })?;
    step::step("Python notebooks with Colab's Jupyter", || {
        let colab = Environment::prepare_colab(root)?;
        step::run(colab.python().args(["-m", "pytest"]).args(COLAB))
    })?;
    step::step("pytest", || pytest(root, &environment))
}

/// Runs the tests in Python. One file of them keeps all processors busy for minutes, and the others mostly wait: it gets what they
/// leave, and its output comes after theirs.
fn pytest(root: &Path, environment: &Environment) -> Result<()> {
    let log = root.join("target/tpu_memory.log");
    let output = File::create(&log)?;
    let mut beside = environment.python();
    beside.args(["-c", "import os, pytest, sys; os.nice(19); sys.exit(pytest.main(sys.argv[1:]))", COMPILATIONS]);
    let mut beside = beside.stdout(output.try_clone()?).stderr(output).spawn()?;
    let ignored = [COMPILATIONS, SERVERS].map(|file| format!("--ignore={file}"));
    let result = step::run(environment.python().args(["-m", "pytest", "--durations=20", "tests"]).args(&ignored));
    let status = beside.wait()?;
    eprint!("{}", String::from_utf8_lossy(&std::fs::read(log)?));
    result?;
    ensure!(status.success(), "{COMPILATIONS} failed: {status}");
    Ok(())
}
