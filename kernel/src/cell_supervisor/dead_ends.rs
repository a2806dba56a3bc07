//! Closes, in a snapshot, the pipes and connections that cells have made: otherwise their other ends would not learn that the
//! cells have closed them. Dead ends, descriptors without another side, replace them.
//!
//! Files, the process' own descriptors, and pairs of Unix sockets stay. Libraries use such pairs to wake themselves (tokio's
//! signals), and do not work without them. A file that a cell has locked is opened anew, because the lock would stay for as
//! long as a snapshot has the same open file. The file is locked again if the snapshot is woken.
#![expect(unsafe_code, reason = "descriptors are borrowed and replaced by their numbers")]

use rustix::fs::{
    FileType, FlockOperation, Mode, OFlags, RawDir, SeekFrom, fcntl_getfl, flock, fstat, open, seek, tell,
};
use rustix::io::{Errno, FdFlags, fcntl_getfd};
use rustix::net::{
    AddressFamily, SocketFlags, SocketType, getpeername, getsockname, socketpair, sockopt::socket_domain,
};
use rustix::pipe::{PipeFlags, pipe_with};
use std::ffi::CStr;
use std::io::Write as _;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

/// Device and inode of the file to which a descriptor refers.
pub(super) type Identity = (u64, u64);

pub(super) fn identity(fd: impl AsFd) -> Result<Identity, Errno> {
    fstat(fd).map(|status| (status.st_dev, status.st_ino))
}

/// The length of the address of a Unix socket without a name: its family alone.
const UNNAMED_BYTES: u32 = size_of::<libc::sa_family_t>() as u32;

/// How many locked files a snapshot opens anew; further locked files stay as they are.
const MOST_LOCKS: usize = 64;

/// The pipes, sockets and locks of the original process that a snapshot does not have.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cut {
    /// The number of pipes and sockets that were replaced.
    pub(super) closed: usize,
    /// The locks (flock(2)) that were given up: each with the descriptor of its file.
    locks: [Option<(RawFd, FlockOperation)>; MOST_LOCKS],
}

impl Cut {
    pub(super) const NOTHING: Cut = Cut { closed: 0, locks: [None; MOST_LOCKS] };

    /// Locks the files again, once the process that had locked them has ended. Returns how many files could not be locked, because
    /// another process has locked them since.
    pub(super) fn lock_again(&self) -> usize {
        let again = |(number, operation): &(RawFd, FlockOperation)| {
            // SAFETY: the snapshot has closed nothing since it was made.
            let fd = unsafe { BorrowedFd::borrow_raw(*number) };
            flock(fd, *operation).is_ok()
        };
        self.locks.iter().flatten().filter(|lock| !again(lock)).count()
    }
}

