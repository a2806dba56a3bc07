//! Finds the device process of a plugin, or starts it.

use super::far::{Facts, Route, interrupted};
use crate::opened::identity;
use crate::pjrt::PjrtError;
use crate::process::packet::{Incoming, Outgoing, TICK, wait_for};
use crate::process::protocol::{Answer, Generation, Hello, Question, Reply, Request, UNASKED, VERSION, Welcome};
use crate::process::socket::{Lock, Place, receive_json, send_json};
use crate::process::{MemoryClaim, ProcessReport};
use ferrotune_machine::child::{large_pages, quiet_drivers};
use ferrotune_machine::handle::Handle;
use rustix::event::PollFlags;
use rustix::net::sockopt::socket_peercred;
use rustix::process::{Pid, Signal};
use sha2::{Digest as _, Sha256};
use std::io::{self, BufRead as _, BufReader};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// The variable that marks the processes of a trial; `ferrotune-space` has its name, too.
const TRIAL_VARIABLE: &str = "FERROTUNE_TRIAL";

/// The beginning of the names of sockets.
const SOCKET_PREFIX: &str = "device-";

/// The longest time in which a plugin opens: a TPU takes several seconds, a slice of many hosts longer.
const DEADLINE: Duration = Duration::from_secs(120);

/// The beginnings of the names of variables that plugins read when they open. Clients that differ in these have different processes.
const READ_BY_PLUGINS: [&str; 10] =
    ["XLA_", "TPU_", "LIBTPU_", "CUDA_", "NVIDIA_", "NCCL_", "ROCR_", "HIP_", "LD_LIBRARY_PATH", "FERROTUNE_PJRT_"];

/// A client's connection to a device process.
pub(super) struct Started {
    pub(super) socket: OwnedFd,
    pub(super) facts: Facts,
    /// Whether the values of the generation that was asked for are there.
    pub(super) has_resumed: bool,
    /// The path of the process' socket.
    pub(super) path: PathBuf,
}

/// Connects to the device process of a route. Starts it if it does not run.
///
/// # Errors
/// If the process cannot be started, the plugin does not open, or the process does not serve this client.
pub(super) fn connect(route: &Route) -> Result<Started, PjrtError> {
    let failed = |reason: String| PjrtError::NoProcess { device: route.device.clone(), reason };
    let system = |error: io::Error| failed(format!("its device process cannot be reached: {error}"));
    let path = path(route);
    let place = Place::of(&path).map_err(system)?;
    let interrupted = || PjrtError::Interrupted { device: route.device.clone() };
    let lock = lock(&place).map_err(system)?.ok_or_else(interrupted)?;
    let socket = match place.connect().map_err(system)? {
        Some(socket) => socket,
        None => {
            let program = route.program.as_deref().ok_or_else(|| failed(ending(&path)))?;
            let kept = Starting::new(program, route, &path, &place, lock).map_err(system)?;
            kept.wait(&place).map_err(|ended| ended.map_or_else(interrupted, failed))?;
            place.connect().map_err(system)?.ok_or_else(|| failed(ending(&path)))?
        }
    };
    let greeted = greet(&hello(route, None), path, socket, Duration::MAX).map_err(|error| match error.kind() {
        io::ErrorKind::Interrupted => interrupted(),
        _ => system(error),
    });
    greeted?.map_err(failed)
}

/// Connects to the device process that a new client of this route would have; none if it does not run.
pub(super) fn join(route: &Route) -> Option<Started> {
    join_at(route, path(route), None)
}

/// Connects to the device process with this socket; none if it does not run.
pub(super) fn join_at(route: &Route, path: PathBuf, resume: Option<Generation>) -> Option<Started> {
    let place = Place::of(&path).ok()?;
    let socket = place.connect().ok()??;
    greet(&hello(route, resume), path, socket, Duration::MAX).ok()?.ok()
}

