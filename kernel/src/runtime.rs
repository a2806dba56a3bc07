//! The runtime of one running kernel: its environment, and its folder with the socket, evcxr's files and the stand-ins for cargo.
//!
//! evcxr reads its settings from the environment of its process, which is safe to change only before the process has
//! threads: the kernel prepares the environment and then replaces itself by the same program.

mod sources;

use crate::environment::{
    self, CARGO_VARIABLE, OWNER_VARIABLE, PATH_VARIABLE, PRELUDE_VARIABLE, RUNTIME_VARIABLE, RUSTC_VARIABLE,
    STANDARD_LIBRARY_VARIABLE, socket_in,
};
use crate::folders::lock;
use crate::prelude::{Prelude, shipped};
use crate::toolchain::{Toolchain, own};
use anyhow::{Context, Result, bail, ensure};
use ferrotune_devices::{Machine, PYTHON_VARIABLE, prefix_of_ancestor};
use ferrotune_machine::process;
use rustix::fs::StatVfsMountFlags;
use std::ffi::OsString;
use std::fs::{self, File, TryLockError};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

/// Prefix of the names of kernels' folders.
const PREFIX: &str = "ferrotune-";

/// The mode of a kernel's folder: other users of the machine do not read the cells.
const PRIVATE: u32 = 0o700;

/// The file in the kernel's folder that the kernel holds locked.
const LOCK: &str = "lock";

/// The age from which on a later kernel deletes the folder of a kernel that has ended: a new folder is not locked yet.
const YOUNG: Duration = Duration::from_secs(60);

/// The folder in which evcxr compiles cells.
const CELLS: &str = "cells";

/// The folder with the stand-ins, which are links to the kernel's program, and the name of the link that proves that the folder is
/// a kernel's.
const STAND_INS: &str = "bin";
const CARGO: &str = "cargo";

/// The links to the toolchain and the prelude, in the folder of a kernel that had no toolchain when it started.
const TOOLCHAIN: &str = "toolchain";
const PRELUDE: &str = "prelude";

/// The longest path of the temporary folder, in bytes: the path of a Unix socket has at most 107, and names follow the folder.
const LONGEST_FOLDER: usize = 60;

/// The prelude and the tools with which evcxr and the stand-ins for cargo compile cells.
struct Tools {
    prelude: PathBuf,
    cargo: PathBuf,
    rustc: PathBuf,
    library_folder: PathBuf,
}

/// The folder of a running kernel, which is deleted when the kernel ends.
#[derive(Clone, Debug)]
pub(crate) struct Runtime {
    folder: PathBuf,
    prelude: PathBuf,
    /// The lock of the folder, which is held until the kernel ends.
    _lock: Arc<File>,
}

impl Runtime {
    /// The runtime of this process, if [`Runtime::enter`] has prepared its environment.
    pub(crate) fn current() -> Result<Option<Self>> {
        let variable = |name| std::env::var_os(name).map(PathBuf::from);
        // `exec` keeps the process id; a kernel that a cell of another kernel has started has that kernel's variables, but another id.
        let is_own = std::env::var(OWNER_VARIABLE).is_ok_and(|owner| owner == std::process::id().to_string());
        let (true, Some(folder), Some(prelude)) = (is_own, variable(RUNTIME_VARIABLE), variable(PRELUDE_VARIABLE))
        else {
            return Ok(None);
        };
        let lock = lock::alone(&folder.join(LOCK)).with_context(|| format!("cannot write in {}", folder.display()))?;
        Ok(Some(Self { folder, prelude, _lock: Arc::new(lock) }))
    }

