//! A connection to a device process: requests in one packet after another, and the replies for those who wait.

use super::far::interrupted;
use crate::memory::places::{Borrowed, Number, Own, Places, Writing};
use crate::memory::{Bytes, Mapped};
use crate::pjrt::PjrtError;
use crate::process::packet::{Incoming, Outgoing, TICK, wait_for};
use crate::process::protocol::{Answer, Generation, Id, Question, Reply, Request, UNASKED};
use rustix::event::PollFlags;
use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

/// A connection to a device process.
#[derive(Debug)]
pub(super) struct Link {
    socket: OwnedFd,
    outbox: Mutex<Outbox>,
    inbox: Mutex<Inbox>,
    /// Signalled when a reply has arrived, or nobody reads the socket any more.
    arrived: Condvar,
    tickets: AtomicU64,
    is_broken: AtomicBool,
    /// Where arrays are that this side sends, and that it gets.
    places: Places,
    borrowed: Borrowed,
    /// The places of the device process that are not read any more. Nothing else is locked while this is.
    returned: Mutex<Vec<Number>>,
}

/// What waits to be sent.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    packet: Outgoing,
    freed: Vec<Id>,
}

#[derive(Debug, Default)]
struct Inbox {
    /// The replies by ticket; none for a reply that has not arrived.
    replies: HashMap<u64, Option<Arrived>>,
    /// Whether a thread reads the socket.
    is_read: bool,
}

/// A reply with its bytes.
#[derive(Debug)]
pub(super) struct Arrived {
    pub(super) answer: Result<Answer, PjrtError>,
    pub(super) bytes: io::Result<Bytes>,
}

/// Why a request was not sent, or no reply came.
pub(super) enum Broken {
    /// The device process has closed the connection.
    Gone,
    /// The user has interrupted the wait.
    Interrupted,
    /// A packet cannot be written or read.
    Garbled(io::Error),
}

impl From<io::Error> for Broken {
    fn from(error: io::Error) -> Broken {
        match error.kind() {
            io::ErrorKind::Interrupted => Broken::Interrupted,
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset | io::ErrorKind::NotConnected => Broken::Gone,
            _ => Broken::Garbled(error),
        }
    }
}

/// The locks of a connection, which nobody else holds meanwhile.
pub(super) struct Held<'a> {
    pub(super) outbox: MutexGuard<'a, Outbox>,
    inbox: MutexGuard<'a, Inbox>,
    places: MutexGuard<'a, Own>,
    borrowed: MutexGuard<'a, HashMap<Number, Arc<Mapped>>>,
    _returned: MutexGuard<'a, Vec<Number>>,
}

impl Link {
    pub(super) fn new(socket: OwnedFd) -> Arc<Link> {
        Arc::new_cyclic(|link: &Weak<Link>| {
            let link = link.clone();
            let give_back = move |place| {
                if let Some(link) = link.upgrade() {
                    link.returned().push(place);
                }
            };
            Link {
                socket,
                outbox: Mutex::default(),
                inbox: Mutex::default(),
                arrived: Condvar::new(),
                tickets: AtomicU64::new(UNASKED + 1),
                is_broken: AtomicBool::new(false),
                places: Places::default(),
                borrowed: Borrowed::new(give_back),
                returned: Mutex::default(),
            }
        })
    }

    pub(super) fn is_broken(&self) -> bool {
        self.is_broken.load(Ordering::Acquire)
    }

    /// Marks the connection as one that is used no more.
    pub(super) fn cut(&self) {
        self.is_broken.store(true, Ordering::Release);
    }

    fn outbox(&self) -> MutexGuard<'_, Outbox> {
        self.outbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn inbox(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn returned(&self) -> MutexGuard<'_, Vec<Number>> {
        self.returned.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Holds all locks of the connection, so that a fork finds them free.
    pub(super) fn hold(&self) -> Held<'_> {
        Held {
            outbox: self.outbox(),
            inbox: self.inbox(),
            places: self.places.lock(),
            borrowed: self.borrowed.lock(),
            _returned: self.returned(),
        }
    }

