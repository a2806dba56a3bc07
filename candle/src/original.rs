//! crates.io's own package, which cargo finds or downloads.

use crate::error::{Error, Result, io};
use crate::package::Package;
use crate::sources::{self, Sources};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The lock file of the workspace. With it cargo chooses the same versions of a package's dependencies here, and needs no
/// network if they are in its cache. A link leads to it, because a packed crate has no workspace.
const LOCK: &str = include_str!("../workspace.lock");

/// A package that has nothing but one dependency.
const MANIFEST: &str =
    "[workspace]\n[package]\nname = \"fetch\"\nversion = \"0.0.0\"\nedition = \"2024\"\n[lib]\npath = \"lib.rs\"\n";

/// The parts of the package that we use.
pub(crate) struct Original {
    /// Everything in `src`.
    pub(crate) sources: Sources,
    /// What is beside `src`.
    pub(crate) documents: Sources,
}

impl Original {
    /// Asks a call of cargo, to which this adds arguments, for the package.
    pub(crate) fn fetch(package: &'static Package, cargo: Command) -> Result<Self> {
        let folder = locate(package, cargo)?;
        let names = package.documents.iter().filter(|name| folder.join(name).exists());
        let documents = names.map(|name| Ok(((*name).to_owned(), sources::text(&folder.join(name))?)));
        Ok(Self { documents: documents.collect::<Result<_>>()?, sources: sources::read(&folder, "src")? })
    }
}

/// The folder of crates.io's package in cargo's cache. Cargo first downloads what a build on this machine needs of the
/// package and its dependencies.
///
/// `cargo` is a call of cargo without arguments.
///
/// # Errors
///
/// Cargo cannot be run, or cannot download the package.
pub fn locate(package: &'static Package, mut cargo: Command) -> Result<PathBuf> {
    let folder = tempfile::tempdir().map_err(io("write", &std::env::temp_dir()))?;
    let manifest = folder.path().join("Cargo.toml");
    let Package { name, version, .. } = package;
    let dependency = format!("[dependencies]\n{name} = {{ version = \"={version}\", default-features = false }}\n");
    for (name, text) in
        [("Cargo.toml", format!("{MANIFEST}{dependency}")), ("Cargo.lock", lock(package)), ("lib.rs", String::new())]
    {
        let path = folder.path().join(name);
        fs::write(&path, text).map_err(io("write", &path))?;
    }
    cargo.args(["metadata", "--format-version=1", "--filter-platform=host-tuple", "--manifest-path"]).arg(&manifest);
    let answer = answer(package, cargo)?;
    let metadata: Value = serde_json::from_slice(&answer).map_err(|_| Error::NoAnswer { package })?;
    let mut packages = metadata["packages"].as_array().into_iter().flatten();
    let found = packages.find(|found| found["name"] == *name && found["version"] == *version);
    let manifest = found.and_then(|found| found["manifest_path"].as_str()).ok_or(Error::NoAnswer { package })?;
    Path::new(manifest).parent().map(Path::to_owned).ok_or(Error::NoAnswer { package })
}

/// The lock file, with the package from crates.io. In the workspace our own takes its place.
fn lock(package: &Package) -> String {
    let Package { name, version, checksum, our_name, our_version, .. } = package;
    let entry = |name, version| format!("name = \"{name}\"\nversion = \"{version}\"\n");
    let source = "source = \"registry+https://github.com/rust-lang/crates.io-index\"";
    let theirs = format!("{}{source}\nchecksum = \"{checksum}\"\n", entry(name, version));
    LOCK.replacen(&entry(our_name, our_version), &theirs, 1)
}

/// Runs cargo, and returns its standard output.
fn answer(package: &'static Package, mut cargo: Command) -> Result<Vec<u8>> {
    let program = cargo.get_program().to_string_lossy().into_owned();
    let output = cargo.stdin(Stdio::null()).output().map_err(|source| Error::NoCargo { package, program, source })?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let text = String::from_utf8_lossy(&output.stderr);
    let messages = in_one_line(&text);
    let no_network = ["failed to download", "Could not resolve host", "Couldn't connect", "offline"];
    Err(if no_network.iter().any(|reason| text.contains(reason)) {
        Error::Unreachable { package, messages }
    } else {
        Error::Cargo { package, messages }
    })
}

/// Cargo's error and its causes, without its progress.
fn in_one_line(text: &str) -> String {
    let lines = text.lines().skip_while(|line| !line.starts_with("error")).map(str::trim);
    let lines = lines.filter(|line| !line.is_empty() && *line != "Caused by:");
    let lines: Vec<&str> = lines.map(|line| line.trim_start_matches("error: ")).collect();
    lines.join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::package::{CANDLE, EVCXR};

    #[test]
    fn causes_of_cargo_become_one_line() {
        let text = "    Updating crates.io index\nerror: failed to get `x`\n\nCaused by:\n  download failed\n\nCaused by:\n  no network\n";
        assert_eq!(in_one_line(text), "failed to get `x`: download failed: no network");
    }

    #[test]
    fn the_lock_file_names_the_package_of_crates_io_once() {
        for package in [&CANDLE, &EVCXR] {
            assert_eq!(lock(package).matches(package.checksum).count(), 1, "{package}");
        }
    }

    #[test]
    fn a_cargo_that_is_missing_is_named() {
        let error = Original::fetch(&CANDLE, Command::new("no-such-cargo")).err().unwrap().to_string();
        assert!(error.starts_with("cannot run no-such-cargo, which fetches candle-core 0.11.1: "), "{error}");
    }
}
