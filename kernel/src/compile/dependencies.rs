//! The crates that a notebook adds with `:dep`. The real cargo builds them once; later sessions use the same build. Cells are
//! linked with one dynamic library of all these crates.
//!
//! Refuses a crate that brings its own candle: with two copies in one process gradients are wrong, without any error.

mod library;
mod target;

use super::manifest::{Manifest, is_of_prelude};
use super::stoppable::{Ended, Kernel, run};
use super::{joined, rpath};
use crate::environment::{self, EVCXR_VARIABLE, restore_path};
use crate::prelude;
use crate::toolchain::progress::{ENVIRONMENT, Progress};
use anyhow::{Context, Result, bail};
pub(crate) use library::CRATES;
use library::Library;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Instant, UNIX_EPOCH};

/// The package that has the user's dependencies.
const PACKAGE: &str = "cell-dependencies";

/// The file, in the folder of that package, with cargo's messages about the crates of the user.
const MESSAGES: &str = "messages.json";

/// The optimisation level of the notebook's crates. The level never changes: another level would be another build, with other
/// types than those of the notebook's variables.
const OPT_LEVEL: u8 = 2;

/// The line that the user reads while another cargo builds in the folder. It replaces cargo's own line, in which the name of the
/// locked folder differs from version to version.
const WAITS: &str = "Waiting for the build of another notebook's crates";

/// The first word of cargo's line about a lock that another cargo holds.
const BLOCKING: &str = "Blocking";

/// The folder, in the kernel's, that is the home of a cargo that needs nothing of the user's.
const HOME_WITHOUT_CRATES: &str = "cargo-home";

/// A crate with which cells are compiled.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Extern {
    pub(super) name: String,
    pub(super) file: PathBuf,
    /// The identity of this build of the crate.
    pub(super) build: String,
    /// Whether the crate is tokio with a runtime of several threads.
    pub(super) runs_futures: bool,
}

/// The crate that runs the futures of cells, and the feature of the crate that futures need.
const TOKIO: &str = "tokio";
const RUNTIME: &str = "rt-multi-thread";

/// The user's dependencies as options of rustc.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Dependencies {
    pub(super) externs: Vec<Extern>,
    /// The dynamic library with the crates' code and statics, if there is one.
    pub(super) library: Option<Library>,
    /// Whether a build script has compiled code of another language, which rustc does not export from a library.
    has_native_code: bool,
    /// The search paths for `-L`: the kind (`dependency`, `native`) and the folder of each.
    pub(super) search: Vec<(String, PathBuf)>,
}

impl Dependencies {
    /// Returns the dependencies of a cell, and builds them first if this session has not used them before.
    pub(super) fn ensure(manifest: &Manifest, session: &Path, offline: bool, kernel: &mut Kernel) -> Result<Self> {
        if manifest.dependencies.is_empty() {
            return Ok(Self::default());
        }
        let folder = folder(manifest, session);
        let list = folder.join("externs.json");
        if !may_change(manifest)
            && let Ok(text) = fs::read_to_string(&list)
        {
            return serde_json::from_str(&text)
                .with_context(|| format!("{} is damaged; restart the kernel", list.display()));
        }
        let dependencies = build(manifest, &folder, offline, kernel)?;
        // The list is renamed, so that a process that is killed here leaves no half-written list.
        let unfinished = list.with_extension("unfinished");
        fs::write(&unfinished, serde_json::to_vec(&dependencies)?)?;
        fs::rename(&unfinished, &list)?;
        Ok(dependencies)
    }

    /// Whether the notebook has no crates of its own.
    pub(super) fn are_none(&self) -> bool {
        self.externs.is_empty() && self.library.is_none()
    }

    /// Makes the crates known to a rustc that links with the C compiler.
    pub(super) fn use_in(&self, rustc: &mut Command) {
        for Extern { name, file, .. } in &self.externs {
            rustc.arg("--extern").arg(joined(&format!("{name}="), file));
        }
        for (kind, folder) in &self.search {
            rustc.arg("-L").arg(joined(&format!("{kind}="), folder));
        }
        if let Some(Library { name, file, .. }) = &self.library {
            rustc.arg("--extern").arg(joined(&format!("{name}="), file)).args(file.parent().map(rpath));
        }
    }
}

