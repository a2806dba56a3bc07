//! Memory files that are mapped into this process.
#![expect(unsafe_code, reason = "maps files; a sealed memory file is neither changed nor cut by anybody")]

use memmap2::Mmap;
use rustix::fs::{SealFlags, fcntl_get_seals};
use std::fs::File;
use std::io;
use std::ops::Deref;
use std::sync::Arc;

/// A sealed memory file that is mapped into this process.
#[derive(Debug)]
pub(crate) struct Mapped(Mmap);

impl Mapped {
    /// Maps the whole file.
    ///
    /// # Errors
    /// The errors of [`Mapped::new`].
    pub(crate) fn whole(file: &File) -> io::Result<Mapped> {
        let length = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)?;
        Mapped::new(file, length)
    }

    /// Maps the first `length` bytes of the file.
    ///
    /// # Errors
    /// If the file is shorter, or its maker could still change or cut it, which would end this process with SIGBUS; and the
    /// system's errors.
    pub(crate) fn new(file: &File, length: usize) -> io::Result<Mapped> {
        let seals = fcntl_get_seals(file)?;
        let is_sealed = seals.contains(SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)
            && seals.intersects(SealFlags::WRITE | SealFlags::FUTURE_WRITE);
        if !is_sealed || file.metadata()?.len() < length as u64 {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a memory file is too short, or not sealed"));
        }
        // SAFETY: the seals keep the file's length, and nobody writes to it.
        let map = unsafe { memmap2::MmapOptions::new().len(length).map(file) }?;
        Ok(Mapped(map))
    }
}

impl Deref for Mapped {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

/// Bytes of this process, or of a sealed memory file.
#[derive(Clone, Debug)]
pub(crate) enum Bytes {
    Own(Vec<u8>),
    Mapped(Arc<Mapped>),
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Bytes::Own(bytes) => bytes,
            Bytes::Mapped(mapped) => mapped,
        }
    }
}

impl PartialEq for Bytes {
    fn eq(&self, other: &Bytes) -> bool {
        **self == **other
    }
}
