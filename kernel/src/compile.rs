//! Compiles cells: acts as `cargo` and `rustup` when evcxr calls them, and runs rustc once for each cell.
//!
//! evcxr finds `cargo` on its search path. In the kernel's process that path begins with a folder in which `cargo`
//! and `rustup` are links to this program: a `cargo build` of a cell becomes one call of rustc against the prelude, and
//! every other call goes to the real cargo. So a cell without crates of its own never waits for cargo.

mod definitions;
mod dependencies;
mod last_expression;
mod linker;
mod manifest;
mod messages;
mod shadows;
mod source;
mod starting;
mod statics;
mod stoppable;
mod unnamed;

pub(crate) use starting::mark as mark_starting;

use crate::environment::{
    self, EVCXR_VARIABLE, PRELUDE_VARIABLE, RESULT_VARIABLE, RUSTC_VARIABLE, STANDARD_LIBRARY_VARIABLE, kernel_socket,
    restore_path, runtime,
};
use crate::prelude::Prelude;
use anyhow::{Context, Result, bail};
pub(crate) use definitions::Text;
use dependencies::Dependencies;
pub(crate) use dependencies::{CRATES, environment_of_metadata};
use linker::Linker;
use manifest::Manifest;
use messages::Messages;
use sha2::{Digest, Sha256};
use starting::{Kept, Made};
use statics::Statics;
use std::ffi::{OsStr, OsString};
use std::io::Write as _;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use stoppable::{Kernel, with_kernel};

/// The lints that cells allow, because the code is usual in a notebook: later cells use what a cell defines, and names come from
/// formulas. evcxr's own source allows unused imports, items and `mut`.
const USUAL_LINTS: [&str; 6] = [
    "nonstandard_style",
    "unexpected_cfgs",
    "unused_assignments",
    "unused_labels",
    "unused_macros",
    "unused_variables",
];

/// The folder, in that of the running kernel, with the sources that were compiled.
const SOURCES: &str = "ferrotune-cells";

/// Acts as `cargo` or `rustup` if this program was called by that name.
pub(crate) fn stand_in(name: &OsStr, arguments: &[OsString]) -> Option<ExitCode> {
    let result = match name.to_str()? {
        "cargo" => cargo(arguments),
        "rustup" => rustup(arguments),
        _ => return None,
    };
    Some(result.unwrap_or_else(|error| {
        eprintln!("{}", diagnostic(&format!("{error:#}")));
        ExitCode::FAILURE
    }))
}

/// Answers `rustup which cargo` with the stand-in and `rustup which rustc` with the real compiler. For any other command it runs the
/// real rustup.
fn rustup(arguments: &[OsString]) -> Result<ExitCode> {
    let words: Vec<_> = arguments.iter().filter_map(|argument| argument.to_str()).collect();
    let path = match words.as_slice() {
        ["which", "cargo"] => {
            std::env::args_os().next().map(PathBuf::from).and_then(|path| which("cargo").or(Some(path)))
        }
        ["which", "rustc"] => environment::path(RUSTC_VARIABLE).ok(),
        _ => None,
    };
    match path {
        Some(path) => {
            #[expect(clippy::print_stdout, reason = "rustup answers on standard output")]
            {
                println!("{}", path.display());
            }
            Ok(ExitCode::SUCCESS)
        }
        None => {
            let mut rustup = Command::new("rustup");
            restore_path(&mut rustup);
            bail!("{}", rustup.args(arguments).exec())
        }
    }
}

fn which(program: &str) -> Option<PathBuf> {
    std::env::split_paths(&std::env::var_os("PATH")?).map(|folder| folder.join(program)).find(|path| path.is_file())
}

