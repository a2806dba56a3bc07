//! `cargo xtask package` packs every published crate, and builds all of them, with the program, only from the packed crates,
//! as `cargo install ferrotune` does.
//!
//! The build uses cargo's results for other crates in `target` again. It writes the program to another folder, because tests may be
//! running `target/release/ferrotune`.

mod programs;

use crate::environment::{cargo, outside_cargo};
use crate::step::{output, run as run_command, step};
use anyhow::{Context, Result, ensure};
use ferrotune_candle::CANDLE;
use serde_json::Value;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The name of the package with the program.
const PROGRAM: &str = "ferrotune";

pub(crate) fn run(root: &Path) -> Result<()> {
    let crates = published(root)?;
    step("pack the crates", || pack(root, &crates))?;
    let packed = step("unpack them", || Packed::unpack(root, crates))?;
    step("build them", || packed.build())?;
    step("compare the program with the repository", || packed.compare())?;
    step("build and run the documented programs with crates.io's candle", || programs::run(&packed))
}

/// A published crate.
struct Crate {
    name: String,
    version: String,
}

impl Crate {
    /// The name of the crate's folder in an archive, which is also the archive's name without the ending.
    fn folder(&self) -> String {
        format!("{}-{}", self.name, self.version)
    }
}

/// The members of the workspace that do not have `publish = false`.
fn published(root: &Path) -> Result<Vec<Crate>> {
    let metadata = output(cargo(root).args(["metadata", "--no-deps", "--format-version=1", "--locked"]))?;
    let metadata: Value = serde_json::from_str(&metadata).context("cargo's metadata is not JSON")?;
    of_metadata(&metadata).context("cargo's metadata names no packages")
}

fn of_metadata(metadata: &Value) -> Option<Vec<Crate>> {
    let packages = metadata["packages"].as_array()?.iter().filter(|package| package["publish"].is_null());
    let text = |value: &Value| value.as_str().map(str::to_owned);
    packages.map(|package| Some(Crate { name: text(&package["name"])?, version: text(&package["version"])? })).collect()
}

/// Writes the archives into `target/package`. Cargo's own check is off: it builds each archive separately, which takes hours.
fn pack(root: &Path, crates: &[Crate]) -> Result<()> {
    let mut package = cargo(root);
    // Git ignores the sources of evcxr, and cargo treats them as changes that are not committed.
    package.args(["package", "--quiet", "--locked", "--no-verify", "--allow-dirty"]);
    run_command(package.args(crates.iter().flat_map(|Crate { name, .. }| ["--package", name])))
}

/// A workspace with only the packed crates.
struct Packed {
    root: PathBuf,
    folder: PathBuf,
    crates: Vec<Crate>,
}

impl Packed {
    fn unpack(root: &Path, crates: Vec<Crate>) -> Result<Self> {
        let folder = root.join("target/package-check");
        let unpacked = folder.join("crates");
        if unpacked.exists() {
            fs::remove_dir_all(&unpacked).with_context(|| format!("cannot remove {}", unpacked.display()))?;
        }
        fs::create_dir_all(&unpacked).with_context(|| format!("cannot create {}", unpacked.display()))?;
        for package in &crates {
            let archive = root.join("target/package").join(format!("{}.crate", package.folder()));
            let mut tar = Command::new("tar");
            // All files in an archive have the same time, and cargo would mistake them for those of an earlier build.
            run_command(
                tar.args(["--extract", "--touch", "--gzip", "--file"]).arg(archive).arg("--directory").arg(&unpacked),
            )?;
        }
        let read = |name: &str| fs::read_to_string(root.join(name)).with_context(|| format!("cannot read {name}"));
        let manifest = workspace(&crates, &root.join(CANDLE.folder()), &read("Cargo.toml")?)?;
        for (name, text) in [("Cargo.toml", manifest), ("Cargo.lock", read("Cargo.lock")?)] {
            fs::write(folder.join(name), text).with_context(|| format!("cannot write {name}"))?;
        }
        Ok(Self { root: root.to_owned(), folder, crates })
    }

    /// Builds all packed crates, with the features that crates have in the repository.
    fn build(&self) -> Result<()> {
        let mut build = cargo(&self.folder);
        build
            .args(["build", "--release", "--workspace"])
            .env("CARGO_BUILD_BUILD_DIR", self.root.join("target"))
            .env("CARGO_TARGET_DIR", self.folder.join("target"));
        run_command(&mut build)
    }