    /// The outbox with one more request, and with the places that are not read any more before it.
    fn outbox_with(&self, add: impl FnOnce(&mut Outgoing) -> io::Result<()>) -> Result<MutexGuard<'_, Outbox>, Broken> {
        let mut outbox = self.outbox();
        let returned = std::mem::take(&mut *self.returned());
        outbox.post(returned, add)?;
        Ok(outbox)
    }

    /// Adds a request, which is sent with the next one that is sent at once.
    pub(super) fn post(&self, add: impl FnOnce(&mut Outgoing) -> io::Result<()>) -> Result<(), Broken> {
        let mut outbox = self.outbox_with(add)?;
        if outbox.packet.is_full() { self.flush(&mut outbox) } else { self.check() }
    }

    /// Adds a request, and sends it at once.
    pub(super) fn send(&self, add: impl FnOnce(&mut Outgoing) -> io::Result<()>) -> Result<(), Broken> {
        let mut outbox = self.outbox_with(add)?;
        self.flush(&mut outbox)
    }

    /// Forgets an object of the client.
    pub(super) fn free(&self, id: Id) {
        self.outbox().freed.push(id);
    }

    fn check(&self) -> Result<(), Broken> {
        if self.is_broken() { Err(Broken::Gone) } else { Ok(()) }
    }

    fn flush(&self, outbox: &mut Outbox) -> Result<(), Broken> {
        self.check()?;
        let sent = outbox.packet.send(&self.socket, &interrupted).map_err(Broken::from);
        if !matches!(sent, Ok(()) | Err(Broken::Interrupted)) {
            self.cut();
        }
        sent
    }

    /// Sends the generation's mark with the lock held.
    pub(super) fn mark(&self, held: &mut Held<'_>, generation: Generation, holders: OwnedFd) -> Result<(), Broken> {
        let posted =
            held.outbox.post(Vec::new(), |packet| packet.push_descriptor(&Request::Mark { generation }, holders));
        posted.inspect_err(|_| self.cut())?;
        // A process that sleeps keeps no places, and none is mapped that has an array of the generation. What is sent later comes after
        // the mark, also if the mark itself has to wait.
        held.places.forget();
        // A reply that has not arrived may be in a place that the device process had before the mark.
        if held.inbox.replies.values().all(Option::is_some) {
            held.borrowed.clear();
        }
        self.flush(&mut held.outbox)
    }

    /// Asks a question, and returns the ticket of its reply.
    pub(super) fn ask(
        &self,
        add: impl FnOnce(&mut Outgoing, &dyn Fn(Question) -> Request) -> io::Result<()>,
    ) -> Result<u64, Broken> {
        let ticket = self.tickets.fetch_add(1, Ordering::Relaxed);
        self.inbox().replies.insert(ticket, None);
        let sent = self.send(|packet| add(packet, &|question| Request::Ask { ticket, question }));
        sent.inspect_err(|_| self.forget(ticket)).map(|()| ticket)
    }

    /// Waits for no reply any more.
    pub(super) fn forget(&self, ticket: u64) {
        self.inbox().replies.remove(&ticket);
    }

    /// Takes what has arrived, and does not wait.
    fn take_all(&self) -> Result<MutexGuard<'_, Inbox>, Broken> {
        let mut inbox = self.inbox();
        if !inbox.is_read {
            while !self.is_broken() && wait_for(&self.socket, PollFlags::IN, Duration::ZERO)? {
                self.take(&mut inbox)?;
            }
        }
        self.check()?;
        Ok(inbox)
    }

    /// A place with these bytes; none where the places that are in use leave no memory for it.
    pub(super) fn written(&self, bytes: &[u8]) -> Result<Option<Writing>, Broken> {
        // The device process may have returned a place.
        drop(self.take_all()?);
        let mut room = self.places.room(bytes.len())?;
        if let Some(room) = &mut room {
            room.copy_from_slice(bytes);
        }
        Ok(room)
    }

    /// Whether the reply has arrived.
    pub(super) fn has_arrived(&self, ticket: u64) -> Result<bool, Broken> {
        let inbox = self.take_all()?;
        Ok(matches!(inbox.replies.get(&ticket), Some(Some(_))))
    }

    /// Waits for the reply.
    pub(super) fn wait(&self, ticket: u64) -> Result<Arrived, Broken> {
        let mut inbox = self.inbox();
        loop {
            if let Some(arrived) = inbox.replies.get_mut(&ticket).and_then(Option::take) {
                inbox.replies.remove(&ticket);
                return Ok(arrived);
            }
            if self.is_broken() || interrupted() {
                inbox.replies.remove(&ticket);
                return Err(if self.is_broken() { Broken::Gone } else { Broken::Interrupted });
            }
            if inbox.is_read {
                inbox = self.arrived.wait_timeout(inbox, TICK).unwrap_or_else(PoisonError::into_inner).0;
                continue;
            }
            // This thread reads for all that wait.
            inbox.is_read = true;
            drop(inbox);
            let readable = wait_for(&self.socket, PollFlags::IN, TICK);
            inbox = self.inbox();
            inbox.is_read = false;
            let taken = match readable {
                Ok(true) => self.take(&mut inbox),
                Ok(false) => Ok(()),
                Err(error) => Err(error.into()),
            };
            self.arrived.notify_all();
            if let Err(broken) = taken {
                inbox.replies.remove(&ticket);
                return Err(broken);
            }
        }
    }

    /// Reads a packet, and keeps its reply if somebody waits for it.
    fn take(&self, inbox: &mut Inbox) -> Result<(), Broken> {
        let received = Incoming::receive(&self.socket).and_then(|packet| {
            let Some(mut packet) = packet else { return Ok(None) };
            Ok(packet.take::<Reply>()?.map(|reply| (reply, packet)))
        });
        match received {
            Ok(Some((Reply { ticket: UNASKED, answer }, _))) => {
                if let Ok(Answer::Returned(place)) = answer {
                    self.places.returned(place);
                }
                Ok(())
            }
            Ok(Some((Reply { ticket, answer }, mut packet))) => {
                let payload = answer.as_ref().ok().and_then(Answer::payload);
                let bytes = payload.map_or(Ok(Bytes::Own(Vec::new())), |bytes| packet.payload(bytes, &self.borrowed));
                // Where nobody waits any more, the bytes' place goes back.
                if let Some(place) = inbox.replies.get_mut(&ticket) {
                    *place = Some(Arrived { answer, bytes });
                }
                Ok(())
            }
            Ok(None) => {
                self.cut();
                Ok(())
            }
            Err(error) => {
                self.cut();
                Err(error.into())
            }
        }
    }
}

impl Outbox {
    fn post(&mut self, returned: Vec<Number>, add: impl FnOnce(&mut Outgoing) -> io::Result<()>) -> io::Result<()> {
        if !self.freed.is_empty() {
            self.packet.push(&Request::Free { ids: std::mem::take(&mut self.freed) })?;
        }
        if !returned.is_empty() {
            self.packet.push(&Request::Return { places: returned })?;
        }
        add(&mut self.packet)
    }
}
