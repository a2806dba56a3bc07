//! Builds the prelude: unpacks its sources, runs cargo, and keeps the files that cells are compiled against.

use super::{CRATES, Contents, SOURCES, analysis, with_ending};
use crate::folders;
use crate::toolchain::progress::{self, Progress};
use crate::toolchain::{LINKER_CURE, Toolchain};
use anyhow::{Context, Result, bail};
use ferrotune_candle::{CANDLE, Changes};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{ChildStderr, Command, Stdio};

/// Environment variable with a folder in which the sources and cargo's intermediate files stay, so that developers compile candle
/// and other unchanged crates only once. Without the variable these files are deleted.
const TARGET_VARIABLE: &str = "FERROTUNE_PRELUDE_TARGET";

/// The package that becomes the prelude; all other packages are its dependencies.
const PACKAGE: &str = "ferrotune-prelude";

/// Builds the prelude into `folder`, which appears whole or not at all.
pub(super) fn build(toolchain: &Toolchain, folder: &Path, progress: &mut dyn FnMut(&str)) -> Result<()> {
    let building = with_ending(folder, "building");
    folders::begin(&building)?;
    // The target folder is not in `building`, so that the next build after a failure does not compile everything again.
    let kept = std::env::var_os(TARGET_VARIABLE).map(PathBuf::from);
    let target = kept.clone().unwrap_or_else(|| with_ending(folder, "target"));
    // Cargo takes sources in another folder for other packages. In an unchanged folder, the next prelude uses the compiled crates again.
    let (source, candle) = match &kept {
        Some(kept) => (kept.join("source"), kept.clone()),
        None => (building.join("source"), folders::cache()?),
    };
    // Missing tools fail the build here rather than after minutes of compiling.
    toolchain.standard_library_sources()?;
    unpack(&source, &make_candle(toolchain, &candle, progress)?)?;
    let artifacts = run_cargo(cargo(toolchain, &source, &target), progress)?;
    let library = building.join("library");
    fs::create_dir_all(&library)?;
    let externs = keep_libraries(&artifacts, &target, &toolchain.host, &library)?;
    let manifests = artifacts.iter().filter(|artifact| analysis::is_wanted(&artifact.library));
    let manifests = manifests.map(|artifact| artifact.manifest.clone()).collect();
    analysis::write(toolchain, &manifests, &building.join("analysis"))?;
    let ready = serde_json::to_vec_pretty(&Contents {
        key: super::key(toolchain),
        standard_library: toolchain.standard_library.clone(),
        externs,
    })?;
    fs::write(building.join("ready.json"), ready)?;
    rustix::fs::sync();
    folders::remove_rest(folder)?;
    fs::rename(&building, folder).with_context(|| format!("cannot move the prelude to {}", folder.display()))?;
    if kept.is_none() {
        fs::remove_dir_all(&target).with_context(|| format!("cannot remove {}", target.display()))?;
    }
    Ok(())
}

/// Makes Ferrotune's packages of candle in a folder below `within`, and returns that folder.
fn make_candle(toolchain: &Toolchain, within: &Path, progress: &mut dyn FnMut(&str)) -> Result<PathBuf> {
    let changes = Changes::packed();
    let mut hasher = Sha256::new();
    super::update_with_changes(&mut hasher, &changes);
    let name = format!("{}-{}-{}", CANDLE.name, CANDLE.version, super::short_hash(hasher));
    let folder = within.join(name);
    fs::create_dir_all(within).with_context(|| format!("cannot create {}", within.display()))?;
    let mut cargo = toolchain.cargo();
    cargo.current_dir(within); // the notebook's folder may have a configuration of cargo
    ferrotune_candle::make(cargo, &folder, &changes, progress)?;
    Ok(folder)
}

