//! Locks that keep a prelude or a toolchain while a kernel uses it. A kernel holds a shared lock on the file that makes the folder
//! complete; a removal needs the exclusive lock. A search needs no lock: it has read all its code when it begins.

use super::all;
use super::lock::{self, Found};
use crate::toolchain::own::READY;
use anyhow::{Context, Result};
use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

pub(super) const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// The file in a folder whose time is that of the folder's last use by a kernel, to a day.
pub(super) const USED: &str = "used";

/// The lock of a prelude or toolchain that a kernel uses.
#[derive(Debug)]
pub(crate) struct Held {
    /// The lock; none for a prelude or toolchain outside of Ferrotune's folders, which Ferrotune never removes.
    _lock: Option<File>,
}

/// Holds a prelude or a toolchain while the value lives, and records the use. None if the folder is gone.
pub(crate) fn hold(folder: &Path) -> Result<Option<Held>> {
    hold_in(&all()?, folder)
}

fn hold_in(kept: &[PathBuf], folder: &Path) -> Result<Option<Held>> {
    // A kernel that had no toolchain when it started reaches the prelude and the toolchain through links.
    let folder = match folder.canonicalize() {
        Ok(folder) => folder,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(|| format!("cannot find {}", folder.display())),
    };
    let is_parent = |kept: &PathBuf| kept.canonicalize().is_ok_and(|kept| folder.parent() == Some(kept.as_path()));
    if !kept.iter().any(is_parent) {
        return Ok(Some(Held { _lock: None }));
    }
    let lock = lock::shared(&folder.join(READY)).with_context(|| format!("cannot lock {}", folder.display()))?;
    let Some(lock) = lock else { return Ok(None) };
    if let Err(error) = note_use(&folder.join(USED)) {
        // The folder may be shared and not writable; a user who can write in it may then remove it too early.
        tracing::debug!("nobody learns that {} is used: {error}", folder.display());
    }
    Ok(Some(Held { _lock: Some(lock) }))
}

/// Records the use of a folder, at most once a day: a start of a kernel writes nothing else into the cache.
fn note_use(used: &Path) -> io::Result<()> {
    let is_recent = |used: SystemTime| used.elapsed().is_ok_and(|age| age <= DAY);
    if used.metadata().and_then(|used| used.modified()).is_ok_and(is_recent) {
        return Ok(());
    }
    OpenOptions::new().create(true).append(true).open(used)?.set_modified(SystemTime::now())
}

/// Takes the locks against the use and against the making of a prelude or toolchain; `path` may also be a rest of it. None if
/// another process uses or makes it now.
pub(crate) fn take(path: &Path) -> Result<Option<Vec<File>>> {
    let folder = folder_of(path);
    let mut locks = Vec::new();
    for path in [folder.join(READY), lock_of(&folder)] {
        match lock::find_alone(&path).with_context(|| format!("cannot lock {}", path.display()))? {
            Found::Nothing => {}
            Found::Busy => return Ok(None),
            Found::Taken(lock) => locks.push(lock),
        }
    }
    Ok(Some(locks))
}

/// The folder of the prelude or toolchain to which a lock or a rest beside the folder belongs.
pub(crate) fn folder_of(path: &Path) -> PathBuf {
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("lock" | "target" | "building" | "starting" | "installing") => path.with_extension(""),
        _ => path.to_owned(),
    }
}

pub(super) fn lock_of(folder: &Path) -> PathBuf {
    let mut path = folder.as_os_str().to_owned();
    path.push(".lock");
    PathBuf::from(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn what_is_held_by_a_link_cannot_be_taken() {
        let cache = tempfile::tempdir().unwrap();
        let (prelude, link) = (cache.path().join("prelude"), cache.path().join("link"));
        let kept = [cache.path().to_owned()];
        assert!(hold_in(&kept, &link).unwrap().is_none());
        fs::create_dir(&prelude).unwrap();
        symlink(&prelude, &link).unwrap();
        assert!(hold_in(&kept, &link).unwrap().is_none(), "it is not complete");
        fs::write(prelude.join(READY), "{}").unwrap();
        let held = hold_in(&kept, &link).unwrap().unwrap();
        assert!(prelude.join(USED).exists() && take(&prelude).unwrap().is_none());
        drop(held);
        assert_eq!(take(&prelude).unwrap().map(|locks| locks.len()), Some(1));
        let elsewhere = hold_in(&[cache.path().join("other")], &prelude).unwrap();
        assert!(elsewhere.is_some() && take(&prelude).unwrap().is_some());
    }
}