    /// Checks that the program is complete: its version, the sources of the prelude in it, and its changes of candle.
    fn compare(&self) -> Result<()> {
        let package = self.crates.iter().find(|package| package.name == PROGRAM);
        let package = package.with_context(|| format!("no package has the name {PROGRAM}"))?;
        let program = self.folder.join("target/release").join(PROGRAM);
        let version = output(Command::new(&program).arg("--version"))?;
        let expected = format!("{PROGRAM} {}\n", package.version);
        ensure!(version == expected, "{} --version writes {version:?} and not {expected:?}", program.display());

        let sources = self.folder.join("crates").join(package.folder()).join("packed");
        run_command(Command::new("diff").arg("--recursive").arg(self.root.join("kernel/packed")).arg(sources))?;

        let candle = self.folder.join(CANDLE.name);
        run_command(outside_cargo(Command::new(&program).arg("candle").arg(&candle)))?;
        for package in CANDLE.packages {
            let [ours, made] =
                [&self.root.join(CANDLE.folder()), &candle].map(|folder| folder.join(package.name).join("src"));
            // The stamps differ: the manifests in the program name no build script.
            run_command(Command::new("diff").args(["--recursive", "--exclude=.made"]).args([ours, made]))?;
        }
        Ok(())
    }
}

/// The manifest of a workspace in which the packed crates replace those on crates.io. With the repository's profile,
/// cargo uses its earlier builds of other crates again. The packed crates, which have no earlier build, are not optimised.
fn workspace(crates: &[Crate], candle: &Path, repository: &str) -> Result<String> {
    let mut manifest = String::from("[workspace]\nresolver = \"3\"\nmembers = [\"crates/*\"]\n\n[patch.crates-io]\n");
    for package in crates {
        writeln!(manifest, "{} = {{ path = \"crates/{}\" }}", package.name, package.folder())?;
    }
    for package in CANDLE.packages {
        writeln!(manifest, "{} = {{ path = {:?} }}", package.name, candle.join(package.name))?;
    }
    let names = crates.iter().map(|package| package.name.as_str());
    Ok(manifest + &profile(repository, names)?)
}

/// The repository's profile, with the optimisation of these packages turned off, and without its own settings for them.
fn profile<'a>(repository: &str, names: impl Iterator<Item = &'a str>) -> Result<String> {
    let names: Vec<&str> = names.collect();
    let is_own = |line: &str| line.split_once('.').is_some_and(|(name, _)| names.contains(&name));
    let mut manifest = String::new();
    let mut is_profile = false;
    for line in repository.lines() {
        if line.starts_with('[') {
            is_profile = line.starts_with("[profile.");
        }
        if is_profile && !is_own(line) {
            writeln!(manifest, "{line}")?;
        }
    }
    for name in &names {
        writeln!(manifest, "\n[profile.release.package.{name}]\nopt-level = 0")?;
    }
    Ok(manifest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crates_that_are_never_published_are_left_out() {
        let metadata = serde_json::json!({ "packages": [
            { "name": "a", "version": "1.0.0", "publish": null },
            { "name": "b", "version": "2.0.0", "publish": [] },
        ] });
        let folders: Vec<String> = of_metadata(&metadata).unwrap().iter().map(Crate::folder).collect();
        assert_eq!(folders, ["a-1.0.0"]);
        assert!(of_metadata(&serde_json::json!({})).is_none());
    }

    #[test]
    fn the_workspace_has_the_packed_crates_and_the_profile() {
        let package = Crate { name: "a".to_owned(), version: "1.0.0".to_owned() };
        let repository = "[workspace]\nmembers = [\"a\"]\n[profile.release]\nlto = \"off\"\n[profile.release.package]\n\
                          a.codegen-units = 1\nb.opt-level = 0\n[other]\nx = 1\n";
        let expected = "[workspace]\nresolver = \"3\"\nmembers = [\"crates/*\"]\n\n[patch.crates-io]\n\
                        a = { path = \"crates/a-1.0.0\" }\ncandle-core = { path = \"/candle/candle-core\" }\n\
                        candle-nn = { path = \"/candle/candle-nn\" }\n\
                        [profile.release]\nlto = \"off\"\n[profile.release.package]\nb.opt-level = 0\n\n\
                        [profile.release.package.a]\nopt-level = 0\n";
        assert_eq!(workspace(&[package], Path::new("/candle"), repository).unwrap(), expected);
    }
}
