//! Files that are there whole or not at all.

use anyhow::{Result, bail};
use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

/// The permissions of a new file, of which the user's mask takes some away.
const NEW_FILE: u32 = 0o666;

/// Writes a file whole or not at all, through a second one, and returns once it is on disk. A link stays one: the file that it
/// leads to is replaced. A device or a pipe is written to.
pub(crate) fn write_whole(path: &Path, bytes: &[u8]) -> Result<()> {
    // What is not there yet, and a link that leads nowhere, is made by its own name.
    let path = &fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if !folder.is_dir() {
        bail!("there is no folder {}; make it first", folder.display());
    }
    let mut whole = tempfile::Builder::new().permissions(fs::Permissions::from_mode(NEW_FILE)).tempfile_in(folder)?;
    if fs::symlink_metadata(path).is_ok() {
        // Also an error where the file may not be written, which replacing it would not be.
        let mut known = OpenOptions::new().write(true).open(path)?;
        let metadata = known.metadata()?;
        if !metadata.is_file() {
            return Ok(known.write_all(bytes)?);
        }
        whole.as_file().set_permissions(metadata.permissions())?;
    }
    whole.write_all(bytes)?;
    whole.as_file().sync_all()?;
    whole.persist(path)?;
    Ok(File::open(folder)?.sync_all()?)
}
