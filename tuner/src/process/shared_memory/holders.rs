//! Finds the processes that have files of a folder open or mapped, from /proc. The processes of other users are invisible.

use ferrotune_machine::process_tree::number;
use rustix::process::Pid;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// A file that a process has open or mapped.
#[derive(Debug)]
pub(super) struct Held {
    /// The name by which the file was opened.
    pub(super) name: OsString,
    pub(super) inode: u64,
    pub(super) pid: Pid,
}

/// All processes that /proc shows.
pub(in crate::process) fn processes() -> impl Iterator<Item = Pid> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?))
}

/// The files of the folder that a process has open or mapped.
pub(super) fn held_by(pid: Pid, folder: &Path) -> Vec<Held> {
    let mut held = opened(pid, folder);
    held.extend(mapped(pid, folder));
    held
}

/// The files of the folder that a process has open; none if the process has ended or belongs to another user.
pub(super) fn opened(pid: Pid, folder: &Path) -> Vec<Held> {
    let held = open_files(pid).filter_map(|(descriptor, file)| {
        let name = name_in(folder, &file)?;
        Some(Held { name, inode: fs::metadata(descriptor).ok()?.ino(), pid })
    });
    held.collect()
}

/// The entry of each file descriptor of a process in /proc, and the path of its file; none if the process has ended or
/// belongs to another user.
pub(in crate::process) fn open_files(pid: Pid) -> impl Iterator<Item = (PathBuf, PathBuf)> {
    let descriptors = fs::read_dir(format!("/proc/{}/fd", number(pid))).into_iter().flatten().flatten();
    descriptors.filter_map(|descriptor| Some((descriptor.path(), fs::read_link(descriptor.path()).ok()?)))
}

/// The files of the folder that a process has mapped.
pub(super) fn mapped(pid: Pid, folder: &Path) -> Vec<Held> {
    let maps = fs::read(format!("/proc/{}/maps", number(pid))).unwrap_or_default();
    let held = maps.split(|byte| *byte == b'\n').filter_map(|line| {
        let start = line.iter().position(|byte| *byte == b'/')?;
        let name = name_in(folder, Path::new(OsStr::from_bytes(&line[start..])))?;
        let inode = std::str::from_utf8(&line[..start]).ok()?.split_whitespace().nth(4)?.parse().ok()?;
        Some(Held { name, inode, pid })
    });
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
