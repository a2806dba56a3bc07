//! The folder and the environment of one running kernel: sockets, evcxr's work, and the stand-ins for cargo.
//!
//! evcxr takes its settings from the process' environment, which can only be set safely before a process begins: the
//! kernel prepares it and then replaces itself by the same program.

use crate::compile;
use crate::prelude::Prelude;
use crate::toolchain::Toolchain;
use anyhow::{Context, Result, bail};
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// This program, also where its file has been replaced since it was started.
pub(crate) const OWN_PROGRAM: &str = "/proc/self/exe";

/// Folder of the running kernel; set only in the process that `Runtime::enter` has made.
const RUNTIME_VARIABLE: &str = "FERROTUNE_RUNTIME";

/// The folder of a running kernel, deleted when it ends.
#[derive(Clone, Debug)]
pub(crate) struct Runtime {
    folder: PathBuf,
    prelude: PathBuf,
}

impl Runtime {
    /// The environment that [`Runtime::enter`] has prepared, if this process has it.
    pub(crate) fn current() -> Option<Self> {
        let folder = PathBuf::from(std::env::var_os(RUNTIME_VARIABLE)?);
        let prelude = PathBuf::from(std::env::var_os(compile::PRELUDE_VARIABLE)?);
        Some(Self { folder, prelude })
    }

    /// Prepares the environment and starts this program again in it. Returns only if that fails.
    pub(crate) fn enter(arguments: &[OsString]) -> Result<std::convert::Infallible> {
        let toolchain = Toolchain::find()?;
        let program = std::env::current_exe()?;
        let folder = tempfile::Builder::new()
            .prefix("ferrotune-")
            .tempdir()
            .context("cannot create a folder for the kernel")?
            .keep();
        let stand_ins = folder.join("bin");
        std::fs::create_dir(&stand_ins)?;
        for name in ["cargo", "rustup"] {
            std::os::unix::fs::symlink(&program, stand_ins.join(name))?;
        }
        let path = std::env::var_os("PATH").unwrap_or_default();
        let search = std::env::join_paths(std::iter::once(stand_ins).chain(std::env::split_paths(&path)))?;
        let prelude = Prelude::place(&toolchain)?;
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
            None => Prelude::ensure(&Toolchain::find()?, progress),
        }
    }

    /// The socket at which cell supervisors report.
    pub(crate) fn link(&self) -> PathBuf {
        self.folder.join("link")
    }

    /// Deletes the folder.
    pub(crate) fn remove(&self) {
        if let Err(error) = std::fs::remove_dir_all(&self.folder) {
            tracing::warn!("cannot delete {}: {error}", self.folder.display());
        }
    }
}
