//! `cargo xtask candle` and `cargo xtask evcxr` make our candle-core in `candle/candle-core` and our evcxr in `evcxr/evcxr`, as
//! every other task does first. After an edit there, the same with `--diff` writes the changes in `candle/` or `evcxr/` anew.

use crate::environment::cargo;
use anyhow::{Result, bail};
use ferrotune_candle::{CANDLE, Changes, EVCXR, Package};
use std::path::{Path, PathBuf};

/// The tasks' names.
pub(crate) const NAMES: [&str; 2] = [CANDLE.folder, EVCXR.folder];

/// The sources that they make.
pub(crate) const SOURCES: [&str; 2] = ["candle/candle-core/src", "evcxr/evcxr/src"];

pub(crate) fn run_candle(root: &Path) -> Result<()> {
    run(root, &CANDLE)
}

pub(crate) fn run_evcxr(root: &Path) -> Result<()> {
    run(root, &EVCXR)
}

fn run(root: &Path, package: &'static Package) -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(2).collect();
    match arguments.as_slice() {
        [] => make_all(root),
        [option] if option == "--diff" => write_changes(root, package),
        _ => bail!("usage: cargo xtask {} [--diff]", package.folder),
    }
}

/// Makes the folders, unless they are there already.
pub(crate) fn make_all(root: &Path) -> Result<()> {
    make(root, &CANDLE)?;
    make(root, &EVCXR)
}

fn make(root: &Path, package: &'static Package) -> Result<()> {
    let changes = Changes::read(package, &root.join(package.folder))?;
    Ok(ferrotune_candle::make(cargo(root), &sources(root, package), &changes, &mut |line| eprintln!("xtask: {line}"))?)
}

/// Complains about edits that are in no patch.
pub(crate) fn complaints(root: &Path) -> Result<Vec<String>> {
    let mut complaints = Vec::new();
    for package in [&CANDLE, &EVCXR] {
        let Package { name, folder, .. } = package;
        let complaint = |path| {
            format!("{folder}/{name}/{path}: is edited; write the edit into a patch with `cargo xtask {folder} --diff`")
        };
        complaints.extend(ferrotune_candle::edited(&sources(root, package))?.into_iter().map(complaint));
    }
    Ok(complaints)
}

fn write_changes(root: &Path, package: &'static Package) -> Result<()> {
    let folder = root.join(package.folder);
    for path in ferrotune_candle::write_changes(package, cargo(root), &sources(root, package), &folder)? {
        eprintln!("xtask {}: wrote the change of {path}", package.folder);
    }
    make(root, package)
}

fn sources(root: &Path, package: &Package) -> PathBuf {
    root.join(package.folder).join(package.name)
}
