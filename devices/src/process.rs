//! The device process: opens a plugin for all processes of a user, its clients, and outlives each of them.
//!
//! A client's buffers and programs are freed when its connection ends. What a notebook has at the end of a cell is kept as a
//! *generation*, with which a woken snapshot of its process goes on. If the plugin aborts, this process ends, and no client with it.

mod ending;
mod memory;
mod objects;
pub(crate) mod packet;
mod packets;
mod programs;
pub(crate) mod protocol;
mod session;
pub(crate) mod socket;
mod waiting;

pub use protocol::{ClientReport, MemoryClaim, ProcessReport};

use crate::finding::one_line;
use crate::opened::Opened;
use crate::pjrt::{Client, Description, Device, PjrtError, Plugin, Profiler, Value};
use crate::probe::child::describe;
use ending::Ending;
use ferrotune_machine::own;
use memory::Limit;
use objects::Objects;
use programs::Programs;
use protocol::{Generation, Hello, VERSION, Welcome};
use rustix::event::PollFlags;
use rustix::net::sockopt::socket_peercred;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use session::Session;
use socket::Socket;
use std::collections::{HashSet, VecDeque};
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

/// The last argument of a device process that is no child of its starter.
const DETACHED: &str = "--detached";

/// The plugin and its clients.
#[derive(Debug)]
struct Server {
    /// The device's name in messages, such as `cuda`.
    name: String,
    client: Client,
    devices: Vec<Device>,
    opened: Opened,
    descriptions: Vec<Description>,
    programs: Programs,
    /// The bytes of all buffers.
    held: Arc<AtomicU64>,
    limit: Limit,
    sessions: Mutex<Vec<Weak<Session>>>,
    /// The states of notebooks, the oldest first.
    generations: Mutex<VecDeque<Kept>>,
    /// Held while a run on several devices starts: all devices must get such runs in the same order.
    joint_runs: Mutex<()>,
    profiler: Mutex<Option<Profiler>>,
    ending: Ending,
}

/// What a client had at the end of a cell.
#[derive(Debug)]
struct Kept {
    generation: Generation,
    objects: Objects,
}