/// Writes the sources. A file that has the same text already keeps its time, so that cargo does not compile its crate again.
fn unpack(source: &Path, candle: &Path) -> Result<()> {
    for (path, text) in SOURCES {
        let file = source.join(path);
        if let Some(parent) = file.parent() {
            fs::create_dir_all(parent).with_context(|| format!("cannot create {}", parent.display()))?;
        }
        let text = match *path {
            "Cargo.toml" => workspace_of_prelude(text, candle)?,
            path if path.ends_with("/Cargo.toml") => without_tests(text)?,
            _ => (*text).to_owned(),
        };
        if fs::read(&file).ok().as_deref() != Some(text.as_bytes()) {
            fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
        }
    }
    Ok(())
}

/// The root manifest, with the packed crates as its only members, and with the folder of candle.
fn workspace_of_prelude(manifest: &str, candle: &Path) -> Result<String> {
    let mut manifest: toml_edit::DocumentMut = manifest.parse()?;
    let members: toml_edit::Array = SOURCES
        .iter()
        .filter_map(|(path, _)| path.strip_suffix("/Cargo.toml"))
        .filter(|member| !member.contains('/'))
        .collect();
    manifest["workspace"]["members"] = toml_edit::value(members);
    for package in CANDLE.packages {
        let folder = candle.join(package.name);
        let folder = folder.to_str().context("the cache folder is not UTF-8")?;
        manifest["patch"]["crates-io"][package.name]["path"] = toml_edit::value(folder);
    }
    // `false` means thin-local LTO, which makes candle faster. The program itself is built without LTO, since only its size and
    // its build time matter.
    manifest["profile"]["release"]["lto"] = toml_edit::value(false);
    Ok(manifest.to_string())
}

/// The manifest of a crate without the dependencies of its tests, some of which are not packed.
fn without_tests(manifest: &str) -> Result<String> {
    let mut manifest: toml_edit::DocumentMut = manifest.parse()?;
    manifest.remove("dev-dependencies");
    Ok(manifest.to_string())
}

/// The call of cargo that builds the prelude.
fn cargo(toolchain: &Toolchain, source: &Path, target: &Path) -> Command {
    let mut command = toolchain.cargo();
    command
        .args(["build", "--release", "--package", PACKAGE, "--message-format=json-render-diagnostics"])
        .args(["--target", &toolchain.host, "--target-dir"])
        .arg(target)
        .current_dir(source)
        // Links the toolchain's shared standard library, so that the prelude and the cells have the same one. The prelude has no path
        // to it: a process that loads the prelude has loaded the standard library before.
        .env("CARGO_ENCODED_RUSTFLAGS", "-Cprefer-dynamic")
        .envs(progress::ENVIRONMENT);
    command
}

/// A target that cargo has compiled.
struct Artifact {
    /// Name of the library, or of the build script.
    library: String,
    /// The package's `Cargo.toml`.
    manifest: PathBuf,
    files: Vec<PathBuf>,
}

/// Runs cargo and returns what it has compiled.
fn run_cargo(mut cargo: Command, progress: &mut dyn FnMut(&str)) -> Result<Vec<Artifact>> {
    let mut child = cargo
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot run {}", cargo.get_program().display()))?;
    let mut stdout = child.stdout.take().context("stdout is piped")?;
    let stderr = child.stderr.take().context("stderr is piped")?;
    let messages = std::thread::spawn(move || {
        let mut messages = String::new();
        stdout.read_to_string(&mut messages).map(|_| messages)
    });
    let errors = follow(stderr, progress)?;
    let messages = messages.join().map_err(|_| anyhow::anyhow!("the reader of cargo's messages panicked"))??;
    if !child.wait()?.success() {
        bail!("{}", explain(&errors));
    }
    Ok(artifacts(&messages))
}