fn folder(manifest: &Manifest, session: &Path) -> PathBuf {
    session.join(format!("dependencies-{}", hash(manifest)))
}

/// Builds a notebook's crates, unless this session has built them. Returns what cargo says of each crate, a line of JSON for each
/// message.
pub(super) fn messages(manifest: &Manifest, session: &Path, offline: bool, kernel: &mut Kernel) -> Result<String> {
    if Dependencies::ensure(manifest, session, offline, kernel)?.are_none() {
        return Ok(String::new());
    }
    let file = folder(manifest, session).join(MESSAGES);
    fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))
}

/// Runs `cargo metadata` for a crate that evcxr tries out, or for rust-analyzer. Cargo downloads crates here.
pub(super) fn metadata(arguments: &[OsString], kernel: &mut Kernel) -> Result<ExitCode> {
    let (ended, errors) = download(environment::cargo()?.args(arguments), kernel)?;
    std::io::stderr().write_all(&errors)?;
    Ok(if ended.status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The variables, besides its own, of a cargo that lists the crates of a notebook for rust-analyzer. Without crates, nothing is
/// downloaded, and with a home of its own cargo need not wait for another cargo that downloads into the user's.
pub(crate) fn environment_of_metadata(manifest: &Path, runtime: &Path) -> Result<Vec<(String, String)>> {
    if !Manifest::read(manifest)?.dependencies.is_empty() {
        return Ok(Vec::new());
    }
    let home = runtime.join(HOME_WITHOUT_CRATES).into_os_string().into_string();
    Ok(home.into_iter().map(|home| ("CARGO_HOME".to_owned(), home)).collect())
}

/// Runs a cargo that may download crates or wait for another cargo, and shows the download or the wait. Returns how cargo ended
/// and what it wrote to standard error.
fn download(command: &mut Command, kernel: &mut Kernel) -> Result<(Ended, Vec<u8>)> {
    let mut progress = Progress::of(PACKAGE);
    let mut errors = Vec::new();
    let mut blocked = None;
    let ended = run(command.stderr(Stdio::piped()), kernel, |bytes, kernel| {
        errors.extend_from_slice(bytes);
        match progress.take(bytes) {
            Some(line) if line.starts_with("Download") => kernel.show(line)?,
            Some(line) if line.starts_with(BLOCKING) => {
                blocked.get_or_insert_with(Instant::now);
                kernel.show_wait(line);
            }
            Some(_) => kernel.end_wait(),
            None => {}
        }
        Ok(())
    })?;
    match (kernel.shown(), blocked) {
        (Some(line), Some(blocked)) if line.starts_with(BLOCKING) => {
            kernel.show(format!("Waited {:.1} s for another cargo", blocked.elapsed().as_secs_f64()))?;
        }
        (Some(_), _) => kernel.show(progress.summary())?,
        (None, _) => {}
    }
    Ok((ended, errors))
}

/// Whether the source of a crate on this machine may have changed since the last build.
fn may_change(manifest: &Manifest) -> bool {
    manifest.dependencies.iter().any(|dependency| dependency.contains("path =") || dependency.contains("path="))
}

fn hash(manifest: &Manifest) -> String {
    prelude::short_hash(Sha256::new().chain_update(manifest.dependencies.join("\n")))
}

fn build(manifest: &Manifest, folder: &Path, offline: bool, kernel: &mut Kernel) -> Result<Dependencies> {
    fs::create_dir_all(folder.join("src"))?;
    fs::write(folder.join("src/lib.rs"), "")?;
    let text = format!(
        "[package]\nname = \"{PACKAGE}\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n[workspace]\n\n[profile.dev]\nopt-level = {OPT_LEVEL}\ndebug = false\n\n[dependencies]\n{}\n",
        manifest.dependencies.join("\n")
    );
    fs::write(folder.join("Cargo.toml"), text)?;
    let packages = direct_dependencies(folder, offline, kernel)?;
    // The build of a local crate is part of the types of variables, so each cell of the session uses the build in the same folder.
    let is_local = may_change(manifest);
    let session = folder.parent().filter(|_| is_local);
    let target = target::folder(&hash(manifest), session)?;
    let messages = run_cargo(folder, &target, offline, kernel)?;
    let of_crates: String =
        messages.lines().filter(|line| !line.contains(PACKAGE)).map(|line| format!("{line}\n")).collect();
    fs::write(folder.join(MESSAGES), of_crates)?;
    let mut dependencies = collect(&messages, &packages);
    // A library of local crates is of no use to later sessions.
    dependencies.library = library::link(&dependencies, if is_local { folder } else { &target }, kernel)?;
    target::built(&target, &hash(manifest))?;
    Ok(dependencies)
}

fn cargo(folder: &Path, offline: bool) -> Result<Command> {
    let mut command = environment::cargo()?;
    if offline {
        command.arg("--offline");
    }
    command
        .current_dir(folder)
        .env_remove("CARGO_BUILD_BUILD_DIR")
        .env_remove(EVCXR_VARIABLE)
        .env("RUSTFLAGS", "-Cprefer-dynamic")
        .stdin(Stdio::null());
    // Build scripts call the real cargo.
    restore_path(&mut command);
    Ok(command)
}

/// Package ids of the direct dependencies, with the names under which cells use them.
fn direct_dependencies(folder: &Path, offline: bool, kernel: &mut Kernel) -> Result<Vec<(String, String)>> {
    let mut command = cargo(folder, offline)?;
    let (ended, errors) = download(command.args(["metadata", "--format-version=1"]).stdout(Stdio::piped()), kernel)?;
    if !ended.status.success() {
        bail!("{}", String::from_utf8_lossy(&errors).trim());
    }
    let metadata: Value = serde_json::from_slice(&ended.stdout)?;
    refuse_second_candle(&metadata)?;
    let nodes = metadata["resolve"]["nodes"].as_array().context("cargo metadata has no resolution")?;
    let root = &metadata["resolve"]["root"];
    let node = nodes.iter().find(|node| node["id"] == *root).context("cargo metadata has no root")?;
    let dependencies = node["deps"].as_array().into_iter().flatten();
    Ok(dependencies
        .filter_map(|dependency| {
            Some((dependency["pkg"].as_str()?.to_owned(), dependency["name"].as_str()?.to_owned()))
        })
        .collect())
}

/// Fails if a dependency brings its own candle. Compares package names, since a dependency may be renamed. The prelude's own crates
/// are not in the user's manifest.
fn refuse_second_candle(metadata: &Value) -> Result<()> {
    let names = |list: &Value| -> Vec<String> {
        let packages = list.as_array().into_iter().flatten();
        packages.filter_map(|package| package["name"].as_str().map(str::to_owned)).collect()
    };
    let Some(second) = names(&metadata["packages"]).into_iter().find(|name| is_of_prelude(name)) else { return Ok(()) };
    let users = metadata["packages"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|package| names(&package["dependencies"]).contains(&second));
    let users: Vec<&str> =
        users.filter_map(|package| package["name"].as_str()).filter(|name| *name != PACKAGE).collect();
    let user = if users.is_empty() { "the :dep line".to_owned() } else { users.join(", ") };
    bail!(
        "{user} brings a second copy of {second}, with which gradients would be wrong without any error; use the copy that every cell has, or a crate that does not depend on it"
    );
}

/// Builds the crates, and shows the progress if there is anything to build.
fn run_cargo(folder: &Path, target: &Path, offline: bool, kernel: &mut Kernel) -> Result<String> {
    let mut command = cargo(folder, offline)?;
    command.env("CARGO_TARGET_DIR", target);
    command.args(["build", "--message-format=json-render-diagnostics"]).envs(ENVIRONMENT);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut progress = Progress::of(PACKAGE);
    let result = run(&mut command, kernel, |bytes, kernel| {
        match progress.take(bytes) {
            Some(line) if line.starts_with(BLOCKING) => {
                kernel.show_wait(if line.ends_with("directory") { WAITS.to_owned() } else { line });
            }
            Some(line) => kernel.show(line)?,
            None => {}
        }
        Ok(())
    });
    let is_built = result.as_ref().is_ok_and(|ended| ended.status.success());
    if kernel.shown().is_some() {
        kernel.show(if is_built { progress.summary() } else { progress.unfinished() })?;
    }
    let ended = result?;
    if !is_built {
        kernel.print_error(&format!("{}\n", progress.messages()))?;
        bail!("the dependencies could not be built; cargo's messages are above");
    }
    Ok(String::from_utf8(ended.stdout)?)
}

fn collect(messages: &str, packages: &[(String, String)]) -> Dependencies {
    let mut dependencies = Dependencies::default();
    for message in messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
        match message["reason"].as_str() {
            Some("compiler-artifact") => add_artifact(&message, packages, &mut dependencies),
            Some("build-script-executed") => {
                dependencies.has_native_code |= links_native_code(&message);
                add_native(&message, &mut dependencies);
            }
            _ => {}
        }
    }
    // Cargo's order differs from call to call.
    dependencies.externs.sort_by(|one, other| one.name.cmp(&other.name));
    dependencies
}

fn add_artifact(message: &Value, packages: &[(String, String)], dependencies: &mut Dependencies) {
    let files: Vec<PathBuf> =
        message["filenames"].as_array().into_iter().flatten().filter_map(Value::as_str).map(PathBuf::from).collect();
    let with = |extension: &str| files.iter().find(|file| file.extension().is_some_and(|own| own == extension));
    let Some(library) = with("rlib").or_else(|| with("so")) else { return };
    // Cargo may have built a crate a second time, for build scripts.
    let is_macro = message["target"]["kind"].as_array().is_some_and(|kinds| kinds.contains(&"proc-macro".into()));
    let level = message["profile"]["opt_level"].as_str().and_then(|level| level.parse().ok());
    if !is_macro && level != Some(OPT_LEVEL) {
        return;
    }
    if let Some(folder) = library.parent() {
        let entry = ("dependency".to_owned(), folder.to_owned());
        if !dependencies.search.contains(&entry) {
            dependencies.search.push(entry);
        }
    }
    let id = message["package_id"].as_str().unwrap_or_default();
    for (_, name) in packages.iter().filter(|(package, _)| package == id) {
        let runs_futures =
            name == TOKIO && message["features"].as_array().is_some_and(|all| all.contains(&RUNTIME.into()));
        let (name, file) = (name.clone(), library.clone());
        dependencies.externs.push(Extern { build: identity(id, library), name, file, runs_futures });
    }
}

/// Identifies a build of a crate. The hash in the file name covers the version and features of the crate and of its dependencies.
/// The source of a local crate may change without a new version, so its file's time counts, too.
fn identity(package: &str, library: &Path) -> String {
    if !package.starts_with("path+") {
        return library.file_name().unwrap_or_default().to_string_lossy().into_owned();
    }
    file_identity(library)
}

/// Identifies the content of a file by the file's path and time of modification.
fn file_identity(file: &Path) -> String {
    let modified = fs::metadata(file).and_then(|metadata| metadata.modified());
    let built = modified.ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok()).unwrap_or_default();
    format!("{} {}", file.display(), built.as_nanos())
}

fn links_native_code(message: &Value) -> bool {
    let libraries = message["linked_libs"].as_array().into_iter().flatten().filter_map(Value::as_str);
    libraries.into_iter().any(|library| library.starts_with("static"))
}

fn add_native(message: &Value, dependencies: &mut Dependencies) {
    for path in message["linked_paths"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        let (kind, folder) = path.split_once('=').unwrap_or(("native", path));
        dependencies.search.push((kind.to_owned(), PathBuf::from(folder)));
    }
}