    /// Prepares the environment, and replaces this process by the same program in that environment. Returns only if that fails.
    pub(crate) fn enter(arguments: &[OsString]) -> Result<std::convert::Infallible> {
        // Without a toolchain, the first cell installs a toolchain or shows why it cannot.
        let toolchain = shipped::installed_toolchain().ok().flatten();
        let program = std::env::current_exe()?;
        let parent = parent();
        sweep(&parent);
        let folder = tempfile::Builder::new()
            .prefix(PREFIX)
            .permissions(fs::Permissions::from_mode(PRIVATE))
            .tempdir_in(parent)
            .context("cannot create a folder for the kernel; set TMPDIR to a folder that can be written")?
            .keep();
        let stand_ins = folder.join(STAND_INS);
        std::fs::create_dir(&stand_ins)?;
        // `exec` keeps the process id, so this path leads to the running program even after its file is replaced.
        let own = process::path_of_program(std::process::id());
        for name in [CARGO, "rustup"] {
            symlink(&own, stand_ins.join(name))?;
        }
        let path = std::env::var_os("PATH").unwrap_or_default();
        let search = std::env::join_paths(std::iter::once(stand_ins.clone()).chain(std::env::split_paths(&path)))?;
        let later = folder.join(TOOLCHAIN);
        let tools = match &toolchain {
            Some(toolchain) => Tools {
                prelude: Prelude::place(toolchain)?,
                cargo: toolchain.cargo.clone(),
                rustc: toolchain.rustc.clone(),
                library_folder: toolchain.library_folder.clone(),
            },
            None => Tools {
                prelude: folder.join(PRELUDE),
                cargo: later.join("bin/cargo"),
                rustc: later.join("bin/rustc"),
                library_folder: later.join("lib/rustlib").join(own::host()).join("lib"),
            },
        };
        if tools.rustc.is_absolute() {
            symlink(&tools.rustc, stand_ins.join("rustc"))?; // rust-analyzer asks it for the target
        }
        // The processes of cells and trials look for plugins beside the notebook's Python, also when that has ended.
        let machine = Machine::this();
        let named = machine.environment.get(PYTHON_VARIABLE).filter(|prefix| !prefix.is_empty()).cloned();
        let python = named.or_else(|| prefix_of_ancestor(&machine));
        let error = Command::new(&program)
            .args(arguments)
            .envs(python.map(|prefix| (PYTHON_VARIABLE, prefix)))
            .env("PATH", search)
            .env(PATH_VARIABLE, path)
            .env(PRELUDE_VARIABLE, &tools.prelude)
            // rust-analyzer looks here for the standard library.
            .env("RUST_SRC_PATH", sources::standard_library(&folder))
            .env(CARGO_VARIABLE, &tools.cargo)
            .env(RUSTC_VARIABLE, &tools.rustc)
            .env(STANDARD_LIBRARY_VARIABLE, &tools.library_folder)
            .env("EVCXR_TMPDIR", folder.join(CELLS))
            .env(RUNTIME_VARIABLE, &folder)
            .env(OWNER_VARIABLE, std::process::id().to_string())
            .exec();
        bail!("cannot start {}: {error}", program.display())
    }

