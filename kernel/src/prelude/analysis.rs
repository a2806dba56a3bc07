//! A copy of the prelude's sources for rust-analyzer, with only the crates whose types cells name.
//!
//! rust-analyzer reads every dependency of every dependency. candle has over a hundred dependencies, and no variable of a cell has
//! a type of theirs. Without these crates rust-analyzer needs a fraction of the time and memory.

mod signatures;
mod standard_library;

use super::CRATES;
use crate::toolchain::Toolchain;
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use toml_edit::{DocumentMut, Item, Table, value};

/// One package of the copy.
struct Package {
    /// Name of the package in the copy, and of the package's folder: the library's name with dashes.
    name: String,
    library: String,
    edition: String,
    /// Folder of the library's root file, as a rule `src`.
    sources: PathBuf,
    /// Package names of the dependencies, each with the name to which the manifest renames it, if any.
    dependencies: Vec<(String, Option<String>)>,
}

/// Whether cells can name types of this library.
pub(super) fn is_wanted(library: &str) -> bool {
    library.starts_with("ferrotune") || library == "candle_core" || library == "candle_nn"
}

/// Writes the copy to `folder`. `manifests` are the manifests of the wanted packages that cargo has compiled.
pub(super) fn write(toolchain: &Toolchain, manifests: &BTreeSet<PathBuf>, folder: &Path) -> Result<()> {
    let packages = packages(toolchain, manifests)?;
    for package in packages.values() {
        let target = folder.join(&package.name);
        copy_sources(&package.sources, &target.join("src"))?;
        fs::write(target.join("Cargo.toml"), manifest(package, &packages))?;
    }
    if let Some(missing) = CRATES.iter().find(|name| !folder.join(name.replace('_', "-")).exists()) {
        bail!("no sources of {missing}");
    }
    standard_library::write(toolchain, &folder.join("standard-library"))
}

/// The packages of the manifests, by package name.
///
/// Calls cargo for each package alone: for the whole dependency tree cargo would download packages that no build on this
/// system uses, such as those for other systems and for tests.
fn packages(toolchain: &Toolchain, manifests: &BTreeSet<PathBuf>) -> Result<BTreeMap<String, Package>> {
    let mut packages = BTreeMap::new();
    for manifest in manifests {
        let output = Command::new(&toolchain.cargo)
            .args(["metadata", "--format-version=1", "--no-deps", "--offline", "--manifest-path"])
            .arg(manifest)
            .output()
            .with_context(|| format!("cannot run {}", toolchain.cargo.display()))?;
        if !output.status.success() {
            let error = String::from_utf8_lossy(&output.stderr);
            bail!("cargo metadata failed for {}: {}", manifest.display(), error.trim());
        }
        let metadata: Value = serde_json::from_slice(&output.stdout)?;
        let descriptions = metadata["packages"].as_array().context("cargo metadata lists no packages")?;
        // Cargo also describes the other members of a workspace.
        let own =
            descriptions.iter().find(|package| package["manifest_path"].as_str().map(Path::new) == Some(manifest));
        packages.extend(own.and_then(package));
    }
    Ok(packages)
}

fn package(description: &Value) -> Option<(String, Package)> {
    let package_name = description["name"].as_str()?;
    let target = description["targets"].as_array()?.iter().find(|target| {
        target["kind"].as_array().is_some_and(|kinds| kinds.iter().any(|kind| kind == "lib" || kind == "dylib"))
    })?;
    let library = target["name"].as_str()?.to_owned();
    let dependencies = description["dependencies"]
        .as_array()?
        .iter()
        .filter(|dependency| dependency["kind"].is_null())
        .filter_map(|dependency| {
            Some((dependency["name"].as_str()?.to_owned(), dependency["rename"].as_str().map(str::to_owned)))
        })
        .collect();
    let package = Package {
        name: library.replace('_', "-"),
        library,
        edition: description["edition"].as_str()?.to_owned(),
        sources: Path::new(target["src_path"].as_str()?).parent()?.to_owned(),
        dependencies,
    };
    Some((package_name.to_owned(), package))
}

fn manifest(package: &Package, packages: &BTreeMap<String, Package>) -> String {
    let mut manifest = DocumentMut::new();
    let mut table = Table::new();
    table["name"] = value(&package.name);
    table["version"] = value("0.0.0");
    table["edition"] = value(&package.edition);
    manifest["package"] = Item::Table(table);
    let mut library = Table::new();
    library["name"] = value(&package.library);
    manifest["lib"] = Item::Table(library);
    let mut dependencies = Table::new();
    for (name, rename) in &package.dependencies {
        let Some(dependency) = packages.get(name) else { continue };
        let key = rename.clone().unwrap_or_else(|| dependency.name.clone());
        dependencies[&key]["path"] = value(format!("../{}", dependency.name));
        dependencies[&key]["package"] = value(&dependency.name);
    }
    manifest["dependencies"] = Item::Table(dependencies);
    // The package has its own workspace, so that cargo never takes it for a member of the user's workspace.
    manifest["workspace"] = Item::Table(Table::new());
    manifest.to_string()
}

fn copy_sources(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from).with_context(|| format!("cannot read {}", from.display()))? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_sources(&entry.path(), &target)?;
        } else if target.extension().is_some_and(|extension| extension == "rs") {
            copy_signatures(&entry.path(), &target)?;
        }
    }
    Ok(())
}

/// Copies the parts of a file that rust-analyzer needs.
fn copy_signatures(from: &Path, to: &Path) -> Result<()> {
    let source = fs::read_to_string(from).with_context(|| format!("cannot read {}", from.display()))?;
    fs::write(to, signatures::of(&source)).with_context(|| format!("cannot write {}", to.display()))
}