/// Runs rustc for `cargo build|check` of a cell, and the real cargo for anything else. evcxr's check of a crate that is
/// in the prelude succeeds without cargo.
fn cargo(arguments: &[OsString]) -> Result<ExitCode> {
    let verb = arguments
        .iter()
        .find_map(|argument| argument.to_str().filter(|word| !word.starts_with('-')))
        .unwrap_or_default();
    let offline = arguments.iter().any(|argument| argument == "--offline");
    if std::env::var_os(EVCXR_VARIABLE).is_some() {
        match verb {
            "build" => return with_kernel(|kernel| compile(offline, Emit::Library, kernel)),
            "check" => return with_kernel(|kernel| compile(offline, Emit::Nothing, kernel)),
            "metadata" if manifest::asks_for_prelude_crate(Path::new("Cargo.toml"))? => return Ok(ExitCode::SUCCESS),
            _ => {}
        }
    }
    if kernel_socket().is_some() {
        match verb {
            "metadata" => return with_kernel(|kernel| dependencies::metadata(arguments, kernel)),
            "check" => return with_kernel(|kernel| build_crates(offline, kernel)),
            _ => {}
        }
    }
    bail!("{}", environment::cargo()?.args(arguments).exec())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Emit {
    Library,
    Nothing,
}

/// Builds the notebook's crates for rust-analyzer, which reads from cargo's messages where procedural macros are, and what build
/// scripts have made. It shows the errors of this command as they are, and does not read them as those of a compiler.
fn build_crates(offline: bool, kernel: &mut Kernel) -> Result<ExitCode> {
    let folder = std::env::current_dir()?;
    let manifest = Manifest::read(&folder.join("Cargo.toml"))?;
    match dependencies::messages(&manifest, &folder, offline, kernel) {
        Ok(messages) => std::io::stdout().write_all(messages.as_bytes())?,
        Err(error) if error.is::<stoppable::Stopped>() => return Err(error),
        Err(error) => {
            eprintln!("{error:#}");
            return Ok(ExitCode::FAILURE);
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn compile(offline: bool, emit: Emit, kernel: &mut Kernel) -> Result<ExitCode> {
    let folder = std::env::current_dir()?;
    let manifest = Manifest::read(&folder.join("Cargo.toml"))?;
    let dependencies = Dependencies::ensure(&manifest, &folder, offline, kernel)?;
    let source = source::prepare(&folder.join("src/lib.rs"), &dependencies)?;
    let name = format!("{SOURCES}/{}", crate::prelude::short_hash(Sha256::new().chain_update(&source)));
    let output_folder = folder.join("target");
    std::fs::create_dir_all(&output_folder)?;
    let library = output_folder.join("libctx.so");
    let prelude = prelude_of_cells()?;
    let mut rustc = rustc(&manifest, &dependencies, &prelude, emit)?;
    let run_folders = [prelude.library_folder(), environment::path(STANDARD_LIBRARY_VARIABLE)?];
    Linker::of(&source, &dependencies)?.use_in(&mut rustc, &run_folders);
    let statics = Statics::of(&source)?;
    statics.use_in(&mut rustc);
    rustc.arg(format!("--remap-path-prefix=src={name}"));
    let kept = Kept::of(&rustc, &prelude, emit)?;
    if let Some(made) = kept.as_ref().map(|kept| kept.take(&library)).transpose()?.flatten() {
        return hand_over(made, &name, &source, &library, &statics);
    }
    rustc.arg("--out-dir").arg(&output_folder);
    let mut messages = Vec::new();
    let ended = stoppable::run(rustc.stderr(Stdio::piped()), kernel, |bytes, _| {
        messages.extend_from_slice(bytes);
        Ok(())
    })?;
    let messages = Messages::read(&messages);
    let made = match ended.status.success() {
        true => Made::Library,
        false => Made::Errors(messages.errors),
    };
    if let Made::Library = made {
        kernel.warn(messages.warnings)?;
        if emit == Emit::Nothing {
            return Ok(ExitCode::SUCCESS);
        }
    }
    if let Some(kept) = kept {
        // If the result cannot be kept, the next start only has to call rustc again.
        let _ = kept.keep(&made, &library);
    }
    hand_over(made, &name, &source, &library, &statics)
}

/// The prelude with which the cells of the running kernel are linked.
fn prelude_of_cells() -> Result<Prelude> {
    Prelude::open(&environment::path(PRELUDE_VARIABLE)?)?.context("the prelude is gone; restart the kernel")
}

/// Gives evcxr the compiled cell, or its errors.
fn hand_over(made: Made, name: &str, source: &str, library: &Path, statics: &Statics) -> Result<ExitCode> {
    if let Made::Errors(errors) = made {
        std::io::stderr().write_all(&errors)?;
        return Ok(ExitCode::FAILURE);
    }
    keep_source(name, source)?;
    statics.keep(library)?;
    if let Some(file) = std::env::var_os(RESULT_VARIABLE) {
        std::fs::write(file, library.as_os_str().as_encoded_bytes())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Keeps a generated source under the name that locations of panics have. A thread may panic in this source when later cells run.
fn keep_source(name: &str, source: &str) -> Result<()> {
    let folder = runtime()?.join(name);
    std::fs::create_dir_all(&folder)?;
    Ok(std::fs::write(folder.join("lib.rs"), source)?)
}

/// The generated source and the line of a location `file:line:column`; none for other files.
pub(crate) fn generated_source(location: &str) -> Option<(String, usize)> {
    let (folder, place) = location.rsplit_once("/lib.rs:")?;
    let (_, hash) = folder.rsplit_once(&format!("{SOURCES}/"))?;
    let line = place.split(':').next()?.parse().ok()?;
    let source = std::fs::read_to_string(runtime().ok()?.join(SOURCES).join(hash).join("lib.rs")).ok()?;
    Some((source, line))
}

/// The call of rustc that compiles a cell: with line tables for backtraces but no other debug information, without debug
/// assertions, and with everything linked dynamically.
fn rustc(manifest: &Manifest, dependencies: &Dependencies, prelude: &Prelude, emit: Emit) -> Result<Command> {
    let mut command = environment::rustc()?;
    command
        .args(["--crate-name=ctx", "--edition=2024", "src/lib.rs", "--crate-type=cdylib"])
        .args(["--error-format=json", "--json=diagnostic-rendered-ansi"])
        .arg(match emit {
            Emit::Library => "--emit=link",
            Emit::Nothing => "--emit=metadata",
        })
        .arg(format!("-Copt-level={}", manifest.opt_level))
        .args(["-Coverflow-checks=on", "-Cdebuginfo=line-tables-only", "-Cprefer-dynamic"])
        // Two threads make the machine code. `-Clto=off` leaves out a second round of optimisation over both parts.
        .args(["-Ccodegen-units=2", "-Clto=off"])
        .args(USUAL_LINTS.map(|lint| format!("-A{lint}")));
    for (name, file) in prelude.externs() {
        command.arg("--extern").arg(joined(&format!("{name}="), &file));
    }
    if std::env::var_os(evcxr::WHOLE_TYPES).is_some() {
        // Only the messages of this call matter. A compiler without these options refuses them, and rust-analyzer is asked.
        command.env("RUSTC_BOOTSTRAP", "1").args(["-Ztrim-diagnostic-paths=no", "-Zwrite-long-types-to-disk=no"]);
    }
    command.arg("-L").arg(joined("dependency=", &prelude.library_folder()));
    dependencies.use_in(&mut command);
    Ok(command)
}

/// An argument that ends with a path.
fn joined(beginning: &str, path: &Path) -> OsString {
    let mut argument = OsString::from(beginning);
    argument.push(path);
    argument
}

/// The option with which the C compiler records a folder where a cell finds a library when the cell is loaded.
fn rpath(folder: &Path) -> OsString {
    joined("-Clink-arg=-Wl,-rpath,", folder)
}

/// An error in the JSON form of rustc's diagnostics, which evcxr reads.
fn diagnostic(message: &str) -> String {
    serde_json::json!({
        "$message_type": "diagnostic", "message": message, "code": null, "level": "error",
        "spans": [], "children": [], "rendered": format!("error: {message}\n"),
    })
    .to_string()
}
