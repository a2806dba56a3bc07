//! Chooses the folder in which cargo builds the crates of a notebook. Only one cargo at a time builds in a folder, so other
//! notebooks use other folders: otherwise one whose crates take an hour would delay them all.

use crate::folders;
use anyhow::{Context, Result};
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

/// How many notebooks may build at the same time.
const MOST: usize = 8;

/// The file in a folder with the hash of the notebook's crates whose build there began last.
const LATEST: &str = "latest";

/// The file of a session with the path of the folder for its local crates.
const OF_SESSION: &str = "dependencies-folder";

/// Chooses the folder in which to build these crates: the one where they were built or are being built, or else the first in which
/// no cargo is at work. If a session is given, all its builds are in the same folder.
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

/// Records that these crates were built in the folder.
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

/// Whether a cargo builds in the folder, which it shows by a lock on the file `.cargo-lock`.
fn is_busy(folder: &Path) -> bool {
    let lock = File::open(folder.join("debug/.cargo-lock"));
    lock.is_ok_and(|lock| matches!(lock.try_lock_shared(), Err(TryLockError::WouldBlock)))
}
