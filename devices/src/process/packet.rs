//! Packets on a Unix socket: messages, with the bytes and the memory files that belong to them.
//!
//! The socket keeps the borders of packets (`SOCK_SEQPACKET`). A packet is a list of messages, each directly followed by its inline
//! bytes. What is longer than a socket takes is in a memory file.

use super::protocol::Payload;
use crate::memory::places::{Borrowed, Lent, Writing};
use crate::memory::{Bytes, Mapped, Room, file_of};
use ferrotune_machine::memory_file;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// The greatest number of bytes of a packet in the socket itself; a longer one goes through a memory file.
const MOST_BYTES: usize = 64 << 10;

/// The greatest number of bytes that follow a message directly.
pub(crate) const MOST_INLINE: usize = 8 << 10;

/// The greatest number of descriptors of a packet.
const MOST_FILES: usize = 16;

/// The interval at which a wait is asked whether to end.
pub(crate) const TICK: Duration = Duration::from_millis(50);

/// The first byte of a packet: whether the messages are in the packet, or in its first memory file.
const HERE: u8 = 0;
const IN_FILE: u8 = 1;

/// A packet that is being written.
#[derive(Debug)]
pub(crate) struct Outgoing {
    bytes: Vec<u8>,
    files: Vec<OwnedFd>,
}

impl Default for Outgoing {
    fn default() -> Outgoing {
        Outgoing { bytes: vec![HERE], files: Vec::new() }
    }
}

impl Outgoing {
    /// Whether the packet should be sent before it gets longer.
    pub(crate) fn is_full(&self) -> bool {
        self.bytes.len() > MOST_BYTES / 2 || self.files.len() >= MOST_FILES / 2
    }

    /// Adds a message.
    pub(crate) fn push(&mut self, message: &impl Serialize) -> io::Result<()> {
        let bytes = std::mem::take(&mut self.bytes);
        self.bytes = postcard::to_extend(message, bytes).map_err(io::Error::other)?;
        Ok(())
    }

    /// Adds a message with bytes, which `message` takes as a payload.
    pub(crate) fn push_with<M: Serialize>(
        &mut self,
        bytes: &[u8],
        message: impl FnOnce(Payload) -> M,
    ) -> io::Result<()> {
        if bytes.len() <= MOST_INLINE {
            self.push(&message(Payload::Inline(bytes.len())))?;
            self.bytes.extend_from_slice(bytes);
            return Ok(());
        }
        self.push_descriptor(&message(Payload::File(bytes.len())), file_of(bytes)?.into())
    }

    /// Adds a message with bytes that a device has written, and nobody changes any more.
    pub(crate) fn push_room<M: Serialize>(&mut self, room: Room, message: impl FnOnce(Payload) -> M) -> io::Result<()> {
        match room {
            Room::Own(bytes) => self.push_with(&bytes, message),
            Room::Mapped(file, map) => {
                let message = message(Payload::File(map.len()));
                drop(map);
                memory_file::seal(&file)?;
                self.push_descriptor(&message, file.into())
            }
            Room::Place(writing) => self.push_place(writing, message),
        }
    }

    /// Adds a message with the bytes that are in a place.
    pub(crate) fn push_place<M: Serialize>(
        &mut self,
        writing: Writing,
        message: impl FnOnce(Payload) -> M,
    ) -> io::Result<()> {
        let Lent { number, length, file, gone } = writing.lend()?;
        let message = message(Payload::Place { number, length, is_new: file.is_some(), gone });
        match file {
            Some(file) => self.push_descriptor(&message, file),
            None => self.push(&message),
        }
    }

    /// Adds a message with a descriptor.
    pub(crate) fn push_descriptor(&mut self, message: &impl Serialize, descriptor: OwnedFd) -> io::Result<()> {
        self.files.push(descriptor);
        self.push(message)
    }

    /// Sends the packet, and waits while the socket is full. `stop` is called about every 50 ms of the wait; if it returns `true`, the
    /// packet stays to be sent.
    ///
    /// # Errors
    /// [`io::ErrorKind::Interrupted`] if `stop` has ended the wait, and the system's errors.
    pub(crate) fn send(&mut self, socket: impl AsFd, stop: &dyn Fn() -> bool) -> io::Result<()> {
        let is_long = self.bytes.len() > MOST_BYTES;
        let long: Option<OwnedFd> = is_long.then(|| file_of(&self.bytes[1..])).transpose()?.map(OwnedFd::from);
        let bytes: &[u8] = if is_long { &[IN_FILE] } else { &self.bytes };
        let files: Vec<BorrowedFd<'_>> = long.iter().chain(&self.files).map(AsFd::as_fd).collect();
        loop {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_FILES + 1))];
            let mut ancillary = SendAncillaryBuffer::new(&mut space);
            if !files.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(&files)) {
                return Err(io::Error::other("a packet has too many memory files"));
            }
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            match sendmsg(&socket, &[IoSlice::new(bytes)], &mut ancillary, flags) {
                Ok(_) => break,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => wait_for(&socket, PollFlags::OUT, TICK).map(drop)?,
                Err(error) => return Err(error.into()),
            }
            if stop() {
                return Err(io::ErrorKind::Interrupted.into());
            }
        }
        *self = Outgoing::default();
        Ok(())
    }
}