/// Replaces the pipes and sockets, except the `own` ones, of a process that has just been forked, and opens locked files anew.
/// Does nothing but system calls.
pub(super) fn cut(own: &[Identity]) -> Result<Cut, Errno> {
    let ends = DeadEnds::new()?;
    let folder = open(c"/proc/self/fd", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let mut buffer = [MaybeUninit::uninit(); 4096];
    let mut entries = RawDir::new(&folder, &mut buffer);
    let mut cut = Cut::NOTHING;
    let mut locks = cut.locks.iter_mut();
    while let Some(entry) = entries.next() {
        let Some(number) = number(entry?.file_name()).filter(|number| !ends.has(*number)) else { continue };
        // SAFETY: this process has one thread, and does not close the descriptor while it is borrowed.
        let fd = unsafe { BorrowedFd::borrow_raw(number) };
        // If one file cannot be examined, for example on a file system that does not answer, the others are still replaced.
        match ends.in_place_of(fd, own) {
            Ok(Place::Of(end)) => {
                replace(fd, end)?;
                cut.closed += 1;
            }
            Ok(Place::OfFile) => {
                if let Ok(Some(operation)) = lock_of(number)
                    && let Some(lock) = locks.next()
                    && let Ok(file) = opened_anew(fd, number)
                {
                    replace(fd, &file)?;
                    *lock = Some((number, operation));
                }
            }
            Ok(Place::Own) | Err(_) => {}
        }
    }
    Ok(cut)
}

/// The operation that locks a file as this process has it locked; none if the file is not locked. Linux lists locks in lines
/// such as `lock: 1: FLOCK  ADVISORY WRITE …` (proc_pid_fdinfo(5)).
fn lock_of(number: RawFd) -> Result<Option<FlockOperation>, Errno> {
    let info = open(path(c"/proc/self/fdinfo/", number).as_c_str()?, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let mut bytes = [0; 1024];
    let length = rustix::io::read(&info, &mut bytes)?;
    let lines = bytes[..length].split(|byte| *byte == b'\n');
    let has = |line: &[u8], word: &[u8]| line.windows(word.len()).any(|part| part == word);
    let lock = lines.into_iter().find(|line| line.starts_with(b"lock:") && has(line, b"FLOCK"));
    Ok(lock.map(|line| {
        let is_exclusive = has(line, b"WRITE");
        if is_exclusive { FlockOperation::NonBlockingLockExclusive } else { FlockOperation::NonBlockingLockShared }
    }))
}

/// Opens the file of a descriptor once more, at the same position.
fn opened_anew(fd: BorrowedFd<'_>, number: RawFd) -> Result<OwnedFd, Errno> {
    let kept = OFlags::RWMODE | OFlags::APPEND | OFlags::NONBLOCK | OFlags::SYNC | OFlags::DIRECT;
    let flags = (fcntl_getfl(fd)? & kept) | OFlags::CLOEXEC;
    let file = open(path(c"/proc/self/fd/", number).as_c_str()?, flags, Mode::empty())?;
    seek(&file, SeekFrom::Start(tell(fd)?))?;
    Ok(file)
}

/// A path that is built without an allocation.
struct NumberedPath([u8; 40]);

impl NumberedPath {
    fn as_c_str(&self) -> Result<&CStr, Errno> {
        CStr::from_bytes_until_nul(&self.0).map_err(|_| Errno::NAMETOOLONG)
    }
}

fn path(folder: &CStr, number: RawFd) -> NumberedPath {
    let mut path = [0; 40];
    let mut rest = &mut path[..39];
    // A path that is too long gets no terminating zero byte, and is refused.
    let written = rest.write_all(folder.to_bytes()).and_then(|()| write!(rest, "{number}"));
    NumberedPath(if written.is_ok() { path } else { [1; 40] })
}

fn number(name: &CStr) -> Option<RawFd> {
    name.to_str().ok()?.parse().ok()
}

/// Descriptors whose other side is closed: a read finds the end of the stream, a write fails with a broken pipe.
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

    /// Chooses what replaces a descriptor.
    fn in_place_of(&self, fd: BorrowedFd<'_>, own: &[Identity]) -> Result<Place<'_>, Errno> {
        let status = fstat(fd)?;
        if own.contains(&(status.st_dev, status.st_ino)) {
            return Ok(Place::Own);
        }
        Ok(match FileType::from_raw_mode(status.st_mode) {
            FileType::Socket if is_pair(fd) => Place::Own,
            FileType::Socket => Place::Of(&self.socket),
            FileType::Fifo => {
                let mode = fcntl_getfl(fd)?;
                Place::Of(match () {
                    () if mode.contains(OFlags::RDWR) => &self.socket,
                    () if mode.contains(OFlags::WRONLY) => &self.writer,
                    () => &self.reader,
                })
            }
            FileType::RegularFile | FileType::Directory => Place::OfFile,
            _ => Place::Own,
        })
    }
}

/// The replacement of a descriptor in a snapshot.
enum Place<'a> {
    /// A dead end replaces the descriptor.
    Of(&'a OwnedFd),
    /// The same file, opened anew if it is locked.
    OfFile,
    /// The descriptor stays.
    Own,
}

/// Whether a socket is one end of a pair, that is, a Unix socket of which neither side has a name.
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
