//! Which preludes are in use, and the removal of old ones. A kernel holds a lock in its prelude's folder together with others; who
//! removes a prelude needs that lock alone, so that a running kernel keeps its prelude.

use super::proof::version_of_prelude;
use super::{Kind, Place, survey};
use crate::prelude;
use anyhow::{Context, Result};
use ferrotune_machine::format;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// A prelude that no kernel has used for so long is removed.
const OLD: Duration = Duration::from_secs(30 * DAY.as_secs());

/// The file in a prelude's folder that kernels lock, and whose time says when one has used the prelude.
const USED: &str = "used";

/// The lock of a prelude that a kernel uses.
#[derive(Debug)]
pub(crate) struct Held {
    /// None for a prelude that is not in the cache, which nobody removes.
    _lock: Option<File>,
}

/// Holds a prelude while the value lives, and notes that it is used now.
pub(crate) fn hold(prelude: &Path) -> Result<Held> {
    if prelude.parent() != Some(prelude::cache_folder()?.as_path()) {
        return Ok(Held { _lock: None });
    }
    let path = prelude.join(USED);
    let lock = OpenOptions::new().create(true).append(true).open(&path);
    let lock = lock.with_context(|| format!("cannot write {}", path.display()))?;
    lock.lock_shared().with_context(|| format!("cannot lock {}", path.display()))?;
    // Once a day is enough, and a start of a kernel writes nothing else into the cache.
    if lock.metadata()?.modified()?.elapsed().is_ok_and(|age| age > DAY) {
        lock.set_modified(SystemTime::now())?;
    }
    Ok(Held { _lock: Some(lock) })
}

/// What was removed.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Removed {
    preludes: usize,
    bytes: u64,
}

impl Removed {
    /// What was removed, in one line; none if that is nothing.
    pub(crate) fn line(&self) -> Option<String> {
        let preludes = match self.preludes {
            0 => return None,
            1 => "1 old prelude".to_owned(),
            many => format!("{many} old preludes"),
        };
        let size = format::bytes(self.bytes);
        Some(format!("removed {preludes} ({size}) of an older version, or that no kernel has used for 30 days"))
    }
}

/// Removes the preludes that are of an older version or have not been used for long, and what builds of them have left, except
/// those that somebody uses or builds now.
pub(crate) fn remove_old() -> Result<Removed> {
    let mut removed = Removed::default();
    let places = survey()?.ours;
    let of_preludes = |place: &&Place| matches!(place.kind, Kind::Prelude | Kind::PreludeBuild);
    let mut folders: Vec<PathBuf> = places.iter().filter(of_preludes).map(|place| folder_of(&place.path)).collect();
    folders.dedup();
    for folder in folders {
        let own: Vec<&Place> =
            places.iter().filter(of_preludes).filter(|place| folder_of(&place.path) == folder).collect();
        if !is_old(&folder, SystemTime::now()) {
            continue;
        }
        let Some(_locks) = take(&folder)? else { continue };
        for place in own {
            place.remove().with_context(|| format!("cannot remove {}", place.path.display()))?;
            removed.bytes += place.bytes;
        }
        removed.preludes += 1;
    }
    Ok(removed)
}

/// Whether somebody uses or makes a thing, such as a prelude or a toolchain, or that of which it is a rest.
pub(crate) fn is_held(path: &Path) -> Result<bool> {
    Ok(take(&folder_of(path))?.is_none())
}

/// Takes the locks of a folder alone: of those who use it, and of those who make it. None if somebody else holds one.
fn take(folder: &Path) -> Result<Option<Vec<File>>> {
    let mut locks = Vec::new();
    for path in [folder.join(USED), lock_of(folder)] {
        let lock = match OpenOptions::new().append(true).open(&path) {
            Ok(lock) => lock,
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => continue,
            Err(error) => return Err(error).with_context(|| format!("cannot open {}", path.display())),
        };
        match lock.try_lock() {
            Ok(()) => locks.push(lock),
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) => return Err(error).context("cannot lock the cache folder"),
        }
    }
    Ok(Some(locks))
}

fn is_old(folder: &Path, now: SystemTime) -> bool {
    let version = folder.file_name().and_then(|name| name.to_str()).and_then(version_of_prelude);
    if version.is_some_and(|version| numbers(version) < numbers(env!("CARGO_PKG_VERSION"))) {
        return true;
    }
    // A killed build has no prelude and no kernel that uses it.
    let used = [folder.join(USED), lock_of(folder), folder.to_owned()]
        .iter()
        .filter_map(|path| path.metadata().ok()?.modified().ok())
        .max();
    used.is_some_and(|used| now.duration_since(used).is_ok_and(|age| age > OLD))
}

fn numbers(version: &str) -> Vec<u64> {
    version.split(['.', '-', '+']).map_while(|number| number.parse().ok()).collect()
}

/// The folder to which a file or folder beside it belongs.
fn folder_of(path: &Path) -> PathBuf {
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("lock" | "target" | "building" | "starting" | "installing") => path.with_extension(""),
        _ => path.to_owned(),
    }
}

fn lock_of(folder: &Path) -> PathBuf {
    let mut path = folder.as_os_str().to_owned();
    path.push(".lock");
    PathBuf::from(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_as_numbers() {
        assert!(numbers("0.9.0") < numbers("0.10.0") && numbers("0.1.0") == numbers("0.1.0"));
    }
}