    /// A runtime in a folder of a test, in which no cell can be compiled.
    #[cfg(test)]
    pub(crate) fn in_folder(folder: &Path) -> Self {
        let lock = lock::alone(&folder.join(LOCK)).unwrap();
        let prelude = folder.join(PRELUDE);
        Self { folder: folder.to_owned(), prelude, _lock: Arc::new(lock) }
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Whether the prelude is built already.
    pub(crate) fn prelude_is_ready(&self) -> bool {
        matches!(Prelude::open(&self.prelude), Ok(Some(_)))
    }

    /// Returns the prelude that cells are compiled against, and builds it first if it is missing.
    pub(crate) fn prelude(&self, progress: &mut dyn FnMut(&str)) -> Result<Prelude> {
        match Prelude::open(&self.prelude)? {
            Some(prelude) => Ok(prelude),
            None => {
                let toolchain = shipped::toolchain()?;
                let prelude = Prelude::ensure(&toolchain, progress)?;
                self.lead_to_tools(&toolchain, &prelude)?;
                Ok(prelude)
            }
        }
    }

    /// Makes the links of a kernel that had no toolchain when it started.
    fn lead_to_tools(&self, toolchain: &Toolchain, prelude: &Prelude) -> Result<()> {
        if self.prelude.starts_with(&self.folder) && !self.prelude.exists() {
            self.link(TOOLCHAIN, &toolchain.sysroot)?;
            self.link(PRELUDE, prelude.folder())?;
        }
        Ok(())
    }

    /// Makes a link in the folder in one step, in place of an earlier link with this name.
    fn link(&self, name: &str, to: &Path) -> Result<()> {
        let (link, new) = (self.folder.join(name), self.folder.join(format!("{name}.new")));
        let made = symlink(to, &new).and_then(|()| fs::rename(&new, &link));
        made.with_context(|| format!("cannot make the link {}", link.display()))
    }

    /// The folder of the toolchain that compiles cells; none if the path of rustc does not show it.
    pub(crate) fn toolchain() -> Result<Option<PathBuf>> {
        let rustc = environment::path(RUSTC_VARIABLE)?;
        Ok(rustc.is_absolute().then(|| rustc.parent()?.parent().map(Path::to_owned)).flatten())
    }

    /// Fails if the system loads no library from the folder, in which cells are compiled. Docker's `--tmpfs` mounts such a folder.
    pub(crate) fn ensure_libraries_load(&self) -> Result<()> {
        let mount =
            rustix::fs::statvfs(&self.folder).with_context(|| format!("cannot read {}", self.folder.display()))?;
        let parent = self.folder.parent().unwrap_or(&self.folder).display();
        ensure!(
            !mount.f_flag.contains(StatVfsMountFlags::NOEXEC),
            "{parent} is mounted with noexec, and cells run from there; mount it with exec, or set TMPDIR to another folder"
        );
        Ok(())
    }

    /// The socket to which the cell supervisor and compilers connect.
    pub(crate) fn socket(&self) -> PathBuf {
        socket_in(&self.folder)
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

/// The number of this user's running kernels.
pub(crate) fn running() -> usize {
    let entries = fs::read_dir(parent()).into_iter().flatten().flatten();
    let own = entries.map(|entry| entry.path()).filter(|folder| is_ours(folder));
    let locks = own.filter_map(|folder| File::open(folder.join(LOCK)).ok());
    locks.filter(|lock| matches!(lock.try_lock(), Err(TryLockError::WouldBlock))).count()
}

/// Deletes the folders of kernels that were killed before they could delete their own.
pub(crate) fn sweep_abandoned() {
    sweep(&parent());
}

fn sweep(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for folder in entries.flatten().map(|entry| entry.path()).filter(|folder| is_ours(folder)) {
        if let Err(error) = remove_abandoned(&folder) {
            tracing::debug!("{} stays: {error}", folder.display());
        }
    }
}

/// Whether a kernel of this user has made a folder: the folder has a name of this form, and a link to the kernel's process.
fn is_ours(folder: &Path) -> bool {
    let has_name = folder.file_name().is_some_and(|name| name.to_string_lossy().starts_with(PREFIX));
    let is_users = |folder: &fs::Metadata| folder.is_dir() && folder.uid() == rustix::process::geteuid().as_raw();
    has_name
        && fs::symlink_metadata(folder).as_ref().is_ok_and(is_users)
        && fs::read_link(folder.join(STAND_INS).join(CARGO)).is_ok_and(|program| process::is_path_of_program(&program))
}

fn remove_abandoned(folder: &Path) -> std::io::Result<()> {
    let age = fs::metadata(folder)?.modified()?.elapsed().unwrap_or_default();
    let lock = File::open(folder.join(LOCK))?;
    if age >= YOUNG && lock.try_lock().is_ok() {
        fs::remove_dir_all(folder)?;
    }
    Ok(())
}
