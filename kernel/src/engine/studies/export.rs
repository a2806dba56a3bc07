//! The files of an export, which are written whole or not at all. Each function returns once its files are on disk.

use crate::engine::files::write_whole;
use anyhow::{Context, Result, bail};
use ferrotune_results::tensorboard::EventFile;
use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::Path;

/// Writes a file, and replaces an earlier file.
pub(super) fn whole(target: &Path, bytes: &[u8]) -> Result<()> {
    write_whole(target, bytes).with_context(|| format!("cannot write {}", target.display()))
}

/// Writes TensorBoard's files. Appends the new events to an existing file, so that a running TensorBoard continues to read it.
///
/// Fails if the folder has the events of another search: TensorBoard would mix the parameters of the two searches.
pub(crate) fn event_files(target: &Path, files: &[EventFile]) -> Result<()> {
    refuse_others(target, files)?;
    for EventFile { path, bytes } in files {
        let path = target.join(path);
        let folder = path.parent().unwrap_or(target);
        fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
        let earlier = match fs::read(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            read => Some(read.with_context(|| format!("cannot read {}", path.display()))?),
        };
        match earlier.and_then(|earlier| bytes.strip_prefix(earlier.as_slice())) {
            Some([]) => {}
            Some(rest) => append(&path, rest).with_context(|| format!("cannot write {}", path.display()))?,
            None => whole(&path, bytes)?,
        }
    }
    Ok(())
}

fn refuse_others(target: &Path, files: &[EventFile]) -> Result<()> {
    let entries = match fs::read_dir(target) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        entries => entries.with_context(|| format!("cannot read {}", target.display()))?,
    };
    for entry in entries {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name.starts_with("events.out.tfevents.") && files.iter().all(|file| file.path != name) {
            bail!("{} has the events of another search; name another folder, or remove it", target.display());
        }
    }
    Ok(())
}

fn append(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut file = OpenOptions::new().append(true).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}
