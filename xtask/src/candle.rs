//! `cargo xtask candle` makes our candle-core in `candle/candle-core`, as every other task does first. After an edit there,
//! `cargo xtask candle --diff` writes the changes in `candle/` anew.

use crate::environment::cargo;
use anyhow::{Result, bail};
use ferrotune_candle::Changes;
use std::path::Path;

/// The task's name.
pub(crate) const NAME: &str = "candle";

/// The sources that it makes.
pub(crate) const SOURCES: &str = "candle/candle-core/src";

pub(crate) fn run(root: &Path) -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(2).collect();
    match arguments.as_slice() {
        [] => make(root),
        [option] if option == "--diff" => write_changes(root),
        _ => bail!("usage: cargo xtask candle [--diff]"),
    }
}

/// Makes the folder, unless it is there already.
pub(crate) fn make(root: &Path) -> Result<()> {
    let changes = Changes::read(&root.join("candle"))?;
    let folder = root.join("candle/candle-core");
    Ok(ferrotune_candle::make(cargo(root), &folder, &changes, &mut |line| eprintln!("xtask: {line}"))?)
}

/// Complains about edits that are in no patch.
pub(crate) fn complaints(root: &Path) -> Result<Vec<String>> {
    let edited = ferrotune_candle::edited(&root.join("candle/candle-core"))?;
    let complaint = |path| {
        format!("candle/candle-core/{path}: is edited; write the edit into a patch with `cargo xtask candle --diff`")
    };
    Ok(edited.into_iter().map(complaint).collect())
}

fn write_changes(root: &Path) -> Result<()> {
    let candle = root.join("candle");
    for path in ferrotune_candle::write_changes(cargo(root), &candle.join("candle-core"), &candle)? {
        eprintln!("xtask candle: wrote the change of {path}");
    }
    make(root)
}