/// Waits for the lock of a place; none if the user has interrupted the wait.
fn lock(place: &Place) -> io::Result<Option<Lock>> {
    let begin = Instant::now();
    loop {
        if let Some(lock) = place.try_lock()? {
            return Ok(Some(lock));
        }
        if interrupted() {
            return Ok(None);
        }
        if begin.elapsed() > 2 * DEADLINE {
            let seconds = begin.elapsed().as_secs();
            return Err(io::Error::other(format!(
                "another process has been opening it for {seconds} s; end that process"
            )));
        }
        // Who holds the lock starts the process or connects to it.
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn hello(route: &Route, resume: Option<Generation>) -> Hello {
    Hello { version: VERSION, name: route.client.clone(), resume, memory: route.memory }
}

/// Greets the device process, and waits at most this time for its answer: the values of a generation may come after runs that take long.
fn greet(hello: &Hello, path: PathBuf, socket: OwnedFd, patience: Duration) -> io::Result<Result<Started, String>> {
    if socket_peercred(&socket)?.uid != rustix::process::geteuid() {
        return Ok(Err("another user listens at the socket of its device process".to_owned()));
    }
    send_json(&socket, hello)?;
    await_packet(&socket, patience)?;
    Ok(match receive_json::<Welcome>(&socket)? {
        Some(Welcome::Ready { opened, version, descriptions, has_resumed }) => {
            Ok(Started { socket, facts: Facts { opened, version, descriptions }, has_resumed, path })
        }
        Some(Welcome::Refused { reason }) => Err(reason),
        None => Err(ending(&path)),
    })
}

/// Waits at most this time for a packet.
///
/// # Errors
/// [`io::ErrorKind::Interrupted`] if the user has interrupted the wait, [`io::ErrorKind::WouldBlock`] if it was too long.
fn await_packet(socket: &OwnedFd, patience: Duration) -> io::Result<()> {
    let begin = Instant::now();
    while !wait_for(socket, PollFlags::IN, TICK)? {
        if interrupted() {
            return Err(io::ErrorKind::Interrupted.into());
        }
        if begin.elapsed() > patience {
            return Err(io::ErrorKind::WouldBlock.into());
        }
    }
    Ok(())
}

/// How the device process with this socket has ended, on one line.
pub(super) fn ending(path: &Path) -> String {
    let words = Place::of(path).map(|place| place.last_words()).unwrap_or_default();
    let words = if words.is_empty() { words } else { format!(" ({words})") };
    format!("its device process has ended{words}")
}

/// A device process that opens its plugin.
struct Starting {
    /// The process; none if it has ended.
    process: Option<Handle>,
    line: BufReader<ChildStdout>,
}

impl Starting {
    /// Starts the process, which has the lock until its socket is there.
    fn new(program: &Path, route: &Route, path: &Path, place: &Place, lock: Lock) -> io::Result<Starting> {
        let mut command = Command::new(program);
        command.arg("device").arg(&route.device).arg(real(&route.plugin)).arg(path);
        // Who cleans up after a trial ends all processes with this variable.
        command.env_remove(TRIAL_VARIABLE);
        quiet_drivers(&mut command);
        large_pages(&mut command);
        let mut child = command.stdin(lock.into_file()).stdout(Stdio::piped()).stderr(place.log()?).spawn()?;
        let mut line = BufReader::new(child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?);
        // The child starts the device process and ends, so that the process, which says its number first, is no child of this one.
        let mut number = String::new();
        line.read_line(&mut number)?;
        child.wait()?;
        let pid = number.trim().parse().ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| io::Error::other(format!("{} gave no process", program.display())))?;
        Ok(Starting { process: Handle::open(pid)?, line })
    }

    /// Waits until clients can connect.
    ///
    /// # Errors
    /// The reason why they cannot; none if the user has interrupted the wait, which ends the process.
    fn wait(mut self, place: &Place) -> Result<(), Option<String>> {
        let begin = Instant::now();
        let system = |error: io::Error| Some(format!("its device process cannot be reached: {error}"));
        loop {
            if !self.line.buffer().is_empty() || wait_for(self.line.get_ref(), PollFlags::IN, TICK).map_err(system)? {
                break;
            }
            if interrupted() {
                // A plugin may hang, and its process has the lock.
                self.kill();
                return Err(None);
            }
            if begin.elapsed() > DEADLINE {
                let words = place.last_words();
                self.kill();
                let seconds = DEADLINE.as_secs();
                return Err(Some(format!(
                    "the plugin did not open within {seconds} s; is the device in use by another process? {words}"
                )));
            }
        }
        let mut line = String::new();
        self.line.read_line(&mut line).map_err(system)?;
        match serde_json::from_str::<Result<(), String>>(&line) {
            Ok(opened) => opened.map_err(Some),
            Err(_) => Err(Some(format!("the plugin has ended its device process: {}", place.last_words()))),
        }
    }

    fn kill(&self) {
        if let Some(process) = &self.process
            && let Err(error) = process.signal(Signal::KILL)
        {
            eprintln!("ferrotune: cannot end a device process that does not answer: {error}");
        }
    }
}

/// The canonical path of a library; the device process has another working directory.
fn real(plugin: &Path) -> PathBuf {
    plugin.canonicalize().unwrap_or_else(|_| plugin.to_owned())
}

/// The path of the socket for a route.
pub(super) fn path(route: &Route) -> PathBuf {
    let mut hasher = Sha256::new();
    hasher.update(identity(&real(&route.plugin)));
    let mut variables: Vec<_> = std::env::vars_os().collect();
    variables.retain(|(name, _)| READ_BY_PLUGINS.iter().any(|start| name.as_bytes().starts_with(start.as_bytes())));
    // Cells and programs have different ones, and they change nothing that is computed.
    variables.retain(|(name, _)| !name.as_bytes().ends_with(b"_LOG_LEVEL"));
    variables.sort();
    for (name, value) in variables {
        hasher.update(name.as_bytes());
        hasher.update(b"=");
        hasher.update(value.as_bytes());
        hasher.update([0]);
    }
    let hash: String = hasher.finalize()[..8].iter().map(|byte| format!("{byte:02x}")).collect();
    folder().join(format!("{SOCKET_PREFIX}{hash}"))
}

/// The folder of this user's device processes.
fn folder() -> PathBuf {
    let runtime = dirs::runtime_dir().filter(|folder| folder.is_dir()).map(|folder| folder.join("ferrotune"));
    let cached = || dirs::cache_dir().map(|folder| folder.join("ferrotune/devices"));
    let temporary = || std::env::temp_dir().join(format!("ferrotune-{}", rustix::process::geteuid().as_raw()));
    runtime.or_else(cached).unwrap_or_else(temporary)
}

/// The paths of the sockets of this user's device processes, of which some may have ended.
pub(super) fn sockets() -> io::Result<Vec<PathBuf>> {
    let entries = match std::fs::read_dir(folder()) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut paths = Vec::new();
    for entry in entries {
        let entry = entry?;
        let is_ours = entry.file_name().as_bytes().starts_with(SOCKET_PREFIX.as_bytes());
        if is_ours && entry.file_type()?.is_socket() {
            paths.push(entry.path());
        }
    }
    paths.sort();
    Ok(paths)
}

/// Asks the device process with this socket a question; none if it does not run.
///
/// # Errors
/// If the process does not answer.
pub(super) fn asked(path: &Path, question: Question) -> io::Result<Option<Answer>> {
    let place = Place::of(path)?;
    let Some(socket) = place.connect()? else { return Ok(None) };
    match answer_of(path, socket, question) {
        Ok(answer) => Ok(answer),
        // It has ended meanwhile.
        Err(_) if place.connect()?.is_none() => Ok(None),
        Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
            Err(io::Error::other("the device process does not answer"))
        }
        Err(error) => Err(error),
    }
}

