//! Reads the manifest that evcxr writes for a cell: the user's dependencies and the optimisation level.

use crate::prelude;
use anyhow::{Context, Result};
use std::path::Path;
use toml_edit::DocumentMut;

/// Name of the package in which evcxr tries a new dependency.
const TRIAL_PACKAGE: &str = "evcxr_dummy_validate_dep";

/// The manifest of a cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Manifest {
    pub(super) opt_level: String,
    /// The sorted lines of `[dependencies]` without the prelude's crates.
    pub(super) dependencies: Vec<String>,
}

impl Manifest {
    pub(super) fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        Self::parse(&text).with_context(|| format!("cannot understand {}", path.display()))
    }

    fn parse(text: &str) -> Result<Self> {
        let manifest: DocumentMut = text.parse()?;
        let opt_level = &manifest["profile"]["dev"]["opt-level"];
        let opt_level = opt_level.as_str().map(str::to_owned).or_else(|| Some(opt_level.as_integer()?.to_string()));
        let mut dependencies: Vec<String> = manifest["dependencies"]
            .as_table()
            .into_iter()
            .flat_map(|table| table.iter())
            .filter(|(name, _)| !is_of_prelude(name))
            .map(|(name, value)| format!("{name} = {}", value.to_string().trim()))
            .collect();
        dependencies.sort();
        Ok(Self { opt_level: opt_level.unwrap_or_else(|| "2".to_owned()), dependencies })
    }
}

/// Whether a package is in the prelude, and so part of every cell.
pub(super) fn is_of_prelude(package: &str) -> bool {
    package == "ferrotune-prelude" || prelude::CRATES.contains(&package.replace('-', "_").as_str())
}

/// Whether evcxr tries a crate of the prelude, which needs no trial.
pub(super) fn asks_for_prelude_crate(path: &Path) -> Result<bool> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let manifest: DocumentMut = text.parse()?;
    let name = manifest.get("package").and_then(|package| package.get("name")).and_then(|name| name.as_str());
    let dependencies = manifest.get("dependencies").and_then(|dependencies| dependencies.as_table());
    Ok(name == Some(TRIAL_PACKAGE)
        && dependencies.is_some_and(|table| table.iter().all(|(name, _)| is_of_prelude(name))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_users_dependencies_are_listed() {
        let text = "[profile.dev]\nopt-level = 2\n[dependencies]\nrand = \"0.9\"\ncandle-core = { path = \"/x\" }\nferrotune = { path = \"/y\" }\n";
        let manifest = Manifest::parse(text).unwrap();
        assert_eq!(manifest, Manifest { opt_level: "2".into(), dependencies: vec!["rand = \"0.9\"".into()] });
    }
}
