//! Files in memory with data for other processes: one process writes a file and then seals it, so that nobody can change
//! it.

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt as _;

/// The seals that keep a file's length, and the seals themselves.
pub const LENGTH_SEALS: SealFlags = SealFlags::GROW.union(SealFlags::SHRINK).union(SealFlags::SEAL);

/// Makes an empty file in memory, which programs started by this process do not inherit. The name is shown only in `/proc`.
pub fn create(name: &OsStr) -> io::Result<File> {
    Ok(memfd_create(name.as_bytes(), MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?.into())
}

/// Seals the length of the file, whose content may change.
pub fn seal_length(file: impl AsFd) -> io::Result<()> {
    Ok(fcntl_add_seals(file, LENGTH_SEALS)?)
}

/// Seals the file, so that nobody can change it any more. No writable mapping of the file may exist.
///
/// The seal is [`F_SEAL_FUTURE_WRITE`], which forbids writing and new writable mappings. If no writable mapping exists,
/// `F_SEAL_WRITE` forbids nothing more. But `F_SEAL_WRITE` fails with `EBUSY` while anything holds a page of the file, and
/// sometimes the system itself does, for example when it moves pages.
///
/// [`F_SEAL_FUTURE_WRITE`]: https://man7.org/linux/man-pages/man2/F_ADD_SEALS.2const.html
pub fn seal(file: impl AsFd) -> io::Result<()> {
    match fcntl_add_seals(&file, LENGTH_SEALS | SealFlags::FUTURE_WRITE) {
        // Linux before 5.1 does not know this seal.
        Err(Errno::INVAL) => Ok(fcntl_add_seals(&file, LENGTH_SEALS | SealFlags::WRITE)?),
        sealed => Ok(sealed?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::pipe::{SpliceFlags, pipe, splice};
    use std::io::Write as _;
    use std::os::unix::fs::FileExt as _;

    #[test]
    fn a_sealed_file_cannot_be_changed() -> io::Result<()> {
        let mut file = create(OsStr::new("sealed"))?;
        file.write_all(b"data")?;
        seal(&file)?;
        assert!(file.write_at(b"x", 0).is_err());
        assert!(file.set_len(0).is_err() && file.set_len(10).is_err());
        let path = crate::own::path_of(&file);
        assert!(File::options().write(true).open(&path)?.write_at(b"x", 0).is_err(), "nor through another descriptor");
        assert_eq!(std::fs::read(path)?, b"data");
        Ok(())
    }

    #[test]
    fn a_file_whose_pages_the_system_holds_can_be_sealed() -> io::Result<()> {
        let mut file = create(OsStr::new("held"))?;
        file.write_all(&[7; 4096])?;
        let (_kept, into) = pipe()?;
        let mut start = 0;
        assert_eq!(splice(&file, Some(&mut start), &into, None, 4096, SpliceFlags::empty())?, 4096);
        seal(&file)?;
        assert!(file.write_at(b"x", 0).is_err());
        Ok(())
    }
}
