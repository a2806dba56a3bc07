//! The packets of a client, in their order. A client that has gone may have sent runs for minutes: what comes after the last mark with a
//! holder is left out, since nobody has the values.

use super::packet::Incoming;
use super::protocol::Request;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Mutex, PoisonError, TryLockError};
use std::time::{Duration, Instant};

/// The time for a request from which on the client may have gone meanwhile: a run may wait for those before it.
const LONG: Duration = Duration::from_millis(1);

/// The packets that a client has sent.
#[derive(Debug, Default)]
pub(super) struct Packets {
    /// Held while a packet is handled.
    at_work: Mutex<()>,
}

impl Packets {
    /// Handles the requests in their order until the client closes the connection.
    ///
    /// # Errors
    /// If a packet is not whole, or has no valid message; and the system's errors.
    pub(super) fn handle_all(
        &self,
        socket: &OwnedFd,
        mut handle: impl FnMut(Request, &mut Incoming) -> io::Result<()>,
    ) -> io::Result<()> {
        // What is left of a client that has gone.
        let mut left: Option<VecDeque<Incoming>> = None;
        loop {
            let mut has_gone = has_gone(socket, None)?;
            let _at_work = self.at_work.lock().unwrap_or_else(PoisonError::into_inner);
            if has_gone && left.is_none() {
                left = Some(all(socket));
            }
            let packet = match &mut left {
                Some(left) => left.pop_front(),
                None => Incoming::receive(socket)?,
            };
            let Some(mut packet) = packet else { return Ok(()) };
            loop {
                if has_gone && !is_needed(&mut packet, left.get_or_insert_with(|| all(socket))) {
                    return Ok(());
                }
                let Some(request) = packet.take::<Request>()? else { break };
                let begun = Instant::now();
                handle(request, &mut packet)?;
                has_gone =
                    left.is_some() || begun.elapsed() > LONG && self::has_gone(socket, Some(&Timespec::default()))?;
            }
        }
    }

    /// Whether a packet is handled, or waits for that.
    pub(super) fn is_any_left(&self, socket: &OwnedFd) -> bool {
        match self.at_work.try_lock() {
            // Who cannot ask the system has no wait.
            Ok(_idle) => state(socket, Some(&Timespec::default())).is_ok_and(|state| state.contains(PollFlags::IN)),
            Err(TryLockError::WouldBlock) => true,
            Err(TryLockError::Poisoned(_)) => false,
        }
    }
}

/// Waits at most this time, or for ever, until the other side has sent something or has gone, and returns whether it has gone.
fn has_gone(socket: impl AsFd, limit: Option<&Timespec>) -> io::Result<bool> {
    Ok(state(socket, limit)?.contains(PollFlags::HUP))
}