/// Starts the device process, which is no child of the caller. Standard input is the locked file of the socket's place: the process keeps
/// the lock until clients can connect.
pub fn start() -> ExitCode {
    let mut command = std::process::Command::new(own::PROGRAM);
    match command.args(std::env::args_os().skip(1)).arg(DETACHED).spawn() {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ferrotune device: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Opens the plugin, and serves clients at the path `socket`. Writes its process id to standard output, and a second line once clients can
/// connect: `{"Ok":null}`, or the reason why the plugin does not open.
pub fn main(name: &str, plugin: &Path, socket: &Path) -> ExitCode {
    match run(name, plugin, socket) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ferrotune device: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(name: &str, plugin: &Path, socket: &Path) -> io::Result<()> {
    // A session of its own: neither Ctrl-C in a terminal nor the end of a cell's process group ends this process.
    if rustix::process::getsid(None)? != rustix::process::getpid() {
        rustix::process::setsid()?;
    }
    std::env::set_current_dir("/")?;
    // Each client has connections and places.
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit })?;
    // A search raises its own priority, and its children inherit that.
    if rustix::process::getpriority_process(None)? < 0 {
        rustix::process::setpriority_process(None, 0)?;
    }
    let mut starter = File::from(rustix::io::dup(io::stdout())?);
    // The starter may have ended.
    let _ = writeln!(starter, "{}", std::process::id());
    // What the plugin prints goes to the log.
    rustix::stdio::dup2_stdout(io::stderr())?;
    let is_open = Arc::new(AtomicBool::new(false));
    end_with(starter.try_clone()?, is_open.clone());
    let opened = Server::open(name, plugin).map(Arc::new);
    is_open.store(true, Ordering::SeqCst);
    let listener = opened.as_ref().map(|_| Socket::listen(socket)).map_err(|reason| one_line(reason));
    let (listener, failure) = match listener {
        Ok(listener) => (Some(listener?), Ok(())),
        Err(reason) => (None, Err(reason)),
    };
    let mut line = serde_json::to_vec(&failure)?;
    line.push(b'\n');
    // The starter may have been interrupted.
    let _ = starter.write_all(&line);
    drop(starter);
    // The lock is free from here on.
    rustix::stdio::dup2_stdin(File::open("/dev/null")?)?;
    match (opened, listener) {
        (Ok(server), Some(listener)) => server.serve(&listener),
        _ => Ok(()),
    }
}

/// Ends this process when its starter ends before the plugin is open: a plugin that hangs would keep the lock, and nobody could end it.
fn end_with(starter: File, is_open: Arc<AtomicBool>) {
    std::thread::spawn(move || {
        while !is_open.load(Ordering::SeqCst) {
            // The end of the reader of a pipe is an error of its writer. The starter ends the reading once the plugin is open.
            let has_ended = matches!(packet::wait_for(&starter, PollFlags::empty(), packet::TICK), Ok(true));
            if has_ended && !is_open.load(Ordering::SeqCst) {
                eprintln!("ferrotune device: the process that wanted the device has ended");
                std::process::exit(1);
            }
        }
    });
}

impl Server {
    fn open(name: &str, plugin: &Path) -> Result<Server, String> {
        let text = |error: PjrtError| error.to_string();
        let plugin = Plugin::load(plugin).map_err(text)?;
        let client = plugin.client(&options(name)).map_err(text)?;
        let opened = describe(plugin, &client).map_err(|error| error.to_string())?;
        let devices = client.devices().map_err(text)?;
        let descriptions = devices.iter().map(Device::description).collect::<Result<_, _>>().map_err(text)?;
        let limit = Limit::new(&opened.platform, opened.devices.first().and_then(|device| device.memory_bytes));
        Ok(Server {
            name: name.to_owned(),
            client,
            devices,
            opened,
            descriptions,
            programs: Programs::default(),
            held: Arc::default(),
            limit,
            sessions: Mutex::default(),
            generations: Mutex::default(),
            joint_runs: Mutex::default(),
            profiler: Mutex::default(),
            ending: Ending::new()?,
        })
    }

    fn serve(self: &Arc<Server>, listener: &Socket) -> io::Result<()> {
        while let Some(client) = self.ending.next(self, listener)? {
            let server = self.clone();
            std::thread::spawn(move || {
                if let Err(error) = server.greet(client) {
                    eprintln!("ferrotune device: a client is served no longer: {error}");
                }
                server.ending.client_left();
            });
        }
        self.sessions().iter().filter_map(Weak::upgrade).for_each(|session| session.hang_up());
        Ok(())
    }

    /// Greets a client, and serves it until it leaves.
    fn greet(self: &Arc<Server>, socket: OwnedFd) -> io::Result<()> {
        if socket_peercred(&socket)?.uid != rustix::process::geteuid() {
            let reason = "its device process belongs to another user".to_owned();
            socket::send_json(&socket, &Welcome::Refused { reason })?;
            // With a message that is not read, the refusal would be lost when the socket is closed.
            if packet::wait_for(&socket, PollFlags::IN, packet::TICK)? {
                socket::receive_json::<serde_json::Value>(&socket)?;
            }
            return Ok(());
        }
        let Some(hello) = socket::receive_json::<Hello>(&socket)? else { return Ok(()) };
        if hello.version != VERSION {
            let reason = format!(
                "its device process {} is of another version of Ferrotune and has clients; `%device close` in their notebooks, or kill it",
                std::process::id()
            );
            return socket::send_json(&socket, &Welcome::Refused { reason });
        }
        let resumed = hello.resume.and_then(|generation| self.awaited_objects_of(generation, &hello.name));
        let welcome = Welcome::Ready {
            opened: self.opened.clone(),
            version: self.client.version().unwrap_or_default(),
            descriptions: self.descriptions.clone(),
            has_resumed: resumed.is_some(),
        };
        let budget = self.budget_of(hello.memory);
        let session = Session::new((hello.name, budget), socket, resumed.unwrap_or_default());
        self.sessions().push(Arc::downgrade(&session));
        session.welcome(&welcome)?;
        let served = session.serve(self);
        // Replies fail at once from here on, so that none of them waits while the objects are locked.
        session.hang_up();
        // Threads that wait for the device may have the session longer.
        *session.objects() = Objects::default();
        self.sessions()
            .retain(|known| known.strong_count() > 0 && !std::ptr::eq(known.as_ptr(), Arc::as_ptr(&session)));
        served
    }

    /// The bytes that a client with this claim may use; none for no limit but the device's.
    fn budget_of(&self, claim: MemoryClaim) -> Option<u64> {
        match claim {
            MemoryClaim::Free => None,
            MemoryClaim::Bytes(bytes) => Some(bytes),
            MemoryClaim::Part(parts) => {
                let sessions: Vec<Arc<Session>> = self.sessions().iter().filter_map(Weak::upgrade).collect();
                let with_claims = sessions.iter().filter(|session| session.budget.is_some());
                let theirs: u64 = with_claims.map(|session| session.objects().bytes().0).sum();
                let free = self.limit.free(self.held.load(Ordering::Relaxed))?;
                Some((free + theirs) / parts.max(1))
            }
        }
    }

    fn sessions(&self) -> MutexGuard<'_, Vec<Weak<Session>>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn generations(&self) -> MutexGuard<'_, VecDeque<Kept>> {
        self.generations.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The objects of a generation, whose mark its client may have sent after runs that take long.
    fn awaited_objects_of(&self, generation: Generation, name: &str) -> Option<Objects> {
        loop {
            let is_behind = self
                .sessions()
                .iter()
                .filter_map(Weak::upgrade)
                .any(|session| session.name == name && session.is_behind());
            // What was not to come before is here now.
            let objects = self.objects_of(generation);
            if objects.is_some() || !is_behind {
                return objects;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn objects_of(&self, generation: Generation) -> Option<Objects> {
        let generations = self.generations();
        generations.iter().find(|kept| kept.generation == generation).map(|kept| kept.objects.clone())
    }

    /// Keeps the objects of a generation until all copies of the other end of `holders` are closed.
    fn keep_generation(self: &Arc<Server>, generation: Generation, objects: Objects, holders: File) {
        self.generations().push_back(Kept { generation, objects });
        let server = self.clone();
        std::thread::spawn(move || {
            // Nobody writes there: the read ends when the last holder has closed its end.
            let _ = (&holders).read(&mut [0]);
            let dropped: Vec<Kept> = {
                let mut generations = server.generations();
                let place = generations.iter().position(|kept| kept.generation == generation);
                place.and_then(|place| generations.remove(place)).into_iter().collect()
            };
            drop(dropped);
            server.ending.client_left();
        });
    }

    /// Drops the oldest generation, and returns whether there was one.
    fn drop_oldest_generation(&self) -> bool {
        let oldest = self.generations().pop_front();
        oldest.is_some()
    }

    /// Waits until no other run on several devices is being started.
    fn joint_runs(&self) -> MutexGuard<'_, ()> {
        self.joint_runs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin_profile(&self) -> Result<(), PjrtError> {
        let profiler = self.client.plugin().profile()?;
        *self.profiler.lock().unwrap_or_else(PoisonError::into_inner) = Some(profiler);
        Ok(())
    }

    fn end_profile(&self) -> Result<Vec<u8>, PjrtError> {
        let profiler = self.profiler.lock().unwrap_or_else(PoisonError::into_inner).take();
        profiler.ok_or_else(|| PjrtError::Mismatch { what: "no profile was begun".to_owned() })?.finish()
    }

    /// Ends the process, after this call's reply.
    fn end(&self) {
        self.ending.now();
    }

    fn is_in_use(&self) -> bool {
        // Who only asks, such as `ferrotune doctor`, keeps no process.
        self.sessions().iter().filter_map(Weak::upgrade).any(|session| session.has_name())
            || !self.generations().is_empty()
    }

    fn report(&self) -> ProcessReport {
        let sessions: Vec<Arc<Session>> = self.sessions().iter().filter_map(Weak::upgrade).collect();
        let mut seen = HashSet::new();
        let mut of_clients = 0;
        for session in &sessions {
            let objects = session.objects();
            let new = objects.arrays().filter(|array| seen.insert(Arc::as_ptr(array)));
            of_clients += new.map(|array| array.held.bytes).sum::<u64>();
        }
        let held_bytes = self.held.load(Ordering::Relaxed);
        ProcessReport {
            process: std::process::id(),
            device: self.name.clone(),
            held_bytes,
            free_bytes: self.limit.free(held_bytes),
            clients: sessions.iter().map(|session| session.report()).collect(),
            kept: (self.generations().len(), held_bytes.saturating_sub(of_clients)),
        }
    }
}

/// The options with which the plugin is opened. By default the CUDA plugin takes three quarters of the card at once, though other programs,
/// such as JAX in the same notebook, may need it.
fn options(name: &str) -> Vec<(&'static str, Value)> {
    match name {
        "cuda" | "rocm" => vec![("preallocate", Value::Flag(false))],
        _ => Vec::new(),
    }
}
