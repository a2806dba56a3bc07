//! The files that are mapped into a process, such as its libraries.

use crate::process::place;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

/// A part of a file that is mapped into a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// Where the part is in the memory of the process.
    pub addresses: Range<usize>,
    /// The number of the file in its file system.
    pub inode: u64,
    /// The path by which the file was opened, with ` (deleted)` at its end if it is no more there. That of a file in memory begins with
    /// `/memfd:`.
    pub path: PathBuf,
}

/// The mapped files of this process, in the order of their addresses.
///
/// # Errors
/// If the system does not show them.
pub fn own() -> io::Result<Vec<Mapping>> {
    Ok(parsed(&fs::read("/proc/self/maps")?))
}

/// The mapped files of a process, in the order of their addresses.
///
/// # Errors
/// If there is no such process, or it belongs to another user.
pub fn of(process: u32) -> io::Result<Vec<Mapping>> {
    Ok(parsed(&fs::read(place(process, "maps"))?))
}

/// Parses lines such as `7f00-7f80 r-xp 00001000 08:01 1234   /usr/lib/libc.so.6` (`proc_pid_maps(5)`), those without a file left out.
fn parsed(lines: &[u8]) -> Vec<Mapping> {
    lines.split(|byte| *byte == b'\n').filter_map(mapping).collect()
}

fn mapping(line: &[u8]) -> Option<Mapping> {
    let (numbers, path) = line.split_at(line.iter().position(|byte| *byte == b'/')?);
    let mut numbers = std::str::from_utf8(numbers).ok()?.split_whitespace();
    let (start, end) = numbers.next()?.split_once('-')?;
    let address = |text| usize::from_str_radix(text, 16).ok();
    let addresses = address(start)?..address(end)?;
    let inode = numbers.nth(3)?.parse().ok()?;
    Some(Mapping { addresses, inode, path: OsStr::from_bytes(path).into() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt as _;

    #[test]
    fn the_program_is_mapped_where_its_functions_are() -> io::Result<()> {
        let program = fs::canonicalize(std::env::current_exe()?)?;
        let address = the_program_is_mapped_where_its_functions_are as fn() -> io::Result<()> as usize;
        let found = own()?.into_iter().find(|mapping| mapping.addresses.contains(&address));
        let found = found.ok_or_else(|| io::Error::other("no mapping has this function"))?;
        assert_eq!((&found.path, found.inode), (&program, fs::metadata(&program)?.ino()));
        assert!(of(std::process::id())?.contains(&found));
        Ok(())
    }

    #[test]
    fn lines_without_a_file_are_left_out() {
        let lines = b"1000-2000 rw-p 00000000 00:00 0 \n3000-4000 rw-p 00000000 00:00 0    [heap]\n\
                      5000-6f00 r-xp 00001000 08:01 42    /tmp/a b (deleted)\n7000-8000 rw-s 00000000 00:01 7 /memfd:x (deleted)";
        let found = parsed(lines);
        let paths: Vec<_> = found.iter().map(|mapping| mapping.path.to_str()).collect();
        assert_eq!(paths, [Some("/tmp/a b (deleted)"), Some("/memfd:x (deleted)")]);
        assert_eq!((found[0].addresses.clone(), found[0].inode), (0x5000..0x6f00, 42));
    }
}
