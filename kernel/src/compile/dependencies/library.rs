//! One dynamic library of all crates of a notebook. Without this library each cell would have its own copy of the crates' statics,
//! and the linker would put all their code into each cell.

use super::super::stoppable::{self, Kernel};
use super::super::{joined, prelude_of_cells};
use super::{Dependencies, Extern, OPT_LEVEL, TOKIO, file_identity};
use crate::environment::{self, restore_path};
use crate::prelude::{self, Prelude};
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// The prefix of the names of these libraries.
pub(crate) const CRATES: &str = "cell_dependencies_";

/// The prelude's crate. The library is linked with it, since a process can have `proc_macro` only once: the prelude has it, and crates
/// such as quote need it when they run.
const PRELUDE: &str = "ferrotune";

/// The source of the function that cells with `.await` call. It is compiled once, because tokio's runtime takes rustc longer than
/// most cells. A runtime does not work in a snapshot of its process, which has no threads; there a new runtime replaces it. The old
/// runtime is not dropped, since the drop would wait for the missing threads.
const AWAIT: &str = "
use std::{future::Future, mem, pin::Pin, process, sync::{Mutex, PoisonError}};
use tokio::runtime::Runtime;

static RUNTIME: Mutex<Option<(u32, Runtime)>> = Mutex::new(None);

pub fn block_on(future: Pin<&mut dyn Future<Output = ()>>) {
    let mut runtime = RUNTIME.lock().unwrap_or_else(PoisonError::into_inner);
    if runtime.as_ref().is_none_or(|(process, _)| *process != process::id()) {
        let new = Runtime::new().expect(\"the system has threads for tokio\");
        mem::forget(runtime.replace((process::id(), new)));
    }
    if let Some((_, runtime)) = &*runtime {
        runtime.block_on(future);
    }
}
";

/// A dynamic library of crates with which cells are linked.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::compile) struct Library {
    pub(in crate::compile) name: String,
    pub(super) file: PathBuf,
    /// Whether the library has the function of [`AWAIT`].
    pub(in crate::compile) awaits: bool,
}

/// Builds the library in this folder, if it is missing. None if the crates have no code for the cell process or have code of
/// another language; also none, with a warning, if the crates cannot be linked with each other.
///
/// # Errors
/// The library cannot be written, or the user has stopped the cell.
pub(super) fn link(dependencies: &Dependencies, folder: &Path, kernel: &mut Kernel) -> Result<Option<Library>> {
    if dependencies.has_native_code {
        return Ok(None);
    }
    let is_linked = |dependency: &&Extern| dependency.file.extension().is_some_and(|extension| extension == "rlib");
    let linked: Vec<&Extern> = dependencies.externs.iter().filter(is_linked).collect();
    if linked.is_empty() {
        return Ok(None);
    }
    let awaits = linked.iter().any(|linked| linked.name == TOKIO && linked.runs_futures);
    let prelude = prelude_of_cells()?;
    let crates = linked.iter().map(|linked| linked.name.as_str()).chain([PRELUDE]);
    let crates: String = crates.map(|name| format!("extern crate {name} as _;\n")).collect();
    let source = if awaits { format!("{AWAIT}{crates}") } else { crates };
    // A build script may have changed a crate without changing the name of the crate's file.
    let mut builds = Sha256::new().chain_update(&source);
    let files = linked.iter().map(|linked| linked.file.as_path());
    for file in files.chain([prelude.library().as_path()]) {
        builds.update(file_identity(file));
    }
    // The cell process keeps the library of earlier cells loaded, and would take another file of the same name for that library.
    let name = format!("{CRATES}{}", prelude::short_hash(builds));
    let file = folder.join(format!("lib{name}.so"));
    let is_there = file.is_file() || build(&name, &source, (dependencies, &prelude), &file, kernel)?;
    Ok(is_there.then_some(Library { name, file, awaits }))
}

fn build(
    name: &str,
    source: &str,
    (dependencies, prelude): (&Dependencies, &Prelude),
    file: &Path,
    kernel: &mut Kernel,
) -> Result<bool> {
    let folder = tempfile::tempdir_in(file.parent().context("a library is in a folder")?)?;
    let root = folder.path().join("lib.rs");
    fs::write(&root, source)?;
    let mut rustc = environment::rustc()?;
    restore_path(&mut rustc);
    rustc.arg(&root).arg(format!("--crate-name={name}")).arg("--out-dir").arg(folder.path());
    rustc.args(["--edition=2024", "--crate-type=dylib", "-Cprefer-dynamic"]).arg(format!("-Copt-level={OPT_LEVEL}"));
    rustc.arg("--extern").arg(joined(&format!("{PRELUDE}="), &prelude.library()));
    rustc.arg("-L").arg(joined("dependency=", &prelude.library_folder()));
    dependencies.use_in(&mut rustc);
    let mut messages = Vec::new();
    let ended = stoppable::run(rustc.stdin(Stdio::null()).stderr(Stdio::piped()), kernel, |bytes, _| {
        messages.extend_from_slice(bytes);
        Ok(())
    })?;
    if ended.status.success() {
        fs::rename(folder.path().join(format!("lib{name}.so")), file)?;
        return Ok(true);
    }
    let messages = String::from_utf8_lossy(&messages);
    let reason = messages.lines().find(|line| line.starts_with("error")).unwrap_or("rustc failed");
    kernel.print_error(&format!(
        "warning: each cell has a copy of its own of the statics of these crates, since they cannot be one library: {reason}\n"
    ))?;
    Ok(false)
}
