//! The places where Ferrotune writes outside of the user's projects, in one list: `doctor` shows them, and `uninstall --all`
//! removes them.
//!
//! A file or folder is Ferrotune's only if its name and its content prove that. Everything else is the user's, wherever it is.

pub(crate) mod holds;
pub(crate) mod lock;
pub(crate) mod preludes;
mod proof;

use crate::toolchain::own;
use anyhow::{Context, Result, bail};
use proof::Proof;
pub(crate) use proof::mark;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// The kind of a file or folder that Ferrotune keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Prelude,
    /// The rest of an interrupted build of a prelude, the lock of the prelude, or the compiled cells that each kernel runs at its
    /// start.
    PreludeBuild,
    Candle,
    Dependencies,
    Executables,
    Objects,
    Toolchain,
    /// The rest of an interrupted installation of a toolchain, or the lock of the toolchain.
    ToolchainBuild,
    History,
    Trust,
    /// Sockets, locks and logs of device processes, where the user has no runtime folder.
    Devices,
}

impl Kind {
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Prelude => "prelude, which cells are linked with",
            Self::PreludeBuild => "unfinished prelude, or first cells or lock of one",
            Self::Candle => "candle's sources for the prelude",
            Self::Dependencies => "crates of notebooks",
            Self::Executables => "compiled programs of XLA",
            Self::Objects => "data from object stores and web servers",
            Self::Toolchain => "Rust toolchain of `ferrotune setup`",
            Self::ToolchainBuild => "unfinished toolchain, or lock of one",
            Self::History => "history of cells",
            Self::Trust => "searches whose code you trust",
            Self::Devices => "logs and locks of device processes",
        }
    }
}

/// A file or folder of Ferrotune's on disk.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    pub(crate) kind: Kind,
    pub(crate) path: PathBuf,
    /// The paths that are Ferrotune's in a folder that may have other files, too; none if the whole folder is Ferrotune's.
    only: Option<Vec<PathBuf>>,
    pub(crate) bytes: u64,
}

impl Item {
    fn new(kind: Kind, path: PathBuf) -> Self {
        Self { kind, bytes: size_of(&path), path, only: None }
    }

    fn of_parts(kind: Kind, path: PathBuf, parts: Vec<PathBuf>) -> Self {
        let bytes = parts.iter().map(|part| size_of(part)).sum();
        Self { kind, path, only: Some(parts), bytes }
    }

    /// Removes the file or folder. A folder that still has other files stays.
    pub(crate) fn remove(&self) -> io::Result<()> {
        match &self.only {
            None => return remove(&self.path),
            Some(parts) => parts.iter().try_for_each(|part| remove(part))?,
        }
        remove_if_empty(&self.path)
    }
}

/// Everything in Ferrotune's folders.
#[derive(Debug, Default)]
pub(crate) struct Inventory {
    pub(crate) ours: Vec<Item>,
    /// Paths in Ferrotune's folders without a proof that Ferrotune has made them.
    pub(crate) strange: Vec<PathBuf>,
}

/// Ferrotune's folders: the cache, which can be built again, and the data, which cannot.
pub(crate) fn all() -> Result<[PathBuf; 2]> {
    Ok([cache()?, own::data_folder()?])
}

/// Lists everything in Ferrotune's folders. A link to a folder is not followed.
pub(crate) fn survey() -> Result<Inventory> {
    let mut inventory = Inventory::default();
    for folder in all()? {
        for path in entries(&folder) {
            match proof::of(&path) {
                Proof::Whole(kind) => inventory.ours.push(Item::new(kind, path)),
                Proof::Parts(kind, is_ours) => {
                    let (parts, others): (Vec<_>, Vec<_>) = entries(&path).into_iter().partition(|part| is_ours(part));
                    inventory.ours.push(Item::of_parts(kind, path, parts));
                    inventory.strange.extend(others);
                }
                Proof::Missing => inventory.strange.push(path),
            }
        }
    }
    Ok(inventory)
}

/// Makes a folder in which a prelude or a toolchain will be made, with the mark that proves that it is Ferrotune's. Removes the rest
/// of an interrupted attempt first: the caller must hold the lock under which the prelude or toolchain is made.
pub(crate) fn begin(folder: &Path) -> Result<()> {
    remove_rest(folder)?;
    fs::create_dir(folder)
        .and_then(|()| mark(folder))
        .with_context(|| format!("cannot write in {}; free some space", folder.display()))
}

/// Removes the rest of an interrupted attempt, if there is one. Fails if the path exists and is not Ferrotune's.
pub(crate) fn remove_rest(folder: &Path) -> Result<()> {
    if fs::symlink_metadata(folder).is_err_and(|error| error.kind() == ErrorKind::NotFound) {
        return Ok(());
    }
    if !proof::is_rest(folder) {
        bail!("{} is in the way, and Ferrotune has not made it; move it away, then try again", folder.display());
    }
    remove(folder).with_context(|| format!("cannot remove {}", folder.display()))
}

/// Removes a file or a folder. After an interruption a folder is incomplete, but still has its mark.
fn remove(path: &Path) -> io::Result<()> {
    if !fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_dir()) {
        return absent(fs::remove_file(path));
    }
    absent(fs::remove_file(path.join(own::READY)))?;
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        match entry.file_type()?.is_dir() {
            true => absent(fs::remove_dir_all(entry.path()))?,
            false if entry.file_name() == proof::MARK => {}
            false => absent(fs::remove_file(entry.path()))?,
        }
    }
    absent(fs::remove_file(path.join(proof::MARK)))?;
    absent(fs::remove_dir(path))
}

/// Removes a folder if it is empty and can be removed.
pub(crate) fn remove_if_empty(folder: &Path) -> io::Result<()> {
    match fs::remove_dir(folder) {
        // The folder has files, is a link or a mounted disk, or belongs to another user.
        Err(error)
            if matches!(
                error.kind(),
                ErrorKind::DirectoryNotEmpty
                    | ErrorKind::NotADirectory
                    | ErrorKind::ResourceBusy
                    | ErrorKind::PermissionDenied
                    | ErrorKind::ReadOnlyFilesystem
            ) =>
        {
            Ok(())
        }
        removed => absent(removed),
    }
}

/// The result of a removal, which also counts as successful if another process has removed the path first.
pub(crate) fn absent(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// The paths in a folder, sorted.
pub(crate) fn entries(folder: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> =
        fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

fn size_of(path: &Path) -> u64 {
    match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_dir() => bytes(path),
        Ok(metadata) => metadata.len(),
        Err(_) => 0,
    }
}

/// A path in short form: with `~` for the home folder.
pub(crate) fn shortened(path: &Path) -> String {
    let home = dirs::home_dir();
    match home.as_deref().and_then(|home| path.strip_prefix(home).ok()) {
        Some(rest) if rest.as_os_str().is_empty() => "~".to_owned(),
        Some(rest) => format!("~/{}", rest.display()),
        None => path.display().to_string(),
    }
}

/// The folder of everything that can be built again: `ferrotune` in the user's cache folder.
pub(crate) fn cache() -> Result<PathBuf> {
    let cache = dirs::cache_dir().context("no cache folder: set HOME or XDG_CACHE_HOME")?;
    Ok(cache.join("ferrotune"))
}

/// The bytes of all files below a folder. A file that is deleted during the count adds nothing.
pub(crate) fn bytes(folder: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(folder) else { return 0 };
    let sizes = entries.flatten().map(|entry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => bytes(&entry.path()),
        Ok(metadata) => metadata.len(),
        Err(_) => 0,
    });
    sizes.sum()
}
