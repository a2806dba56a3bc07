//! The socket of a device process, its lock, and the first messages, which are JSON so that other versions can read them.

use ferrotune_machine::own;
use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags, flock, openat, unlinkat};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect, listen,
    recv, send, socket_with,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::Path;

/// The greatest number of bytes of a first message.
const MOST_BYTES: usize = 256 << 10;

/// The number of clients that may wait to be accepted.
const BACKLOG: i32 = 64;

/// A socket at which a device process listens.
#[derive(Debug)]
pub(super) struct Socket {
    listener: OwnedFd,
    place: Place,
}

/// The place of a socket: a folder of the user's own, and a name in it.
#[derive(Debug)]
pub(crate) struct Place {
    folder: OwnedFd,
    name: OsString,
}

/// The lock of a place. Who starts a device process there, or connects, holds it meanwhile.
#[derive(Debug)]
pub(crate) struct Lock(File);

impl Lock {
    /// The locked file, which another process may have instead of this one.
    pub(crate) fn into_file(self) -> File {
        self.0
    }
}

impl Place {
    /// The place of this path. Makes its folder, in which only this user can write.
    ///
    /// # Errors
    /// If the folder belongs to another user, or others can write in it; and the system's errors.
    pub(crate) fn of(path: &Path) -> io::Result<Place> {
        let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(io::Error::other(format!("{} is no path of a socket", path.display())));
        };
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = File::from(rustix::fs::open(folder, flags, Mode::empty())?);
        let facts = opened.metadata()?;
        if facts.uid() != rustix::process::geteuid().as_raw() || facts.mode() & 0o022 != 0 {
            let reason = format!("{} must belong to this user, and nobody else may write there", folder.display());
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, reason));
        }
        Ok(Place { folder: opened.into(), name: name.to_owned() })
    }

    /// The address of the socket. A path of any length fits, because the folder is named by its descriptor.
    fn address(&self) -> io::Result<SocketAddrUnix> {
        Ok(SocketAddrUnix::new(own::path_of(&self.folder).join(&self.name))?)
    }

    /// Takes the lock if nobody has it.
    pub(crate) fn try_lock(&self) -> io::Result<Option<Lock>> {
        let mut name = self.name.clone();
        name.push(".lock");
        let flags = OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC;
        let file = openat(&self.folder, &name, flags, Mode::RUSR | Mode::WUSR)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Lock(file.into()))),
            Err(Errno::AGAIN) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The file for what the process and its plugin write to standard error.
    pub(crate) fn log(&self) -> io::Result<File> {
        let flags = OFlags::CREATE | OFlags::TRUNC | OFlags::RDWR | OFlags::APPEND | OFlags::CLOEXEC;
        Ok(openat(&self.folder, self.log_name(), flags, Mode::RUSR | Mode::WUSR)?.into())
    }

    /// The end of what the process and its plugin have written to standard error, on one line.
    pub(crate) fn last_words(&self) -> String {
        let file = openat(&self.folder, self.log_name(), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
        file.map(|file| crate::probe::tail(File::from(file))).unwrap_or_default()
    }

    fn log_name(&self) -> OsString {
        let mut name = self.name.clone();
        name.push(".log");
        name
    }

    /// Connects to the process that listens here; none if there is no such process.
    pub(crate) fn connect(&self) -> io::Result<Option<OwnedFd>> {
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        loop {
            match connect(&socket, &self.address()?) {
                Ok(()) => return Ok(Some(socket)),
                Err(Errno::INTR) => {}
                Err(Errno::NOENT | Errno::CONNREFUSED) => return Ok(None),
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn remove(&self) -> io::Result<()> {
        match unlinkat(&self.folder, &self.name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

impl Socket {
    /// Listens at a path whose lock the starter of this process holds.
    ///
    /// # Errors
    /// The system's errors.
    pub(super) fn listen(path: &Path) -> io::Result<Socket> {
        let place = Place::of(path)?;
        // The starter has found that nobody listens there.
        place.remove()?;
        let listener = socket_with(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
            None,
        )?;
        bind(&listener, &place.address()?)?;
        listen(&listener, BACKLOG)?;
        Ok(Socket { listener, place })
    }

    /// A client that waits to be accepted, if there is one.
    pub(super) fn accept(&self) -> io::Result<Option<OwnedFd>> {
        match accept_with(&self.listener, SocketFlags::CLOEXEC) {
            Ok(client) => Ok(Some(client)),
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Removes the socket, so that the next client starts another process.
    pub(super) fn remove(&self) -> io::Result<()> {
        self.place.remove()
    }

    /// Removes the socket unless a client holds the lock. Returns whether it was removed.
    pub(super) fn remove_if_unlocked(&self) -> io::Result<bool> {
        let Some(_lock) = self.place.try_lock()? else { return Ok(false) };
        self.remove()?;
        Ok(true)
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

/// Sends a first message.
pub(crate) fn send_json(socket: impl AsFd, message: &impl Serialize) -> io::Result<()> {
    let bytes = serde_json::to_vec(message)?;
    loop {
        match send(&socket, &bytes, SendFlags::NOSIGNAL) {
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Receives a first message; none if the other side has closed the socket.
pub(crate) fn receive_json<M: DeserializeOwned>(socket: impl AsFd) -> io::Result<Option<M>> {
    let mut bytes = vec![0; MOST_BYTES];
    loop {
        match recv(&socket, &mut bytes[..], RecvFlags::empty()) {
            Ok((0, _)) | Err(Errno::CONNRESET) => return Ok(None),
            Ok((length, _)) => return Ok(Some(serde_json::from_slice(&bytes[..length])?)),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
