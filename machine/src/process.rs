//! Facts of any process. A process may end at each moment, and the system hides much of the processes of other users.

use crate::own;
use rustix::process::Pid;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// All processes that the system shows.
pub fn all() -> impl Iterator<Item = Pid> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?))
}

/// The path of a process's program.
pub fn path_of_program(process: u32) -> PathBuf {
    place(process, "exe")
}

/// Whether a path is that of the program of some process.
pub fn is_path_of_program(path: &Path) -> bool {
    let process = path.to_str().and_then(|path| path.strip_prefix("/proc/")?.strip_suffix("/exe"));
    process.is_some_and(|process| process.parse::<u32>().is_ok())
}

/// The path by which processes of the same user open a file that a process has open under this number.
pub fn path_of_file(process: u32, number: i32) -> PathBuf {
    place(process, "fd").join(number.to_string())
}

/// Whether a process has the program of this one.
pub fn has_own_program(process: u32) -> bool {
    let file = |path: &Path| fs::metadata(path).ok().map(|file| (file.dev(), file.ino()));
    let own = file(Path::new(own::PROGRAM));
    own.is_some() && file(&path_of_program(process)) == own
}

/// The words with which a process was started, each with a zero byte at its end.
///
/// # Errors
/// If there is no such process.
pub fn command(process: u32) -> io::Result<Vec<u8>> {
    fs::read(place(process, "cmdline"))
}

/// The variables with which a process was started, each with a zero byte at its end.
///
/// # Errors
/// If there is no such process, or it belongs to another user.
pub fn environment(process: u32) -> io::Result<Vec<u8>> {
    fs::read(place(process, "environ"))
}

/// The number of the user to whom a process belongs.
///
/// # Errors
/// If there is no such process.
pub fn owner(process: u32) -> io::Result<u32> {
    Ok(fs::metadata(place(process, ""))?.uid())
}

/// The working folder of a process.
///
/// # Errors
/// If there is no such process, or it belongs to another user.
pub fn folder(process: u32) -> io::Result<PathBuf> {
    fs::read_link(place(process, "cwd"))
}

/// A process for messages, such as `process 42 (python3)`.
pub fn described(process: u32) -> String {
    match fs::read_to_string(place(process, "comm")) {
        Ok(name) => format!("process {process} ({})", name.trim()),
        // The process has just ended, or is hidden.
        Err(_) => format!("process {process}"),
    }
}

/// A path for each file that a process has open, and the path by which it was opened; none if the process has ended or belongs to another
/// user.
pub fn open_files(process: u32) -> impl Iterator<Item = (PathBuf, PathBuf)> {
    let numbers = fs::read_dir(place(process, "fd")).into_iter().flatten().flatten();
    numbers.filter_map(|number| Some((number.path(), fs::read_link(number.path()).ok()?)))
}

/// A file of the system's about a process.
pub(crate) fn place(process: u32, name: &str) -> PathBuf {
    format!("/proc/{process}/{name}").into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process_tree::number;

    #[test]
    fn facts_of_this_process_are_known() -> io::Result<()> {
        let own = std::process::id();
        assert!(all().any(|pid| number(pid) == own));
        assert!(has_own_program(own) && is_path_of_program(&path_of_program(own)));
        assert_eq!(folder(own)?, std::env::current_dir()?);
        assert_eq!(owner(own)?, rustix::process::geteuid().as_raw());
        assert!(command(own)?.ends_with(b"\0") && described(own).ends_with(')'));
        let file = tempfile::NamedTempFile::new()?;
        assert!(open_files(own).any(|(_, path)| path == file.path()));
        Ok(())
    }

    #[test]
    fn a_process_that_does_not_exist_has_no_facts() {
        let none = u32::MAX;
        assert!(command(none).is_err() && environment(none).is_err() && owner(none).is_err() && folder(none).is_err());
        assert!(!has_own_program(none) && open_files(none).next().is_none());
        assert_eq!(described(none), format!("process {none}"));
        assert!(!is_path_of_program(Path::new("/proc/self/exe")) && !is_path_of_program(Path::new("/proc/1/fd")));
    }
}
