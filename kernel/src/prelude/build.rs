//! Builds the prelude: unpacks its sources, runs cargo, and keeps what cells need to be compiled against.

use super::cuda::Toolkit;
use super::{Accelerator, CRATES, Contents, SOURCES, analysis, beside};
use crate::toolchain::Toolchain;
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{ChildStderr, Command, Stdio};

/// Environment variable with a folder for cargo's intermediate files. They are kept there, so that whoever works on
/// the prelude does not wait for candle each time; without it they are deleted.
const TARGET_VARIABLE: &str = "FERROTUNE_PRELUDE_TARGET";

/// Builds the prelude into `folder`, which appears whole or not at all.
pub(super) fn build(
    toolchain: &Toolchain,
    accelerator: Accelerator,
    folder: &Path,
    progress: &mut dyn FnMut(&str),
) -> Result<()> {
    let building = beside(folder, "building");
    if building.exists() {
        fs::remove_dir_all(&building)?; // what a build that was killed has left; we hold the lock
    }
    // What is missing is said now rather than after minutes of building.
    toolchain.standard_library_sources()?;
    let cuda = match accelerator {
        Accelerator::None => None,
        Accelerator::Cuda => Some(Toolkit::find()?),
    };
    let source = building.join("source");
    unpack(&source)?;
    let kept = std::env::var_os(TARGET_VARIABLE).map(PathBuf::from);
    let target = kept.clone().unwrap_or_else(|| building.join("target"));
    let artifacts = run_cargo(cargo(toolchain, cuda.as_ref(), &source, &target)?, progress)?;
    let library = building.join("library");
    fs::create_dir_all(&library)?;
    let externs = keep_libraries(&artifacts, &target, &library)?;
    analysis::write(toolchain, &source, &building.join("analysis"))?;
    if kept.is_none() {
        fs::remove_dir_all(&target)?;
    }
    let ready = serde_json::to_vec_pretty(&Contents { externs })?;
    fs::write(building.join("ready.json"), ready)?;
    rustix::fs::sync();
    if folder.exists() {
        fs::remove_dir_all(folder)?; // without ready.json: never whole
    }
    fs::rename(&building, folder).with_context(|| format!("cannot move the prelude to {}", folder.display()))
}

fn unpack(source: &Path) -> Result<()> {
    for (path, text) in SOURCES {
        let file = source.join(path);
        if let Some(parent) = file.parent() {
            fs::create_dir_all(parent).with_context(|| format!("cannot create {}", parent.display()))?;
        }
        let text = if *path == "Cargo.toml" { workspace_of_prelude(text)? } else { (*text).to_owned() };
        fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(())
}

/// The root manifest with no other members than the packed ones.
fn workspace_of_prelude(manifest: &str) -> Result<String> {
    let mut manifest: toml_edit::DocumentMut = manifest.parse()?;
    let members: toml_edit::Array = SOURCES
        .iter()
        .filter_map(|(path, _)| path.strip_suffix("/Cargo.toml"))
        .filter(|member| !member.contains('/'))
        .collect();
    manifest["workspace"]["members"] = toml_edit::value(members);
    Ok(manifest.to_string())
}

/// The call of cargo that builds the prelude.
fn cargo(toolchain: &Toolchain, cuda: Option<&Toolkit>, source: &Path, target: &Path) -> Result<Command> {
    let mut command = Command::new(&toolchain.cargo);
    command
        .args(["build", "--release", "--package", "ferrotune-prelude", "--message-format=json-render-diagnostics"])
        .args(["--target", &toolchain.host, "--target-dir"])
        .arg(target)
        .current_dir(source)
        .env("CARGO_ENCODED_RUSTFLAGS", flags(toolchain)?)
        .env("RUSTC", &toolchain.rustc);
    if let Some(toolkit) = cuda {
        command.args(["--features", "cuda"]);
        toolkit.lend(&mut command)?;
    }
    Ok(command)
}

/// Runs cargo and gives the library files that it made, by crate name.
fn run_cargo(mut cargo: Command, progress: &mut dyn FnMut(&str)) -> Result<BTreeMap<String, Vec<PathBuf>>> {
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
    Ok(libraries(&messages))
}

/// One standard library in the process, shared with the cells, and found where the toolchain has it.
fn flags(toolchain: &Toolchain) -> Result<String> {
    let folder = toolchain.library_folder.to_str().context("the toolchain's folder is not UTF-8")?;
    Ok(format!("-Cprefer-dynamic\x1f-Clink-arg=-Wl,-rpath,{folder}"))
}

/// Passes on which crate is compiled, and keeps all lines.
fn follow(stderr: ChildStderr, progress: &mut dyn FnMut(&str)) -> Result<String> {
    let mut lines = String::new();
    for line in BufReader::new(stderr).lines() {
        let line = line?;
        let text = line.trim();
        if text.starts_with("Compiling") || text.starts_with("Downloading") || text.starts_with("Downloaded") {
            progress(text);
        }
        lines.push_str(&line);
        lines.push('\n');
    }
    Ok(lines)
}

fn explain(errors: &str) -> String {
    let cure = if errors.contains("linker `cc` not found") {
        "there is no linker; install gcc (Debian and Ubuntu: apt-get install build-essential)"
    } else if errors.contains("failed to download") || errors.contains("Could not resolve host") {
        "crates.io cannot be reached, and candle is not in cargo's cache; connect once, then try again"
    } else {
        "cargo's own words are below"
    };
    format!("the prelude could not be built: {cure}\n{}", errors.trim())
}

fn libraries(messages: &str) -> BTreeMap<String, Vec<PathBuf>> {
    let mut libraries: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
    for message in messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
        if message["reason"] != "compiler-artifact" {
            continue;
        }
        let files = message["filenames"].as_array().into_iter().flatten().filter_map(Value::as_str).map(PathBuf::from);
        libraries.entry(message["target"]["name"].as_str().unwrap_or_default().to_owned()).or_default().extend(files);
    }
    libraries
}

/// Copies the dylib and the metadata of the crates in it; their code is in the dylib.
fn keep_libraries(
    artifacts: &BTreeMap<String, Vec<PathBuf>>,
    target: &Path,
    library: &Path,
) -> Result<BTreeMap<String, String>> {
    let mut externs = BTreeMap::new();
    for (name, files) in artifacts {
        for file in files.iter().filter(|file| file.starts_with(target)) {
            let extension = file.extension().and_then(|extension| extension.to_str());
            let wanted = match extension {
                // The prelude, and macros that crates in it pass on.
                Some("so") => true,
                Some("rmeta") => name != "ferrotune",
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
