//! A snapshot does not keep the pipes and connections that cells have made: as long as it did, their other ends would not
//! learn that the cells have closed them. Dead ends stand in their places, as if the other side had gone.
//!
//! Files, the process' own descriptors, and pairs of Unix sockets stay. Libraries use such pairs to wake themselves (tokio's
//! signals), and could not do without.
#![expect(unsafe_code, reason = "descriptors are borrowed and replaced by their numbers")]

use rustix::fs::{FileType, Mode, OFlags, RawDir, fcntl_getfl, fstat, open};
use rustix::io::{Errno, FdFlags, fcntl_getfd};
use rustix::net::{
    AddressFamily, SocketFlags, SocketType, getpeername, getsockname, socketpair, sockopt::socket_domain,
};
use rustix::pipe::{PipeFlags, pipe_with};
use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

/// Device and inode of what a descriptor refers to.
pub(super) type Identity = (u64, u64);

pub(super) fn identity(fd: impl AsFd) -> Result<Identity, Errno> {
    fstat(fd).map(|status| (status.st_dev, status.st_ino))
}

/// The length of the address of a Unix socket without a name: its family alone.
const UNNAMED_BYTES: u32 = size_of::<libc::sa_family_t>() as u32;

/// Replaces the pipes and sockets of a process that has just been forked, but for its own, and returns how many there were. Does
/// nothing but system calls.
pub(super) fn cut(own: &[Identity]) -> Result<usize, Errno> {
    let ends = DeadEnds::new()?;
    let folder = open(c"/proc/self/fd", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let mut buffer = [MaybeUninit::uninit(); 4096];
    let mut entries = RawDir::new(&folder, &mut buffer);
    let mut count = 0;
    while let Some(entry) = entries.next() {
        let Some(number) = number(entry?.file_name()).filter(|number| !ends.has(*number)) else { continue };
        // SAFETY: this process has one thread, and does not close the descriptor while it is borrowed.
        let fd = unsafe { BorrowedFd::borrow_raw(number) };
        // A file of a file system that does not answer is no reason to keep the others.
        if let Ok(Some(end)) = ends.in_place_of(fd, own) {
            replace(fd, end)?;
            count += 1;
        }
    }
    Ok(count)
}

fn number(name: &CStr) -> Option<RawFd> {
    name.to_str().ok()?.parse().ok()
}

/// Descriptors whose other side has gone: reading finds the end, writing finds a broken pipe.
struct DeadEnds {
    reader: OwnedFd,
    writer: OwnedFd,
    socket: OwnedFd,
}

impl DeadEnds {
    fn new() -> Result<Self, Errno> {
        let (reader, _) = pipe_with(PipeFlags::CLOEXEC)?;
        let (_, writer) = pipe_with(PipeFlags::CLOEXEC)?;
        let (socket, _) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        Ok(Self { reader, writer, socket })
    }

    fn has(&self, number: RawFd) -> bool {
        [&self.reader, &self.writer, &self.socket].iter().any(|end| end.as_raw_fd() == number)
    }

    /// What is to stand in the place of a descriptor; none if it stays.
    fn in_place_of(&self, fd: BorrowedFd<'_>, own: &[Identity]) -> Result<Option<&OwnedFd>, Errno> {
        let status = fstat(fd)?;
        if own.contains(&(status.st_dev, status.st_ino)) {
            return Ok(None);
        }
        Ok(match FileType::from_raw_mode(status.st_mode) {
            FileType::Socket => Some(&self.socket).filter(|_| !is_pair(fd)),
            FileType::Fifo => {
                let mode = fcntl_getfl(fd)?;
                Some(match () {
                    () if mode.contains(OFlags::RDWR) => &self.socket,
                    () if mode.contains(OFlags::WRONLY) => &self.writer,
                    () => &self.reader,
                })
            }
            _ => None,
        })
    }
}

/// Whether a socket is an end of a pair: a Unix socket, and neither side has a name.
fn is_pair(fd: BorrowedFd<'_>) -> bool {
    let is_unnamed = |address: rustix::net::SocketAddrAny| address.addr_len() == UNNAMED_BYTES;
    socket_domain(fd) == Ok(AddressFamily::UNIX)
        && getsockname(fd).is_ok_and(is_unnamed)
        && getpeername(fd).is_ok_and(|peer| peer.is_some_and(is_unnamed))
}

fn replace(fd: BorrowedFd<'_>, end: &OwnedFd) -> Result<(), Errno> {
    let flags = if fcntl_getfd(fd)?.contains(FdFlags::CLOEXEC) { libc::O_CLOEXEC } else { 0 };
    // SAFETY: the descriptor stays open, and is of no type that relies on what it refers to.
    match unsafe { libc::dup3(end.as_raw_fd(), fd.as_raw_fd(), flags) } {
        -1 => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::BADF)),
        _ => Ok(()),
    }
}
