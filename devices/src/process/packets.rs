//! The packets of a client, in their order. A client that has gone may have sent runs for minutes: what comes after its last mark is left
//! out, since nobody has the values.

use super::packet::Incoming;
use super::protocol::Request;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, PoisonError, TryLockError};

/// The packets that a client has sent. Their lock is held while one of them is handled.
#[derive(Debug, Default)]
pub(super) struct Packets {
    /// What is left to be handled of a client that has gone.
    left: Mutex<Option<VecDeque<Incoming>>>,
}

impl Packets {
    /// Waits for the next packet, and handles it. Returns whether there was one.
    ///
    /// # Errors
    /// If a packet is not whole, or has no valid message; and the system's errors.
    pub(super) fn next(&self, socket: &OwnedFd, handle: impl FnOnce(Incoming) -> io::Result<()>) -> io::Result<bool> {
        let has_gone = state(socket, None)?.contains(PollFlags::HUP);
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        if has_gone && left.is_none() {
            *left = Some(to_last_mark(socket)?);
        }
        let packet = match &mut *left {
            Some(left) => left.pop_front(),
            None => Incoming::receive(socket)?,
        };
        packet.map(handle).transpose().map(|handled| handled.is_some())
    }

    /// Whether a packet is handled, or waits for that.
    pub(super) fn is_any_left(&self, socket: &OwnedFd) -> bool {
        match self.left.try_lock() {
            // Who cannot ask the system has no wait.
            Ok(_left) => state(socket, Some(&Timespec::default())).is_ok_and(|state| state.contains(PollFlags::IN)),
            Err(TryLockError::WouldBlock) => true,
            Err(TryLockError::Poisoned(_)) => false,
        }
    }
}

/// Waits at most this time, or for ever, until the client has sent something or has gone, and returns which.
fn state(socket: &OwnedFd, limit: Option<&Timespec>) -> io::Result<PollFlags> {
    loop {
        let mut sources = [PollFd::new(socket, PollFlags::IN)];
        match poll(&mut sources, limit) {
            Ok(_) => return Ok(sources[0].revents()),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// The packets that a client that has gone has sent, up to the one with its last mark.
fn to_last_mark(socket: &OwnedFd) -> io::Result<VecDeque<Incoming>> {
    let (mut packets, mut length) = (VecDeque::new(), 0);
    while let Some(mut packet) = Incoming::receive(socket)? {
        let is_marked = has_mark(&mut packet)?;
        packets.push_back(packet);
        if is_marked {
            length = packets.len();
        }
    }
    packets.truncate(length);
    Ok(packets)
}

fn has_mark(packet: &mut Incoming) -> io::Result<bool> {
    packet.peek(|packet| {
        let mut is_found = false;
        while let Some(request) = packet.take::<Request>()? {
            is_found |= matches!(request, Request::Mark { .. });
            if let Some(payload) = request.payload() {
                packet.skip(payload)?;
            }
        }
        Ok(is_found)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::packet::Outgoing;
    use crate::process::protocol::Payload;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    use std::fs::File;

    fn sockets() -> (OwnedFd, OwnedFd) {
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap()
    }

    fn send(socket: &OwnedFd, add: impl FnOnce(&mut Outgoing)) {
        let mut packet = Outgoing::default();
        add(&mut packet);
        packet.send(socket, &|| true).unwrap();
    }

    fn upload(packet: &mut Outgoing, id: u64) {
        let upload = |bytes: Payload| Request::Upload {
            buffer: id,
            device: 0,
            element: crate::pjrt::Element::U8,
            dims: vec![2],
            bytes,
        };
        packet.push_with(&[7, 7], upload).unwrap();
    }

    fn mark(packet: &mut Outgoing) {
        let holder = File::open("/dev/null").unwrap();
        packet.push_descriptor(&Request::Mark { generation: 1 }, holder.into()).unwrap();
    }

    fn ids(packets: &Packets, socket: &OwnedFd) -> Vec<u64> {
        let mut ids = Vec::new();
        let mut handle = |mut packet: Incoming| {
            while let Some(request) = packet.take::<Request>()? {
                request.payload().map_or(Ok(()), |payload| packet.skip(payload))?;
                ids.extend(match request {
                    Request::Upload { buffer, .. } => Some(buffer),
                    _ => None,
                });
            }
            Ok(())
        };
        while packets.next(socket, &mut handle).unwrap() {}
        ids
    }

    #[test]
    fn what_a_client_that_has_gone_sent_after_its_last_mark_is_left_out() {
        let (client, server) = sockets();
        let packets = Packets::default();
        send(&client, |packet| upload(packet, 1));
        send(&client, mark);
        send(&client, |packet| {
            upload(packet, 2);
            mark(packet);
        });
        send(&client, |packet| upload(packet, 3));
        assert!(packets.is_any_left(&server));
        drop(client);
        assert_eq!(ids(&packets, &server), [1, 2]);
        assert!(!packets.next(&server, |_| panic!("all packets were handled")).unwrap());
    }

    #[test]
    fn a_client_without_a_mark_needs_nothing_once_it_has_gone() {
        let (client, server) = sockets();
        let packets = Packets::default();
        send(&client, |packet| upload(packet, 1));
        assert!(packets.next(&server, |_| Ok(())).unwrap());
        assert!(!packets.is_any_left(&server));
        send(&client, |packet| upload(packet, 2));
        drop(client);
        assert!(ids(&packets, &server).is_empty());
    }
}