/// Waits for at most this time until the socket can be read or written, and returns whether it can.
pub(crate) fn wait_for(socket: impl AsFd, what: PollFlags, limit: Duration) -> io::Result<bool> {
    let timeout = Timespec::try_from(limit).map_err(io::Error::other)?;
    match poll(&mut [PollFd::new(&socket, what)], Some(&timeout)) {
        Ok(ready) => Ok(ready > 0),
        Err(Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

thread_local! {
    /// Room for the packet that a thread receives: to fill new room with zeros takes longer than most packets.
    static ROOM: RefCell<Vec<u8>> = RefCell::new(vec![0; MOST_BYTES]);
}

/// A packet that has been received.
#[derive(Debug)]
pub(crate) struct Incoming {
    bytes: Vec<u8>,
    at: usize,
    files: VecDeque<OwnedFd>,
}

impl Incoming {
    /// Waits for a packet; none if the other side has closed the socket.
    ///
    /// # Errors
    /// The system's error, or a packet that is not whole.
    pub(crate) fn receive(socket: impl AsFd) -> io::Result<Option<Incoming>> {
        ROOM.with_borrow_mut(|room| Incoming::receive_in(socket, room))
    }

    fn receive_in(socket: impl AsFd, room: &mut [u8]) -> io::Result<Option<Incoming>> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_FILES + 1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let received = loop {
            let flags = RecvFlags::CMSG_CLOEXEC;
            match recvmsg(&socket, &mut [IoSliceMut::new(room)], &mut ancillary, flags) {
                // What the other side has sent is there though it has left a packet of this side unread; the end comes after it.
                Err(Errno::INTR | Errno::CONNRESET) => {}
                other => break other?,
            }
        };
        let mut files = VecDeque::new();
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                files.extend(descriptors);
            }
        }
        if received.bytes == 0 {
            return Ok(None);
        }
        if received.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
            return Err(torn("a packet is cut off"));
        }
        let mut packet = Incoming { bytes: room[..received.bytes].to_vec(), at: 1, files };
        if packet.bytes[0] == IN_FILE {
            let file = packet.file()?;
            packet.bytes = Mapped::whole(file)?.to_vec();
            packet.at = 0;
        }
        Ok(Some(packet))
    }

    /// The next message; none at the end of the packet.
    pub(crate) fn take<M: DeserializeOwned>(&mut self) -> io::Result<Option<M>> {
        let rest = &self.bytes[self.at..];
        if rest.is_empty() {
            return Ok(None);
        }
        let (message, left) = postcard::take_from_bytes(rest).map_err(io::Error::other)?;
        self.at = self.bytes.len() - left.len();
        Ok(Some(message))
    }

    /// What a function finds in the packet, which is read again from here.
    pub(super) fn peek<T>(&mut self, look: impl FnOnce(&mut Incoming) -> T) -> T {
        let at = self.at;
        let found = look(self);
        self.at = at;
        found
    }

    /// Leaves out the bytes of a message.
    pub(super) fn skip(&mut self, payload: &Payload) -> io::Result<()> {
        if let Payload::Inline(length) = payload {
            self.inline(*length)?;
        }
        Ok(())
    }

    /// The bytes that follow a message directly.
    fn inline(&mut self, length: usize) -> io::Result<&[u8]> {
        let end = self.at.checked_add(length).filter(|end| *end <= self.bytes.len());
        let end = end.ok_or_else(|| torn("the bytes of a message are missing"))?;
        let bytes = &self.bytes[self.at..end];
        self.at = end;
        Ok(bytes)
    }

    /// The bytes of a message.
    pub(crate) fn payload(&mut self, payload: &Payload, borrowed: &Borrowed) -> io::Result<Bytes> {
        match payload {
            Payload::Inline(length) => Ok(Bytes::Own(self.inline(*length)?.to_vec())),
            Payload::File(length) => Ok(Bytes::Mapped(Arc::new(Mapped::new(self.file()?, *length)?))),
            Payload::Place { number, length, is_new, gone } => {
                let file = is_new.then(|| self.file()).transpose()?;
                borrowed.loan(*number, *length, file, gone)
            }
        }
    }

    /// The descriptor at this place after the next one.
    pub(super) fn file_at(&self, place: usize) -> Option<BorrowedFd<'_>> {
        self.files.get(place).map(AsFd::as_fd)
    }

    /// The next descriptor.
    pub(crate) fn file(&mut self) -> io::Result<File> {
        self.files.pop_front().map(File::from).ok_or_else(|| torn("a descriptor is missing"))
    }
}

fn torn(reason: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason)
}
