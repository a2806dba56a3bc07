//! `cargo xtask test`: everything that CI runs, the fastest steps first.
//!
//! Everything is built with one profile, release, because the kernel's dependencies are large and must be built only once.

use crate::environment::{Environment, cargo, find_style_tools};
use crate::{step, tidy};
use anyhow::Result;
use std::path::Path;

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
    step::step("pytest", || step::run(environment.python().args(["-m", "pytest", "--durations=20", "tests"])))
}
