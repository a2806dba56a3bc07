//! Writes files whole or not at all.

use anyhow::{Result, bail};
use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

/// The permissions of a new file, of which the user's mask takes some away.
const NEW_FILE: u32 = 0o666;

/// Writes a file whole or not at all, through a temporary file, and returns once the file is on disk. A symbolic link stays: the
/// file to which it leads is replaced. A device or a pipe is not replaced but written to.
pub(crate) fn write_whole(path: &Path, bytes: &[u8]) -> Result<()> {
    // For a missing file, or a link that leads nowhere, the file is created at `path` itself.
    let path = &fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if !folder.is_dir() {
        bail!("there is no folder {}; make it first", folder.display());
    }
    let mut whole = tempfile::Builder::new().permissions(fs::Permissions::from_mode(NEW_FILE)).tempfile_in(folder)?;
    if fs::symlink_metadata(path).is_ok() {
        // Opening fails if the user may not write to the file. A replacement of the file would not fail.
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
