//! Bytes of arrays: in this process, or in memory files that several processes map.
#![expect(
    unsafe_code,
    reason = "maps files and a page; a sealed memory file is neither changed nor cut by anybody, and a place is not changed while it is lent"
)]

pub(crate) mod original;
pub(crate) mod places;

use ferrotune_machine::memory_file::{self, LENGTH_SEALS};
use memmap2::{Mmap, MmapMut, MmapOptions};
use places::{Loan, Writing};
use rustix::fs::{SealFlags, fcntl_get_seals};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write as _};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// The name of the memory files, which `/proc` shows.
const NAME: &str = "ferrotune-array";

/// A memory file with these bytes, which is sealed.
pub(crate) fn file_of(bytes: &[u8]) -> io::Result<File> {
    let mut file = memory_file::create(OsStr::new(NAME))?;
    file.write_all(bytes)?;
    memory_file::seal(&file)?;
    Ok(file)
}

/// A memory file of this length, and its mapping, whose pages are there at once. The caller seals the file, or its length, before another
/// process gets it, and writes only while no other process reads.
fn written_file(length: usize) -> io::Result<(File, MmapMut)> {
    let file = memory_file::create(OsStr::new(NAME))?;
    file.set_len(length as u64)?;
    // SAFETY: no other process has the file yet. Later, the seals keep its length, and the caller writes only while nobody reads.
    let map = unsafe { MmapOptions::new().populate().map_mut(&file) }?;
    Ok((file, map))
}

/// A memory file that is mapped into this process: it is sealed, or a place of the other side of a connection.
#[derive(Debug)]
pub(crate) struct Mapped(Mmap);

impl Mapped {
    /// Maps the whole file.
    ///
    /// # Errors
    /// The errors of [`Mapped::new`].
    pub(crate) fn whole(file: File) -> io::Result<Mapped> {
        let length = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)?;
        Mapped::new(file, length)
    }

    /// Maps the first `length` bytes of the file. They are read at once, all together.
    ///
    /// # Errors
    /// If the file is shorter, or its maker could still change or cut it, which would end this process with SIGBUS; and the
    /// system's errors.
    pub(crate) fn new(file: File, length: usize) -> io::Result<Mapped> {
        let seals = fcntl_get_seals(&file)?;
        let is_sealed = seals.contains(LENGTH_SEALS) && seals.intersects(SealFlags::WRITE | SealFlags::FUTURE_WRITE);
        if !is_sealed || file.metadata()?.len() < length as u64 {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a memory file is too short, or not sealed"));
        }
        // SAFETY: the seals keep the file's length, and nobody writes to it.
        let map = unsafe { MmapOptions::new().len(length).populate().map(&file) }?;
        Ok(Mapped(map))
    }

    /// Maps a place of the other side, which does not write there while it is lent.
    fn of_place(file: File) -> io::Result<Mapped> {
        if !fcntl_get_seals(&file)?.contains(LENGTH_SEALS) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a memory file could be cut"));
        }
        // SAFETY: the seals keep the file's length, and the other side does not write while the place is lent.
        let map = unsafe { MmapOptions::new().populate().map(&file) }?;
        Ok(Mapped(map))
    }
}

impl Deref for Mapped {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

/// Bytes of this process, of a sealed memory file, or in a place of the other side of a connection.
#[derive(Clone, Debug)]
pub(crate) enum Bytes {
    Own(Vec<u8>),
    Mapped(Arc<Mapped>),
    Lent(Arc<Loan>),
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Bytes::Own(bytes) => bytes,
            Bytes::Mapped(mapped) => mapped,
            Bytes::Lent(loan) => loan,
        }
    }
}

impl PartialEq for Bytes {
    fn eq(&self, other: &Bytes) -> bool {
        **self == **other
    }
}

/// Room for bytes that a device writes.
#[derive(Debug)]
pub(crate) enum Room {
    Own(Vec<u8>),
    Mapped(File, MmapMut),
    Place(Writing),
}

impl Room {
    /// Room in a memory file, whose pages are there at once.
    ///
    /// # Errors
    /// The system's errors, such as a lack of memory.
    pub(crate) fn in_file(length: usize) -> io::Result<Room> {
        written_file(length).map(|(file, map)| Room::Mapped(file, map))
    }
}

impl Deref for Room {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Room::Own(bytes) => bytes,
            Room::Mapped(_, map) => map,
            Room::Place(place) => place,
        }
    }
}

impl DerefMut for Room {
    fn deref_mut(&mut self) -> &mut [u8] {
        match self {
            Room::Own(bytes) => bytes,
            Room::Mapped(_, map) => map,
            Room::Place(place) => place,
        }
    }
}
