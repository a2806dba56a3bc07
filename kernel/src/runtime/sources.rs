//! The sources that rust-analyzer reads as the standard library and as the crates of the prelude, under a link whose path never
//! changes. The link leads to empty crates first. The real sources take most of a second and 100 MiB, and only the types of
//! variables, completion and documentation need them.

use super::Runtime;
use crate::prelude::{CRATES, Prelude};
use anyhow::Result;
use std::fs;
use std::path::{Path, PathBuf};

/// Name of the link in the kernel's folder.
const LINK: &str = "analysis";

/// Name of the folder with the empty crates.
const EMPTY: &str = "empty";

/// Path of the standard library below the link.
pub(super) fn standard_library(runtime: &Path) -> PathBuf {
    runtime.join(LINK).join("standard-library")
}

/// Writes the empty crates.
pub(super) fn write_empty(runtime: &Path) -> Result<()> {
    let empty = runtime.join(EMPTY);
    // rust-analyzer takes a folder with `core` in it for the standard library.
    fs::create_dir_all(empty.join("standard-library/core"))?;
    for name in CRATES {
        let folder = empty.join(name.replace('_', "-"));
        fs::create_dir_all(folder.join("src"))?;
        fs::write(folder.join("src/lib.rs"), "")?;
        let package = format!("[package]\nname = {:?}\nversion = \"0.0.0\"\n\n[workspace]\n", name.replace('_', "-"));
        fs::write(folder.join("Cargo.toml"), package)?;
    }
    Ok(())
}

impl Runtime {
    /// Makes the link lead to the empty crates.
    pub(crate) fn hide_sources(&self) -> Result<()> {
        self.link(LINK, &self.folder.join(EMPTY))
    }

    /// Makes the link lead to the real sources, which rust-analyzer finds when it reads its manifest anew.
    pub(crate) fn show_sources(&self, prelude: &Prelude) -> Result<()> {
        self.link(LINK, &prelude.analysis())
    }

    /// The `[dependencies]` entry by which rust-analyzer finds a crate's sources: package name and value.
    pub(crate) fn analysis_dependency(&self, name: &str) -> (String, String) {
        let package = name.replace('_', "-");
        let value = format!("{{ path = {:?} }}", self.folder.join(LINK).join(&package));
        (package, value)
    }
}
