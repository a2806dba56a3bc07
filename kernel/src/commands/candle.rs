//! `ferrotune candle FOLDER`: Ferrotune's packages of candle, for Rust programs without a notebook.

use crate::prelude::shipped;
use anyhow::{Context, Result};
use ferrotune_candle::{CANDLE, Changes};
use std::path::Path;

/// Writes the packages, and prints the lines of a manifest that name them.
pub(crate) fn run(folder: &Path) -> Result<()> {
    let toolchain = shipped::toolchain()?;
    ferrotune_candle::make(toolchain.cargo(), folder, &Changes::packed(), &mut |line| eprintln!("{line}"))?;
    let path = folder.canonicalize().with_context(|| format!("cannot find {}", folder.display()))?;
    eprintln!("[patch.crates-io]");
    for package in CANDLE.packages {
        eprintln!("{} = {{ path = {:?} }}", package.name, path.join(package.name));
    }
    Ok(())
}