fn answer_of(path: &Path, socket: OwnedFd, question: Question) -> io::Result<Option<Answer>> {
    // Who only asks has no name, and is in no report.
    let hello = Hello { version: VERSION, name: String::new(), resume: None, memory: MemoryClaim::Free };
    let socket = greet(&hello, path.to_owned(), socket, 100 * TICK)?.map_err(io::Error::other)?.socket;
    let mut packet = Outgoing::default();
    packet.push(&Request::Ask { ticket: UNASKED + 1, question })?;
    packet.send(&socket, &interrupted)?;
    await_packet(&socket, 100 * TICK)?;
    let reply = Incoming::receive(&socket)?.map(|mut packet| packet.take::<Reply>()).transpose()?.flatten();
    let Some(Reply { answer, .. }) = reply else { return Ok(None) };
    answer.map(Some).map_err(io::Error::other)
}

/// Whether a device process listens at this socket.
pub(super) fn listens(path: &Path) -> io::Result<bool> {
    Ok(Place::of(path)?.connect()?.is_some())
}

/// What the device process with this socket holds; none if it does not run.
///
/// # Errors
/// If the process does not answer.
pub(super) fn reported(path: &Path) -> io::Result<Option<ProcessReport>> {
    match asked(path, Question::Report)? {
        Some(Answer::Report(report)) => Ok(Some(report)),
        Some(other) => Err(io::Error::other(format!("the device process answers {other:?}"))),
        None => Ok(None),
    }
}
