//! Where cargo builds the crates of notebooks. One cargo at a time builds in a folder, so that a notebook whose crates take an
//! hour would hold up all others: those build in another folder.

use crate::prelude;
use anyhow::{Context, Result};
use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};

/// How many notebooks may build at the same time.
const MOST: usize = 8;

/// The file in which a folder says what was built in it last: the hash of a notebook's crates.
const LATEST: &str = "latest";

/// The folder in which to build these crates: where they are being built already, or else the first in which nothing is built.
pub(super) fn folder(crates: &str) -> Result<PathBuf> {
    let cache = prelude::cache_folder()?;
    let folders: Vec<PathBuf> = (1..=MOST).map(|number| cache.join("dependencies").join(number.to_string())).collect();
    let suits =
        |folder: &&PathBuf| !is_busy(folder) || fs::read_to_string(folder.join(LATEST)).is_ok_and(|of| of == crates);
    let folder = folders.iter().find(suits).unwrap_or(&folders[0]);
    fs::create_dir_all(folder)
        .and_then(|()| fs::write(folder.join(LATEST), crates))
        .with_context(|| format!("cannot write in {}", folder.display()))?;
    Ok(folder.clone())
}

/// Whether a cargo builds in the folder: it has this file locked.
fn is_busy(folder: &Path) -> bool {
    let lock = File::open(folder.join("debug/.cargo-lock"));
    lock.is_ok_and(|lock| matches!(lock.try_lock_shared(), Err(TryLockError::WouldBlock)))
}