fn state(socket: impl AsFd, limit: Option<&Timespec>) -> io::Result<PollFlags> {
    loop {
        let mut sources = [PollFd::new(&socket, PollFlags::IN)];
        match poll(&mut sources, limit) {
            Ok(_) => return Ok(sources[0].revents()),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// The packets that a client that has gone has sent. One that is not whole ends them.
fn all(socket: &OwnedFd) -> VecDeque<Incoming> {
    let mut packets = VecDeque::new();
    loop {
        match Incoming::receive(socket) {
            Ok(Some(packet)) => packets.push_back(packet),
            Ok(None) => return packets,
            Err(error) => {
                eprintln!("ferrotune device: the last packets of a client that has gone are lost: {error}");
                return packets;
            }
        }
    }
}

/// Whether the rest of a packet, or one of those after it, has a mark whose generation somebody holds.
fn is_needed(packet: &mut Incoming, after: &mut VecDeque<Incoming>) -> bool {
    std::iter::once(packet).chain(after).any(has_held_mark)
}

/// A packet that is not whole has no further mark.
fn has_held_mark(packet: &mut Incoming) -> bool {
    packet.peek(|packet| {
        let mut files = 0;
        while let Ok(Some(request)) = packet.take::<Request>() {
            if let Request::Mark { .. } = request {
                let holders = packet
                    .file_at(files)
                    .is_some_and(|holders| !has_gone(holders, Some(&Timespec::default())).unwrap_or(true));
                if holders {
                    return true;
                }
                files += 1;
            }
            if let Some(payload) = request.payload() {
                files += usize::from(payload.has_file());
                if packet.skip(payload).is_err() {
                    return false;
                }
            }
        }
        false
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::packet::Outgoing;
    use crate::process::protocol::Payload;
    use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, socketpair};

    fn sockets() -> (OwnedFd, OwnedFd) {
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap()
    }

    fn send(socket: &OwnedFd, add: impl FnOnce(&mut Outgoing)) {
        let mut packet = Outgoing::default();
        add(&mut packet);
        packet.send(socket, &|| true).unwrap();
    }

    fn upload(packet: &mut Outgoing, id: u64, bytes: usize) {
        let upload = |bytes: Payload| Request::Upload {
            buffer: id,
            device: 0,
            element: crate::pjrt::Element::U8,
            dims: vec![2],
            bytes,
        };
        packet.push_with(&vec![7; bytes], upload).unwrap();
    }

    /// Adds a mark, and returns its holder.
    fn mark(packet: &mut Outgoing) -> OwnedFd {
        let (holder, other) = sockets();
        packet.push_descriptor(&Request::Mark { generation: 1 }, other).unwrap();
        holder
    }

    /// The ids of the uploads that are handled. `during` is called with each of them.
    fn ids(socket: &OwnedFd, mut during: impl FnMut(u64)) -> Vec<u64> {
        let mut ids = Vec::new();
        let handled = Packets::default().handle_all(socket, |request, packet| {
            request.payload().map_or(Ok(()), |payload| packet.skip(payload))?;
            match request {
                Request::Upload { buffer, .. } => {
                    ids.push(buffer);
                    during(buffer);
                }
                Request::Mark { .. } => drop(packet.file()?),
                _ => {}
            }
            Ok(())
        });
        handled.unwrap();
        ids
    }

    #[test]
    fn what_a_client_that_has_gone_sent_after_its_last_held_mark_is_left_out() {
        let (client, server) = sockets();
        let mut holders = Vec::new();
        send(&client, |packet| {
            upload(packet, 1, 2);
            upload(packet, 2, 1 << 20);
            holders.push(mark(packet));
        });
        send(&client, |packet| upload(packet, 3, 2));
        send(&client, |packet| {
            upload(packet, 4, 2);
            holders.push(mark(packet));
            upload(packet, 5, 2);
        });
        send(&client, |packet| {
            upload(packet, 6, 2);
            drop(mark(packet));
        });
        let packets = Packets::default();
        assert!(packets.is_any_left(&server));
        drop(client);
        assert_eq!(ids(&server, |_| {}), [1, 2, 3, 4]);
        assert_eq!(ids(&server, |_| {}), [] as [u64; 0]);
    }

    #[test]
    fn a_client_that_goes_while_a_request_takes_long_needs_the_others_no_more() {
        let (client, server) = sockets();
        send(&client, |packet| (1..100).for_each(|id| upload(packet, id, 2)));
        let mut client = Some(client);
        let handled = ids(&server, |id| {
            if id == 3 {
                drop(client.take());
                std::thread::sleep(2 * LONG);
            }
        });
        assert_eq!(handled, [1, 2, 3]);
    }

    #[test]
    fn a_mark_is_found_though_the_client_has_not_read_all_replies() {
        let (client, server) = sockets();
        send(&server, |packet| upload(packet, 7, 2));
        send(&client, |packet| upload(packet, 1, 2));
        let mut holder = None;
        send(&client, |packet| holder = Some(mark(packet)));
        send(&client, |packet| upload(packet, 2, 2));
        drop(client);
        assert_eq!(ids(&server, |_| {}), [1]);
        drop(holder);
    }

    #[test]
    fn a_packet_that_is_not_whole_costs_no_mark_before_it() {
        let (client, server) = sockets();
        send(&client, |packet| upload(packet, 1, 2));
        let mut holder = None;
        send(&client, |packet| holder = Some(mark(packet)));
        rustix::net::send(&client, &[0, 255, 255], SendFlags::empty()).unwrap();
        drop(client);
        assert_eq!(ids(&server, |_| {}), [1]);
        drop(holder);
    }
}
