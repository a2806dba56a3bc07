//! The sources that rust-analyzer reads as the standard library and as the crates of the prelude, under a link whose path never
//! changes.

use super::Runtime;
use crate::prelude::Prelude;
use anyhow::Result;
use std::path::{Path, PathBuf};

/// Name of the link in the kernel's folder.
const LINK: &str = "analysis";

/// Path of the standard library below the link.
pub(super) fn standard_library(runtime: &Path) -> PathBuf {
    runtime.join(LINK).join("standard-library")
}

impl Runtime {
    /// Makes the link lead to the sources of a prelude. rust-analyzer reads them when it is asked for the first time.
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
