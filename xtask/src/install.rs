//! `cargo xtask install` builds the kernel, and installs it for the current user's Jupyter.

use crate::environment::{build_program, outside_cargo};
use crate::step;
use anyhow::Result;
use std::path::Path;
use std::process::Command;

pub(crate) fn run(root: &Path) -> Result<()> {
    step::step("build", || build_program(root))?;
    step::step("install", || {
        let mut install = Command::new(root.join("target/release/ferrotune"));
        step::run(outside_cargo(install.args(["install", "--user"])))
    })
}
