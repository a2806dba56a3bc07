//! Where Ferrotune writes outside of the user's projects, in one list: `doctor` shows it, and `uninstall --all` removes it.
//!
//! A thing is Ferrotune's only if its name and its content say so. Everything else is the user's, wherever it lies.

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

/// What is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Prelude,
    /// What an interrupted build of a prelude leaves, its lock, and the cells that each kernel runs when it starts.
    PreludeBuild,
    Candle,
    Dependencies,
    Executables,
    Objects,
    Toolchain,
    /// What an interrupted installation leaves, and its lock.
    ToolchainBuild,
    History,
    Trust,
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
        }
    }
}

/// Something of Ferrotune's on disk.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    pub(crate) kind: Kind,
    pub(crate) path: PathBuf,
    /// What is Ferrotune's in a folder that may have more; none if all of the folder is.
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

    /// Removes it. A folder that still has files of others stays.
    pub(crate) fn remove(&self) -> io::Result<()> {
        match &self.only {
            None => return remove(&self.path),
            Some(parts) => parts.iter().try_for_each(|part| remove(part))?,
        }
        remove_if_empty(&self.path)
    }
}

/// What is on disk.
#[derive(Debug, Default)]
pub(crate) struct Inventory {
    pub(crate) ours: Vec<Item>,
    /// What lies in Ferrotune's folders without a proof that Ferrotune has made it.
    pub(crate) strange: Vec<PathBuf>,
}

/// Ferrotune's folders: what can be built again, and what cannot.
pub(crate) fn all() -> Result<[PathBuf; 2]> {
    Ok([cache()?, own::data_folder()?])
}

/// Looks at all that is there. A folder that is a link is not followed.
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

/// Makes an empty folder in which a prelude or a toolchain is made, with the mark that proves it. The rest of an interrupted
/// attempt is removed first: the caller has the lock of those who make it.
pub(crate) fn begin(folder: &Path) -> Result<()> {
    remove_rest(folder)?;
    fs::create_dir(folder)
        .and_then(|()| mark(folder))
        .with_context(|| format!("cannot write in {}; free some space", folder.display()))
}

/// Removes what an interrupted attempt has left, if anything. Fails if somebody else has made it.
pub(crate) fn remove_rest(folder: &Path) -> Result<()> {
    if fs::symlink_metadata(folder).is_err_and(|error| error.kind() == ErrorKind::NotFound) {
        return Ok(());
    }
    if !proof::is_rest(folder) {
        bail!("{} is in the way, and Ferrotune has not made it; move it away, then try again", folder.display());
    }
    remove(folder).with_context(|| format!("cannot remove {}", folder.display()))
}

/// Removes a file or a folder. Where that is interrupted, a folder is neither complete nor without its mark.
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

/// Removes a folder that nothing is in, if that can be done.
pub(crate) fn remove_if_empty(folder: &Path) -> io::Result<()> {
    match fs::remove_dir(folder) {
        // It has files, is a link or a mounted disk, or belongs to somebody else.
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

/// What another process has removed first is removed.
pub(crate) fn absent(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// What is in a folder, sorted.
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

/// A path as people write it: `~` stands for the home folder.
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

/// The bytes of all files below a folder. A file that goes while this looks counts nothing.
pub(crate) fn bytes(folder: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(folder) else { return 0 };
    let sizes = entries.flatten().map(|entry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => bytes(&entry.path()),
        Ok(metadata) => metadata.len(),
        Err(_) => 0,
    });
    sizes.sum()
}
