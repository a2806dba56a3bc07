//! One dynamic library of all crates of a notebook. Each cell would have its own copy of their statics otherwise, and the linker
//! would put all their code into each cell.

use super::super::stoppable::{self, Kernel};
use super::{Dependencies, Extern, OPT_LEVEL};
use crate::environment::{RUSTC_VARIABLE, required, restore_path};
use crate::prelude;
use anyhow::{Context, Result};
use sha2::{Digest, Sha256};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The library's name and file; none if the crates have no code for the process of the cells, or, with a warning, if they cannot be
/// linked with each other.
///
/// # Errors
/// If it cannot be written; that of a stop.
pub(super) fn link(
    dependencies: &Dependencies,
    target: &Path,
    kernel: &mut Kernel,
) -> Result<Option<(String, PathBuf)>> {
    let is_linked = |dependency: &&Extern| dependency.file.extension().is_some_and(|extension| extension == "rlib");
    let linked: Vec<&Extern> = dependencies.externs.iter().filter(is_linked).collect();
    if linked.is_empty() {
        return Ok(None);
    }
    let builds = linked.iter().fold(Sha256::new(), |hash, dependency| hash.chain_update(&dependency.build));
    // The process of the cells keeps the library of earlier cells, and would take another file of the same name for it.
    let name = format!("cell_dependencies_{}", prelude::short_hash(builds));
    let file = target.join(format!("lib{name}.so"));
    let is_there = file.is_file() || build(&name, &linked, dependencies, &file, kernel)?;
    Ok(is_there.then_some((name, file)))
}

fn build(
    name: &str,
    linked: &[&Extern],
    dependencies: &Dependencies,
    file: &Path,
    kernel: &mut Kernel,
) -> Result<bool> {
    let folder = tempfile::tempdir_in(file.parent().context("a library is in a folder")?)?;
    let source = folder.path().join("lib.rs");
    fs::write(
        &source,
        linked.iter().map(|linked| format!("extern crate {} as _;\n", linked.name)).collect::<String>(),
    )?;
    let mut rustc = Command::new(required(RUSTC_VARIABLE)?);
    restore_path(&mut rustc);
    rustc.arg(&source).arg(format!("--crate-name={name}")).arg("--out-dir").arg(folder.path());
    rustc.args(["--edition=2024", "--crate-type=dylib", "-Cprefer-dynamic"]).arg(format!("-Copt-level={OPT_LEVEL}"));
    dependencies.use_in(&mut rustc);
    let mut messages = Vec::new();
    let ended = stoppable::run(rustc.stdin(Stdio::null()).stderr(Stdio::piped()), kernel, |bytes, _| {
        messages.extend_from_slice(bytes);
        Ok(())
    })?;
    if ended.status.success() {
        fs::rename(folder.path().join(format!("lib{name}.so")), file)?;
        return Ok(true);
    }
    let messages = String::from_utf8_lossy(&messages);
    let reason = messages.lines().find(|line| line.starts_with("error")).unwrap_or("rustc failed");
    kernel.print_error(&format!(
        "warning: each cell has a copy of its own of the statics of these crates, since they cannot be one library: {reason}\n"
    ))?;
    Ok(false)
}
