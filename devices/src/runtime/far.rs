//! The client of a device process.
//!
//! A process that is forked from a client has no connection: [`hold`] marks what the client has, as a generation, and a fork goes on
//! with that. If the device process has ended, values of the earlier one are lost, and new ones are made in a new process.

use super::buffer::{Buffer, Form as BufferForm};
use super::executable::LoadedExecutable;
use super::handle::{Handle, Ticket};
use super::link::{Arrived, Broken, Held, Link};
use super::start::{self, Started};
use crate::memory::{Bytes, file_of};
use crate::opened::Opened;
use crate::pjrt::{CompileOptions, Description, Element, PjrtError, check_length};
use crate::process::packet::{MOST_INLINE, Outgoing};
use crate::process::protocol::{Answer, Generation, Id, Payload, Question, Request};
use crate::process::{MemoryClaim, ProcessReport};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{SystemTime, UNIX_EPOCH};

/// How a client reaches its device process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// The name of the plugin's first device in messages, such as `cuda`.
    pub device: String,
    /// The plugin's library.
    pub plugin: PathBuf,
    /// The program whose subcommand `device` is [`crate::process::main`]; none for a client that starts no process.
    pub program: Option<PathBuf>,
    /// The name of this client in reports, such as `notebook 4711`.
    pub client: String,
    /// How much of the device's memory this client may use.
    pub memory: MemoryClaim,
}

/// What a device process says of its devices.
#[derive(Debug)]
pub(super) struct Facts {
    pub(super) opened: Opened,
    pub(super) version: String,
    pub(super) descriptions: Vec<Description>,
}

/// A client of a device process.
#[derive(Debug)]
pub struct Far {
    route: Route,
    pub(super) facts: Facts,
    current: Mutex<Current>,
    next_id: AtomicU64,
}

/// The present connection.
#[derive(Debug)]
pub(super) struct Current {
    pub(super) link: Arc<Link>,
    /// The number of device processes so far: values of an earlier one are lost.
    pub(super) epoch: u64,
    /// The path of the process' socket.
    path: PathBuf,
}

/// All clients of this process.
static CLIENTS: Mutex<Vec<Weak<Far>>> = Mutex::new(Vec::new());

/// Whether a value was not made, so that a run may have taken variables and not put them back.
pub(super) static HAS_LOST: AtomicBool = AtomicBool::new(false);

static INTERRUPTED: OnceLock<fn() -> bool> = OnceLock::new();

/// Waits for a device end when this function returns `true`, with [`PjrtError::Interrupted`]. Only the first call has an effect.
pub fn interrupt_waits_with(is_interrupted: fn() -> bool) {
    INTERRUPTED.get_or_init(|| is_interrupted);
}

/// Whether the function of [`interrupt_waits_with`] says that the user has interrupted this process; `false` without one.
pub fn interrupted() -> bool {
    INTERRUPTED.get().is_some_and(|is_interrupted| is_interrupted())
}

/// Whether a value on a device was not made since the last call. The run that should have made it may have taken variables, whose values
/// are then lost in this process, and not in the last generation.
pub fn has_lost_values() -> bool {
    HAS_LOST.swap(false, Ordering::Relaxed)
}

fn clients() -> Vec<Arc<Far>> {
    let mut clients = CLIENTS.lock().unwrap_or_else(PoisonError::into_inner);
    clients.retain(|client| client.strong_count() > 0);
    clients.iter().filter_map(Weak::upgrade).collect()
}

/// Calls a function that may fork this process. A fork that goes on as this process has the values that the clients of this process have
/// now. Returns the number of connections that the fork does not have, and what is to be said to the user.
pub fn hold(fork: impl FnOnce()) -> (usize, Vec<String>) {
    let clients = clients();
    let mut currents: Vec<(Arc<Far>, MutexGuard<'_, Current>)> = Vec::new();
    for client in &clients {
        currents.push((client.clone(), client.current()));
    }
    let links: Vec<Arc<Link>> = currents.iter().map(|(_, current)| current.link.clone()).collect();
    let mut locks: Vec<Held<'_>> = links.iter().map(|link| link.hold()).collect();
    let marks: Vec<Option<Mark>> = links.iter().zip(&mut locks).map(|(link, held)| Mark::make(link, held)).collect();
    let own = std::process::id();
    fork();
    if std::process::id() == own {
        return (0, Vec::new());
    }
    drop(locks);
    let mut said = Vec::new();
    for ((client, current), mark) in currents.iter_mut().zip(&marks) {
        said.extend(client.resume(current, mark.as_ref()));
    }
    (links.len(), said)
}

/// A generation, which the device process keeps until this and its copies in forks are dropped.
struct Mark {
    generation: Generation,
    _holder: OwnedFd,
}

impl Mark {
    /// Marks the generation; none if the device process has ended.
    fn make(link: &Link, held: &mut Held<'_>) -> Option<Mark> {
        let flags = SocketFlags::CLOEXEC;
        let pair = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None);
        // Without a mark neither side forgets its places, which this process and its fork would then both use.
        let (holder, other) = pair.inspect_err(|_| link.cut()).ok()?;
        let generation = new_generation();
        // A device process that has ended keeps nothing; the fork learns that when it connects.
        link.mark(held, generation, other).ok()?;
        Some(Mark { generation, _holder: holder })
    }
}

