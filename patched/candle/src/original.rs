//! The packages of crates.io, which cargo finds in its cache or downloads.

use crate::error::{Error, Result, io};
use crate::package::{Package, Upstream};
use crate::sources::{self, Sources};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The lock file of the workspace. With it, cargo chooses the same versions of the packages' dependencies here, and needs no
/// network if they are in its cache. The file's path is a link, because a packed crate has no workspace.
const LOCK: &str = include_str!("../workspace.lock");

/// The manifest of a package without code.
const MANIFEST: &str =
    "[workspace]\n[package]\nname = \"fetch\"\nversion = \"0.0.0\"\nedition = \"2024\"\n[lib]\npath = \"lib.rs\"\n";

/// The parts of the packages that we use, by their paths below the project's folder.
pub(crate) struct Original {
    /// Everything in `src` of each package.
    pub(crate) sources: Sources,
    /// The kept files outside `src`.
    pub(crate) documents: Sources,
}

impl Original {
    /// Reads the packages from the folders that cargo finds. `cargo` is a call of cargo without arguments.
    pub(crate) fn fetch(upstream: &'static Upstream, cargo: Command) -> Result<Self> {
        let mut original = Self { sources: Sources::new(), documents: Sources::new() };
        for (package, folder) in upstream.packages.iter().zip(locate(upstream, cargo)?) {
            let below = |path: String| format!("{}/{path}", package.name);
            original.sources.extend(sources::read(&folder, "src")?.into_iter().map(|(path, text)| (below(path), text)));
            for name in package.documents.iter().filter(|name| folder.join(name).exists()) {
                original.documents.insert(below((*name).to_owned()), sources::text(&folder.join(name))?);
            }
        }
        Ok(original)
    }
}

/// The folders of crates.io's packages in cargo's cache, in the order of [`Upstream::packages`]. Cargo first downloads the packages
/// and those of their dependencies that a build on this machine needs.
///
/// `cargo` is a call of cargo without arguments.
///
/// # Errors
///
/// Cargo cannot be run, or cannot download the packages.
pub fn locate(upstream: &'static Upstream, mut cargo: Command) -> Result<Vec<PathBuf>> {
    let folder = tempfile::tempdir().map_err(io("write", &std::env::temp_dir()))?;
    let manifest = folder.path().join("Cargo.toml");
    for (name, text) in [("Cargo.toml", dependent(upstream)), ("Cargo.lock", lock(upstream)), ("lib.rs", String::new())]
    {
        let path = folder.path().join(name);
        fs::write(&path, text).map_err(io("write", &path))?;
    }
    cargo.args(["metadata", "--format-version=1", "--filter-platform=host-tuple", "--manifest-path"]).arg(&manifest);
    let answer = answer(upstream, cargo)?;
    let metadata: Value = serde_json::from_slice(&answer).map_err(|_| Error::NoAnswer { upstream })?;
    let folder = |package: &Package| {
        let mut packages = metadata["packages"].as_array()?.iter();
        let found = packages.find(|found| found["name"] == package.name && found["version"] == upstream.version)?;
        Path::new(found["manifest_path"].as_str()?).parent().map(Path::to_owned)
    };
    upstream.packages.iter().map(|package| folder(package).ok_or(Error::NoAnswer { upstream })).collect()
}

/// The manifest of a package that has only these dependencies.
fn dependent(upstream: &Upstream) -> String {
    let Upstream { version, packages, .. } = upstream;
    let dependencies = packages
        .iter()
        .map(|Package { name, .. }| format!("{name} = {{ version = \"={version}\", default-features = false }}\n"));
    format!("{MANIFEST}[dependencies]\n{}", dependencies.collect::<String>())
}

/// The lock file with the packages of crates.io, in whose place the workspace has our own.
fn lock(upstream: &Upstream) -> String {
    let Upstream { version, our_version, packages, .. } = upstream;
    packages.iter().fold(LOCK.to_owned(), |lock, Package { name, our_name, checksum, .. }| {
        let entry = |name, version| format!("name = \"{name}\"\nversion = \"{version}\"\n");
        let source = "source = \"registry+https://github.com/rust-lang/crates.io-index\"";
        let theirs = format!("{}{source}\nchecksum = \"{checksum}\"\n", entry(name, version));
        lock.replacen(&entry(our_name, our_version), &theirs, 1)
    })
}

/// Runs cargo, and returns its standard output.
fn answer(upstream: &'static Upstream, mut cargo: Command) -> Result<Vec<u8>> {
    let program = cargo.get_program().to_string_lossy().into_owned();
    let output = cargo.stdin(Stdio::null()).output().map_err(|source| Error::NoCargo { upstream, program, source })?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let text = String::from_utf8_lossy(&output.stderr);
    let messages = in_one_line(&text);
    let no_network = ["failed to download", "Could not resolve host", "Couldn't connect", "offline"];
    Err(if no_network.iter().any(|reason| text.contains(reason)) {
        Error::Unreachable { upstream, messages }
    } else {
        Error::Cargo { upstream, messages }
    })
}

/// Cargo's error and its causes in one line, without cargo's progress messages.
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
    fn the_lock_file_names_each_package_of_crates_io_once() {
        for upstream in [&CANDLE, &EVCXR] {
            for package in upstream.packages {
                assert_eq!(lock(upstream).matches(package.checksum).count(), 1, "{}", package.name);
            }
        }
    }

    #[test]
    fn a_cargo_that_is_missing_is_named() {
        let error = Original::fetch(&CANDLE, Command::new("no-such-cargo")).err().unwrap().to_string();
        assert!(error.starts_with("cannot run no-such-cargo, which fetches candle 0.11.1: "), "{error}");
    }
}
