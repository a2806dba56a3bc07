//! Files in memory that hold data for other processes: written by one, then sealed, so that nobody can change them.

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt as _;

/// What nobody can do with a sealed file any more, beside writing to it.
const OTHER_SEALS: SealFlags = SealFlags::GROW.union(SealFlags::SHRINK).union(SealFlags::SEAL);

/// An empty file in memory, which programs that this process starts do not inherit. The name is for `/proc` alone.
pub fn create(name: &OsStr) -> io::Result<File> {
    Ok(memfd_create(name.as_bytes(), MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?.into())
}

/// Takes from everyone the right to change the file. No writable mapping of it may exist.
///
/// The seal is [`F_SEAL_FUTURE_WRITE`], which forbids writing and new writable mappings. With no writable mapping, that is
/// all that `F_SEAL_WRITE` forbids; but `F_SEAL_WRITE` fails with `EBUSY` while anything holds a page of the file, and the
/// system itself does so now and then: when it moves pages, for example.
///
/// [`F_SEAL_FUTURE_WRITE`]: https://man7.org/linux/man-pages/man2/F_ADD_SEALS.2const.html
pub fn seal(file: impl AsFd) -> io::Result<()> {
    match fcntl_add_seals(&file, OTHER_SEALS | SealFlags::FUTURE_WRITE) {
        // Linux before 5.1 does not know it.
        Err(Errno::INVAL) => Ok(fcntl_add_seals(&file, OTHER_SEALS | SealFlags::WRITE)?),
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
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
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
