//! The toolchains that `ferrotune setup` installs: each toolchain is a folder in the user's data folder, complete or absent.
//!
//! The toolchains are data and not cache, because a machine that clears its caches may have no network to fetch them again.

use anyhow::{Context, Result};
use std::path::{Path, PathBuf};

/// The version of Rust that `ferrotune setup` installs.
pub(crate) const VERSION: &str = "1.95.0";

/// Beginning of the folders' names.
pub(crate) const PREFIX: &str = "toolchain-";

/// The file that makes a folder complete.
pub(crate) const READY: &str = "ready.json";

/// The target triple of the toolchains.
pub(crate) fn host() -> String {
    format!("{}-unknown-linux-gnu", std::env::consts::ARCH)
}

/// The folder of the toolchain of a version, whether it exists or not.
pub(crate) fn folder(version: &str) -> Result<PathBuf> {
    Ok(data_folder()?.join(format!("{PREFIX}{version}")))
}

/// The folder of everything that cannot be built again: `ferrotune` in the user's data folder.
pub(crate) fn data_folder() -> Result<PathBuf> {
    let data = dirs::data_dir().context("no data folder: set HOME or XDG_DATA_HOME")?;
    Ok(data.join("ferrotune"))
}

/// Whether a toolchain is complete.
pub(crate) fn is_complete(folder: &Path) -> bool {
    folder.join(READY).is_file()
}