/// A number that no other generation of this user has.
fn new_generation() -> Generation {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    now << 32 | Generation::from(std::process::id())
}

impl Far {
    pub(super) fn open(route: Route) -> Result<Arc<Far>, PjrtError> {
        let started = start::connect(&route)?;
        Ok(Far::new(route, started))
    }

    /// The client of a device process that runs; none if none runs.
    pub(super) fn join(route: Route) -> Option<Arc<Far>> {
        start::join(&route).map(|started| Far::new(route, started))
    }

    fn new(route: Route, started: Started) -> Arc<Far> {
        let (link, facts) = (Link::new(started.socket), started.facts);
        let current = Mutex::new(Current { link, epoch: 0, path: started.path });
        let far = Arc::new(Far { route, facts, current, next_id: AtomicU64::new(1) });
        CLIENTS.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::downgrade(&far));
        far
    }

    pub(super) fn current(&self) -> MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Connects this fork of a client with the values of a generation. Returns what is to be said to the user.
    fn resume(&self, current: &mut Current, mark: Option<&Mark>) -> Option<String> {
        if let Some(mark) = mark
            && let Some(started) = start::join_at(&self.route, current.path.clone(), Some(mark.generation))
            && started.has_resumed
        {
            current.link = Link::new(started.socket);
            return None;
        }
        // The next use starts a new connection.
        current.link.cut();
        current.epoch += 1;
        let device = &self.route.device;
        Some(format!(
            "the values that were on {device} at this state are gone: its device process has ended, or needed the memory"
        ))
    }

    /// The connection and its epoch. Starts a new device process if the last one has ended.
    fn link(&self) -> Result<(Arc<Link>, u64), PjrtError> {
        let mut current = self.current();
        if current.link.is_broken() {
            let started = start::connect(&self.route)?;
            let (link, epoch) = (Link::new(started.socket), current.epoch + 1);
            *current = Current { link, epoch, path: started.path };
        }
        Ok((current.link.clone(), current.epoch))
    }

    /// The connection of an epoch.
    pub(super) fn link_of(&self, epoch: u64) -> Result<Arc<Link>, PjrtError> {
        {
            let current = self.current();
            if current.epoch == epoch && !current.link.is_broken() {
                return Ok(current.link.clone());
            }
        }
        Err(self.lost())
    }

    pub(super) fn lost(&self) -> PjrtError {
        let path = self.current().path.clone();
        PjrtError::Lost { device: self.route.device.clone(), reason: start::ending(&path) }
    }

    pub(super) fn broken(&self, broken: Broken) -> PjrtError {
        match broken {
            Broken::Gone => self.lost(),
            Broken::Interrupted => PjrtError::Interrupted { device: self.route.device.clone() },
            Broken::Garbled(error) => self.garbled(&error),
        }
    }

    pub(super) fn garbled(&self, error: &io::Error) -> PjrtError {
        let device = &self.route.device;
        if error.kind() == io::ErrorKind::OutOfMemory {
            let what = format!("{device}: this process has no memory for an array: {error}; drop some tensors");
            return PjrtError::Mismatch { what };
        }
        PjrtError::Mismatch { what: format!("{device}: a message of the device process cannot be read: {error}") }
    }

    pub(super) fn odd(&self, answer: &Answer) -> PjrtError {
        self.garbled(&io::Error::other(format!("it answers {answer:?}")))
    }

    pub(super) fn handle(self: &Arc<Far>, epoch: u64) -> Handle {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        Handle::new(self.clone(), id, epoch)
    }

    /// Adds a request about values of an epoch.
    pub(super) fn send(&self, epoch: u64, request: &Request) -> Result<(), PjrtError> {
        self.link_of(epoch)?.post(|packet| packet.push(request)).map_err(|broken| self.broken(broken))
    }

    /// Sends a request about values of an epoch at once.
    pub(super) fn send_now(&self, epoch: u64, request: &Request) -> Result<(), PjrtError> {
        self.link_of(epoch)?.send(|packet| packet.push(request)).map_err(|broken| self.broken(broken))
    }

    /// Does something with the connection, and once more with a new device process if the last one has ended meanwhile.
    fn with_link<T>(&self, mut work: impl FnMut(&Link, u64) -> Result<T, Broken>) -> Result<T, PjrtError> {
        let (link, epoch) = self.link()?;
        match work(&link, epoch) {
            Err(Broken::Gone) => {
                let (link, epoch) = self.link()?;
                work(&link, epoch).map_err(|broken| self.broken(broken))
            }
            done => done.map_err(|broken| self.broken(broken)),
        }
    }

    pub(super) fn upload(
        self: &Arc<Far>,
        element: Element,
        dims: &[i64],
        bytes: &[u8],
        devices: Vec<u32>,
    ) -> Result<Vec<Buffer>, PjrtError> {
        check_length(element, dims, bytes)?;
        let no_memory = |error| PjrtError::Mismatch { what: format!("no memory for an array {dims:?}: {error}") };
        let is_large = bytes.len() > MOST_INLINE;
        // A place has one reader. One file serves several devices.
        let file = (is_large && devices.len() > 1).then(|| file_of(bytes)).transpose().map_err(no_memory)?;
        self.with_link(|link, epoch| {
            let upload = |device: &u32| {
                let (handle, device, dims) = (self.handle(epoch), *device, dims.to_vec());
                let place = if is_large && file.is_none() { link.written(bytes)? } else { None };
                let request = |bytes| Request::Upload { buffer: handle.id, device, element, dims, bytes };
                link.post(|packet| match (place, &file) {
                    (Some(place), _) => packet.push_place(place, request),
                    (None, Some(file)) => {
                        packet.push_descriptor(&request(Payload::File(bytes.len())), file.try_clone()?.into())
                    }
                    (None, None) => packet.push_with(bytes, request),
                })?;
                Ok(Buffer(BufferForm::Far(handle)))
            };
            devices.iter().map(upload).collect()
        })
    }

    pub(super) fn compile(
        self: &Arc<Far>,
        module: &[u8],
        options: &CompileOptions,
    ) -> Result<LoadedExecutable, PjrtError> {
        self.program(module, |executable, module| Question::Compile { executable, options: options.clone(), module })
    }

    pub(super) fn load(self: &Arc<Far>, serialized: &[u8]) -> Result<LoadedExecutable, PjrtError> {
        self.program(serialized, |executable, serialized| Question::Load { executable, serialized })
    }

    fn program(
        self: &Arc<Far>,
        bytes: &[u8],
        question: impl Fn(Id, Payload) -> Question,
    ) -> Result<LoadedExecutable, PjrtError> {
        let (handle, Arrived { answer, .. }) = self.with_link(|link, epoch| {
            let handle = self.handle(epoch);
            let ticket =
                link.ask(|packet, ask| packet.push_with(bytes, |payload| ask(question(handle.id, payload))))?;
            Ok((handle, link.wait(ticket)?))
        })?;
        match answer? {
            Answer::Compiled(facts) => Ok(LoadedExecutable::far(handle, facts)),
            other => Err(self.odd(&other)),
        }
    }

    /// Connects to the device process, and starts it, if there is no connection.
    pub(super) fn reach(&self) -> Result<(), PjrtError> {
        let asked = self.with_link(|link, _| {
            let ticket = link.ask(|packet, ask| packet.push(&ask(Question::Report)))?;
            link.wait(ticket)
        });
        asked?.answer.map(drop)
    }

    /// Ends the device process, and returns whether it ran.
    pub(super) fn close(&self) -> io::Result<bool> {
        let path = self.current().path.clone();
        Ok(start::asked(&path, Question::Close)?.is_some())
    }

    /// What the device process holds, if it runs.
    pub(super) fn report(&self) -> io::Result<Option<ProcessReport>> {
        let path = self.current().path.clone();
        start::reported(&path)
    }

    /// The name of this client in reports.
    pub(super) fn name(&self) -> &str {
        &self.route.client
    }

    /// Asks a question that is about no value.
    pub(super) fn ask(&self, question: Question) -> Result<Answer, PjrtError> {
        self.reply_to(question)?.answer
    }

    /// The bytes that answer a question that is about no value.
    pub(super) fn bytes(&self, question: Question) -> Result<Vec<u8>, PjrtError> {
        let Arrived { answer, bytes } = self.reply_to(question)?;
        self.bytes_of(answer?, bytes)
    }

    fn reply_to(&self, question: Question) -> Result<Arrived, PjrtError> {
        let (link, _) = self.link()?;
        let asked = link.ask(|packet, ask| packet.push(&ask(question))).and_then(|ticket| link.wait(ticket));
        asked.map_err(|broken| self.broken(broken))
    }

    pub(super) fn bytes_of(&self, answer: Answer, bytes: io::Result<Bytes>) -> Result<Vec<u8>, PjrtError> {
        match answer {
            Answer::Bytes(_) => Ok(bytes.map_err(|error| self.garbled(&error))?.to_vec()),
            other => Err(self.odd(&other)),
        }
    }

    /// Asks a question about a value of an epoch, and does not wait for the reply.
    pub(super) fn begin(self: &Arc<Far>, epoch: u64, question: Question) -> Result<Ticket, PjrtError> {
        let link = self.link_of(epoch)?;
        let number = link.ask(|packet: &mut Outgoing, ask| packet.push(&ask(question)));
        let number = number.map_err(|broken| self.broken(broken))?;
        Ok(Ticket::new(self.clone(), link, number))
    }
}
