//! Finds the processes that have files of a folder open or mapped; the processes of other users are invisible.

use ferrotune_machine::mappings;
use ferrotune_machine::process::open_files;
use ferrotune_machine::process_tree::number;
use rustix::process::Pid;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// A file that a process has open or mapped.
#[derive(Debug)]
pub(super) struct Held {
    /// The name by which the file was opened.
    pub(super) name: OsString,
    pub(super) inode: u64,
    pub(super) pid: Pid,
}

/// The files of the folder that a process has open or mapped.
pub(super) fn held_by(pid: Pid, folder: &Path) -> Vec<Held> {
    let mut held = opened(pid, folder);
    held.extend(mapped(pid, folder));
    held
}

/// The files of the folder that a process has open; none if the process has ended or belongs to another user.
pub(super) fn opened(pid: Pid, folder: &Path) -> Vec<Held> {
    let held = open_files(number(pid)).filter_map(|(descriptor, file)| {
        let name = name_in(folder, &file)?;
        Some(Held { name, inode: fs::metadata(descriptor).ok()?.ino(), pid })
    });
    held.collect()
}

/// The files of the folder that a process has mapped.
pub(super) fn mapped(pid: Pid, folder: &Path) -> Vec<Held> {
    let mapped = mappings::of(number(pid)).unwrap_or_default();
    let held = mapped
        .iter()
        .filter_map(|mapping| Some(Held { name: name_in(folder, &mapping.path)?, inode: mapping.inode, pid }));
    held.collect()
}

/// The name of the file at `path`, if the file is in the folder, or was there when it was opened.
fn name_in(folder: &Path, path: &Path) -> Option<OsString> {
    let name = path.strip_prefix(folder).ok()?.as_os_str().as_bytes();
    let name = name.strip_suffix(b" (deleted)").unwrap_or(name);
    (!name.is_empty() && !name.contains(&b'/')).then(|| OsStr::from_bytes(name).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    type TestResult = Result<(), Box<dyn std::error::Error + Send + Sync>>;

    #[test]
    fn mapped_file_is_found_by_its_inode() -> TestResult {
        let own = fs::canonicalize(std::env::current_exe()?)?;
        let folder = own.parent().ok_or("no folder")?;
        let found = mapped(rustix::process::getpid(), folder);
        let found = found.iter().find(|held| Some(held.name.as_os_str()) == own.file_name()).ok_or("not mapped")?;
        assert_eq!(found.inode, fs::metadata(&own)?.ino());
        Ok(())
    }
}
