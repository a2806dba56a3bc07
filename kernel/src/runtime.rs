//! The folder and the environment of one running kernel: sockets, evcxr's work, and the stand-ins for cargo.
//!
//! evcxr takes its settings from the process' environment, which can only be set safely before a process begins: the
//! kernel prepares it and then replaces itself by the same program.

use crate::compile;
use crate::prelude::{Accelerator, Prelude};
use crate::toolchain::Toolchain;
use anyhow::{Context, Result, bail};
use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

/// This program, also where its file has been replaced since it was started.
pub(crate) const OWN_PROGRAM: &str = "/proc/self/exe";

/// Folder of the running kernel; set only in the process that `Runtime::enter` has made.
const RUNTIME_VARIABLE: &str = "FERROTUNE_RUNTIME";

/// Beginning of the names of the folders.
const PREFIX: &str = "ferrotune-";

/// File in the folder that the kernel keeps locked.
const LOCK: &str = "lock";

/// A folder without a living kernel is deleted by a later one, but not before it is this old: one that has just been
/// made is not locked yet.
const YOUNG: Duration = Duration::from_secs(60);

/// The path of a Unix socket is at most 107 bytes long; this leaves room for the name in the folder.
const LONGEST_FOLDER: usize = 60;

/// The socket of the kernel that has started this process, if one has.
pub(crate) fn kernel_link() -> Option<PathBuf> {
    std::env::var_os(RUNTIME_VARIABLE).map(|folder| link(Path::new(&folder)))
}

fn link(folder: &Path) -> PathBuf {
    folder.join("link")
}

/// The folder of a running kernel, deleted when it ends.
#[derive(Clone, Debug)]
pub(crate) struct Runtime {
    folder: PathBuf,
    prelude: PathBuf,
    accelerator: Accelerator,
    /// Locked as long as the kernel lives.
    _lock: Arc<File>,
}

impl Runtime {
    /// The environment that [`Runtime::enter`] has prepared, if this process has it.
    pub(crate) fn current(accelerator: Accelerator) -> Result<Option<Self>> {
        let variable = |name| std::env::var_os(name).map(PathBuf::from);
        let (Some(folder), Some(prelude)) = (variable(RUNTIME_VARIABLE), variable(compile::PRELUDE_VARIABLE)) else {
            return Ok(None);
        };
        let lock = File::create(folder.join(LOCK)).with_context(|| format!("cannot write in {}", folder.display()))?;
        lock.lock()?;
        Ok(Some(Self { folder, prelude, accelerator, _lock: Arc::new(lock) }))
    }

    /// Prepares the environment and starts this program again in it. Returns only if that fails.
    pub(crate) fn enter(arguments: &[OsString], accelerator: Accelerator) -> Result<std::convert::Infallible> {
        let toolchain = Toolchain::find()?;
        let program = std::env::current_exe()?;
        let parent = parent();
        sweep(&parent);
        let folder = tempfile::Builder::new()
            .prefix(PREFIX)
            .tempdir_in(parent)
            .context("cannot create a folder for the kernel")?
            .keep();
        let stand_ins = folder.join("bin");
        std::fs::create_dir(&stand_ins)?;
        // This process' own file, also where another version has taken its place: it keeps its number when it is replaced.
        let own = format!("/proc/{}/exe", std::process::id());
        for name in ["cargo", "rustup"] {
            std::os::unix::fs::symlink(&own, stand_ins.join(name))?;
        }
        let path = std::env::var_os("PATH").unwrap_or_default();
        let search = std::env::join_paths(std::iter::once(stand_ins).chain(std::env::split_paths(&path)))?;
        let prelude = Prelude::place(&toolchain, accelerator)?;
        let error = Command::new(&program)
            .args(arguments)
            .env("PATH", search)
            .env(compile::PATH_VARIABLE, path)
            .env(compile::PRELUDE_VARIABLE, &prelude)
            // Where rust-analyzer looks for the standard library.
            .env("RUST_SRC_PATH", Prelude::standard_library(&prelude))
            .env(compile::CARGO_VARIABLE, &toolchain.cargo)
            .env(compile::RUSTC_VARIABLE, &toolchain.rustc)
            .env(compile::STANDARD_LIBRARY_VARIABLE, &toolchain.library_folder)
            .env("EVCXR_TMPDIR", folder.join("cells"))
            .env(RUNTIME_VARIABLE, &folder)
            .exec();
        bail!("cannot start {}: {error}", program.display())
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Whether the prelude need not be built first.
    pub(crate) fn prelude_is_ready(&self) -> bool {
        matches!(Prelude::open(&self.prelude), Ok(Some(_)))
    }

    /// The prelude that cells are compiled against; builds it where it is missing.
    pub(crate) fn prelude(&self, progress: &mut dyn FnMut(&str)) -> Result<Prelude> {
        match Prelude::open(&self.prelude)? {
            Some(prelude) => Ok(prelude),
            None => Prelude::ensure(&Toolchain::find()?, self.accelerator, progress),
        }
    }

    /// The socket at which cell supervisors and compilers report.
    pub(crate) fn link(&self) -> PathBuf {
        link(&self.folder)
    }

    /// Deletes the folder.
    pub(crate) fn remove(&self) {
        if let Err(error) = std::fs::remove_dir_all(&self.folder) {
            tracing::warn!("cannot delete {}: {error}", self.folder.display());
        }
    }
}

fn parent() -> PathBuf {
    let parent = std::env::temp_dir();
    if parent.as_os_str().len() <= LONGEST_FOLDER { parent } else { PathBuf::from("/tmp") }
}

/// Deletes the folders of kernels that were killed.
fn sweep(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for entry in entries.flatten().filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX)) {
        let folder = entry.path();
        if let Err(error) = remove_abandoned(&folder) {
            tracing::debug!("{} stays: {error}", folder.display());
        }
    }
}

fn remove_abandoned(folder: &Path) -> std::io::Result<()> {
    let age = fs::metadata(folder)?.modified()?.elapsed().unwrap_or_default();
    let lock = File::open(folder.join(LOCK))?;
    if age >= YOUNG && lock.try_lock().is_ok() {
        fs::remove_dir_all(folder)?;
    }
    Ok(())
}
