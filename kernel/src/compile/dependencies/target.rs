//! Where cargo builds the crates of notebooks. One cargo at a time builds in a folder, so that a notebook whose crates take an
//! hour would hold up all others: those build in another folder.

use crate::folders;
use anyhow::{Context, Result};
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

/// How many notebooks may build at the same time.
const MOST: usize = 8;

/// The file in which a folder says what was built in it last: the hash of a notebook's crates.
const LATEST: &str = "latest";

/// The file in which a session has the folder of its local crates.
const OF_SESSION: &str = "dependencies-folder";

/// The folder in which to build these crates: where they were built, where they are being built, or else the first in which nothing is
/// built. A session that is given always has the same.
pub(super) fn folder(crates: &str, session: Option<&Path>) -> Result<PathBuf> {
    let of_session = session.map(|session| session.join(OF_SESSION));
    if let Some(folder) = of_session.as_deref().and_then(|file| fs::read_to_string(file).ok()) {
        return Ok(PathBuf::from(folder));
    }
    let cache = folders::cache()?;
    let folders: Vec<PathBuf> = (1..=MOST).map(|number| cache.join("dependencies").join(number.to_string())).collect();
    let builds = |folder: &&PathBuf| fs::read_to_string(folder.join(LATEST)).is_ok_and(|of| of == crates);
    let free = || folders.iter().filter(|folder| !is_busy(folder));
    let folder = free().find(|folder| marker(folder, crates).exists());
    let folder = folder.or_else(|| folders.iter().find(builds)).or_else(|| free().next()).unwrap_or(&folders[0]);
    begin(folder, crates, of_session.as_deref()).with_context(|| format!("cannot write in {}", folder.display()))?;
    Ok(folder.clone())
}

/// Notes that these crates are in the folder.
pub(super) fn built(folder: &Path, crates: &str) -> io::Result<()> {
    fs::write(marker(folder, crates), "")
}

fn begin(folder: &Path, crates: &str, of_session: Option<&Path>) -> io::Result<()> {
    fs::create_dir_all(marker(folder, crates).parent().unwrap_or(folder))?;
    fs::write(folder.join(LATEST), crates)?;
    of_session.map_or(Ok(()), |file| fs::write(file, folder.as_os_str().as_encoded_bytes()))
}

fn marker(folder: &Path, crates: &str) -> PathBuf {
    folder.join("built").join(crates)
}

/// Whether a cargo builds in the folder: it has this file locked.
fn is_busy(folder: &Path) -> bool {
    let lock = File::open(folder.join("debug/.cargo-lock"));
    lock.is_ok_and(|lock| matches!(lock.try_lock_shared(), Err(TryLockError::WouldBlock)))
}