/// Passes cargo's progress on, and returns its other messages.
fn follow(mut stderr: ChildStderr, progress: &mut dyn FnMut(&str)) -> Result<String> {
    let mut known = Progress::of(PACKAGE);
    let mut bytes = [0; 4096];
    loop {
        let count = stderr.read(&mut bytes)?;
        if count == 0 {
            return Ok(known.messages().to_owned());
        }
        if let Some(line) = known.take(&bytes[..count]) {
            progress(&line);
        }
    }
}

fn explain(errors: &str) -> String {
    let cure = if errors.contains("linker `cc` not found") {
        &format!("there is no linker; {LINKER_CURE}")
    } else if errors.contains("failed to download") || errors.contains("Could not resolve host") {
        "crates.io cannot be reached, and candle is not in cargo's cache; connect once, then try again"
    } else {
        "cargo's messages are below"
    };
    // Cargo warns about profile settings of crates that only the program has.
    let messages = errors.lines().filter(|line| !line.starts_with("warning: profile package spec"));
    format!("the prelude could not be built: {cure}\n{}", messages.collect::<Vec<_>>().join("\n").trim())
}

fn artifacts(messages: &str) -> Vec<Artifact> {
    let messages = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    messages
        .filter(|message| message["reason"] == "compiler-artifact")
        .filter_map(|message| artifact(&message))
        .collect()
}

fn artifact(message: &Value) -> Option<Artifact> {
    let files = message["filenames"].as_array().into_iter().flatten().filter_map(Value::as_str).map(PathBuf::from);
    Some(Artifact {
        library: message["target"]["name"].as_str()?.to_owned(),
        manifest: PathBuf::from(message["manifest_path"].as_str()?),
        files: files.collect(),
    })
}

/// Copies the dylib, and the metadata of the crates whose code is in the dylib. Cargo writes these into the folder of the host
/// triple, and crates that only build scripts and procedural macros use into another folder.
fn keep_libraries(
    artifacts: &[Artifact],
    target: &Path,
    host: &str,
    library: &Path,
) -> Result<BTreeMap<String, String>> {
    let mut externs = BTreeMap::new();
    for Artifact { library: name, files, .. } in artifacts {
        for file in files.iter().filter(|file| file.starts_with(target)) {
            let extension = file.extension().and_then(|extension| extension.to_str());
            let wanted = match extension {
                // These are the prelude, and procedural macros that its crates re-export.
                Some("so") => true,
                Some("rmeta") => name != "ferrotune" && file.starts_with(target.join(host)),
                _ => false,
            };
            let Some(file_name) = file.file_name().filter(|_| wanted).and_then(|name| name.to_str()) else { continue };
            fs::copy(file, library.join(file_name)).with_context(|| format!("cannot copy {}", file.display()))?;
            if CRATES.contains(&name.as_str()) {
                externs.insert(name.clone(), file_name.to_owned());
            }
        }
    }
    if let Some(missing) = CRATES.iter().find(|name| !externs.contains_key(**name)) {
        bail!("cargo built the prelude but not {missing}");
    }
    Ok(externs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn packed_crates_depend_on_no_crate_of_ours_that_is_not_packed() {
        let manifests = SOURCES.iter().filter(|(path, _)| path.ends_with("/Cargo.toml"));
        let manifests: Vec<toml_edit::DocumentMut> =
            manifests.map(|(_, text)| without_tests(text).unwrap().parse().unwrap()).collect();
        let name = |manifest: &toml_edit::DocumentMut| manifest["package"]["name"].as_str().unwrap().to_owned();
        let packed: BTreeSet<String> = manifests.iter().map(name).collect();
        for manifest in &manifests {
            assert!(manifest.get("dev-dependencies").is_none(), "{}", name(manifest));
            let Some(dependencies) = manifest.get("dependencies").and_then(toml_edit::Item::as_table_like) else {
                continue;
            };
            for (dependency, _) in dependencies.iter().filter(|(dependency, _)| dependency.starts_with("ferrotune")) {
                assert!(packed.contains(dependency), "{} needs {dependency}, which is not packed", name(manifest));
            }
        }
    }
}
