//! The cell supervisor: starts the process in which cells run, and stands between it, evcxr and the kernel.
//!
//! evcxr speaks to it, through a relay, as to its own runtime. Everything that a cell prints or shows goes through here
//! in the order in which it was made, as frames, to the kernel. One thread and one `poll`: whatever a cell does, the
//! supervisor goes on, and it decides which process holds the variables.

mod cells;
mod descriptors;
mod markers;
mod memory;
mod output;
mod process;
mod relay;
mod snapshot;
mod snapshots;
mod streams;
mod succession;

pub(crate) use process::run as run_cells;
pub(crate) use relay::run as run_relay;

use anyhow::{Context, Result};
use cells::{CellProcess, Streams};
use ferrotune_link::{
    Answer, CellEnding, KernelFrame, MemoryReport, SnapshotKey, SupervisorOrder, SupervisorReply, SupervisorRequest,
    wire,
};
use markers::Markers;
use memory::Watch;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, Signal};
use snapshots::{Snapshot, Snapshots};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use streams::{Utf8, read_available, take_line};

/// Environment variable with the path of the kernel's socket.
pub(crate) const KERNEL_VARIABLE: &str = "FERROTUNE_KERNEL";

/// Environment variable with the process id of the supervisor, without which a cell process does not live on.
const SUPERVISOR_VARIABLE: &str = "FERROTUNE_SUPERVISOR";

/// Environment variable with the path of the socket at which sleeping copies report.
const SNAPSHOTS_VARIABLE: &str = "FERROTUNE_SNAPSHOTS";

/// Name of the socket for evcxr, beside the kernel's.
const RELAY_SOCKET: &str = "evcxr";

/// How long a cell may take to stop when it is asked to, before it is ended.
const GRACE: Duration = Duration::from_millis(1500);

/// How often it is asked.
const ASK_AGAIN: Duration = Duration::from_millis(100);

/// How long a snapshot may take to stand in for its process.
const WAKING: Duration = Duration::from_secs(5);

/// A cell that prints or shows more has to wait, as at a terminal: what front ends cannot take must not fill the memory.
/// One burst of a second's worth passes at once.
const OUTPUT_BYTES_PER_SECOND: f64 = 4e6;

/// How long after a cell the memory of the snapshots is looked at, so that quick cells do not wait for it.
const MEASURE_AFTER: Duration = Duration::from_millis(500);

/// Supervises the processes of the cells until the kernel has ended.
pub(crate) fn run(prelude: &Path) -> Result<ExitCode> {
    let kernel_path = std::env::var_os(KERNEL_VARIABLE).with_context(|| format!("{KERNEL_VARIABLE} is not set"))?;
    let kernel = UnixStream::connect(&kernel_path).context("cannot reach the kernel")?;
    // A snapshot whose parent has died becomes a child of this process.
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    // Beside the kernel's own socket, in the folder that the kernel deletes.
    let place = |name: &str| Path::new(&kernel_path).with_file_name(name);
    let own = std::process::id();
    let places = Places {
        prelude: prelude.to_owned(),
        link: place(&format!("cell-{own}")),
        snapshots: place(&format!("snapshots-{own}")),
    };
    let relay = place(RELAY_SOCKET);
    // Where an earlier supervisor was killed, its socket is still there.
    if relay.exists() {
        std::fs::remove_file(&relay)?;
    }
    let listeners =
        Listeners { relay: listen(&relay)?, link: listen(&places.link)?, snapshots: listen(&places.snapshots)? };
    Supervisor::start(places, listeners, kernel)?.serve()
}

fn listen(path: &Path) -> Result<UnixListener> {
    let listener = UnixListener::bind(path).with_context(|| format!("cannot listen at {}", path.display()))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// What is needed to start a process of cells.
struct Places {
    prelude: PathBuf,
    link: PathBuf,
    snapshots: PathBuf,
}

struct Listeners {
    relay: UnixListener,
    link: UnixListener,
    snapshots: UnixListener,
}

struct Supervisor {
    places: Places,
    listeners: Listeners,
    /// The process that has the variables.
    cells: CellProcess,
    streams: Streams,
    control_bytes: Vec<u8>,
    snapshots: Snapshots,
    /// The names of the threads that the copy which has just woken is without.
    woken: Option<Vec<String>>,
    /// The process has given back what it had freed.
    trimmed: bool,
    /// A name for the next copy that is made.
    name_next: Option<String>,
    markers: Markers,
    stdout_text: Utf8,
    stderr_text: Utf8,
    last_error: String,
    kernel: UnixStream,
    kernel_bytes: Vec<u8>,
    kernel_gone: bool,
    links: Vec<CellConnection>,
    /// The link whose frame the kernel has yet to answer.
    waiting: Option<usize>,
    next_link: usize,
    relay: Option<UnixStream>,
    relay_bytes: Vec<u8>,
    /// evcxr will connect anew, and means the same variables.
    relay_expected: bool,
    /// The process has run a cell.
    used: bool,
    /// How many bytes may be passed on now; below 0, what the cell gives is left alone until it has grown again.
    allowance: f64,
    allowed_at: Instant,
    running: bool,
    /// A panic or a `?` has ended the running cell.
    failed: bool,
    /// The cell has ended, and evcxr hears of it once there is a copy of what it has left.
    held: bool,
    /// The variables for which the cell was not run: their types have been defined anew.
    changed: Vec<String>,
    /// The user's cell whose first evaluation is to come.
    cell: Option<u64>,
    /// The user's cell that can be undone with the copy made before it.
    undo: Option<u64>,
    /// evcxr's next cell is not to be run.
    skip: bool,
    /// The user's first cell has come.
    begun: bool,
    /// The user has stopped the cell that is still being compiled.
    cancelled: bool,
    kill_at: Option<Instant>,
    /// Why this process has killed the other one, if it has.
    killed_for: Option<CellEnding>,
    watch: Watch,
    measure_at: Option<Instant>,
}

/// A connection of the cell process, with what has arrived of the next frame.
struct CellConnection {
    number: usize,
    stream: UnixStream,
    bytes: Vec<u8>,
}

/// What `poll` found ready.
#[derive(Clone, Copy)]
enum Ready {
    Relay,
    Control,
    Output,
    Kernel,
    RelayListener,
    LinkListener,
    SnapshotListener,
    CellConnection(usize),
    Child,
}

impl Supervisor {
    fn start(places: Places, listeners: Listeners, mut kernel: UnixStream) -> Result<Self> {
        let streams = Streams::new()?;
        let cells = CellProcess::start(&places, &streams)?;
        wire::write(&mut kernel, &KernelFrame::Supervisor)?;
        Ok(Self {
            places,
            listeners,
            cells,
            streams,
            control_bytes: Vec::new(),
            snapshots: Snapshots::default(),
            woken: None,
            trimmed: false,
            name_next: None,
            markers: Markers::default(),
            stdout_text: Utf8::default(),
            stderr_text: Utf8::default(),
            last_error: String::new(),
            kernel,
            kernel_bytes: Vec::new(),
            kernel_gone: false,
            links: Vec::new(),
            waiting: None,
            next_link: 0,
            relay: None,
            relay_bytes: Vec::new(),
            relay_expected: false,
            used: false,
            allowance: OUTPUT_BYTES_PER_SECOND,
            allowed_at: Instant::now(),
            running: false,
            failed: false,
            held: false,
            changed: Vec::new(),
            cell: None,
            undo: None,
            skip: false,
            begun: false,
            cancelled: false,
            kill_at: None,
            killed_for: None,
            watch: Watch::new()?,
            measure_at: None,
        })
    }

    fn serve(&mut self) -> Result<ExitCode> {
        while !self.kernel_gone {
            for ready in self.wait()? {
                match ready {
                    Ready::Relay => self.take_orders()?,
                    Ready::Control => self.take_control()?,
                    Ready::Output => self.drain()?,
                    Ready::Kernel => self.take_kernel()?,
                    Ready::RelayListener => self.accept_relay()?,
                    Ready::LinkListener => self.accept_link()?,
                    Ready::SnapshotListener => self.accept_sleepers()?,
                    Ready::CellConnection(number) => self.take_link(number)?,
                    Ready::Child => {
                        self.end()?;
                        break; // the other sources were the dead process'
                    }
                }
            }
            self.keep_time()?;
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Does what is due.
    fn keep_time(&mut self) -> Result<()> {
        let now = Instant::now();
        if self.kill_at.is_some_and(|at| at <= now) {
            self.kill_at = None;
            self.kill(CellEnding::Stopped)?;
        }
        if self.kill_at.is_some() && self.running {
            // It may have come before the cell began to listen.
            self.cells.signal(Signal::INT)?;
        }
        if self.running {
            match self.watch.look(&self.cells, now) {
                None => {}
                // What is kept for %undo is worth less than the cell that runs.
                Some(CellEnding::OutOfMemory { limit_bytes: None, .. }) if self.snapshots.drop_oldest() => {}
                Some(ending) => self.kill(ending)?,
            }
        }
        if self.measure_at.is_some_and(|at| at <= now) && !self.running {
            self.measure_at = None;
            self.snapshots.keep_within(self.watch.undo_budget_bytes(), self.cells.pid);
            self.cells.reap_strays()?;
        }
        Ok(())
    }

    fn kill(&mut self, why: CellEnding) -> Result<()> {
        self.killed_for.get_or_insert(why);
        self.cells.kill()
    }

    fn wait(&mut self) -> Result<Vec<Ready>> {
        let now = Instant::now();
        let earned = OUTPUT_BYTES_PER_SECOND * now.duration_since(self.allowed_at).as_secs_f64();
        // One large picture costs a second at most.
        self.allowance = (self.allowance.max(-OUTPUT_BYTES_PER_SECOND) + earned).min(OUTPUT_BYTES_PER_SECOND);
        self.allowed_at = now;
        let may_print = self.allowance >= 0.0;
        let mut sources = vec![
            (Ready::Kernel, self.kernel.as_fd()),
            (Ready::Control, self.streams.control.as_fd()),
            (Ready::RelayListener, self.listeners.relay.as_fd()),
            (Ready::LinkListener, self.listeners.link.as_fd()),
            (Ready::SnapshotListener, self.listeners.snapshots.as_fd()),
        ];
        sources.extend(self.relay.iter().map(|relay| (Ready::Relay, relay.as_fd())));
        if may_print {
            sources.extend([&self.streams.stdout, &self.streams.stderr].map(|fd| (Ready::Output, fd.as_fd())));
            sources.extend(self.links.iter().map(|link| (Ready::CellConnection(link.number), link.stream.as_fd())));
        }
        // The end of the process comes last: what it printed and told before is still in the pipes.
        sources.push((Ready::Child, self.cells.fd.as_fd()));
        let mut fds: Vec<_> = sources.iter().map(|(_, fd)| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
        let refill = (!may_print).then(|| Duration::from_secs_f64(-self.allowance / OUTPUT_BYTES_PER_SECOND));
        let measure = self.measure_at.filter(|_| !self.running);
        let due = self.kill_at.into_iter().chain(measure).chain(self.watch.due().filter(|_| self.running));
        let again = self.kill_at.map(|_| ASK_AGAIN);
        let timeout = due.map(|at| at.saturating_duration_since(now)).chain(refill).chain(again).min();
        let timeout = timeout.map(Timespec::try_from).transpose().context("a deadline beyond all time")?;
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let found: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        Ok(sources.iter().zip(found).filter(|(_, found)| *found).map(|((ready, _), _)| *ready).collect())
    }

    /// evcxr has started a new relay. Unless that was to be, it has given up the variables, and they go.
    fn accept_relay(&mut self) -> Result<()> {
        let Some(stream) = accept(&self.listeners.relay)? else { return Ok(()) };
        self.relay = Some(stream);
        self.relay_bytes.clear();
        if !std::mem::take(&mut self.relay_expected) && self.used {
            self.cells.kill()?;
            self.cells.reap()?;
            self.snapshots.shelve(self.cell.take());
            self.start_anew()?;
        }
        Ok(())
    }

    /// Lines from evcxr: the next cell to run.
    fn take_orders(&mut self) -> Result<()> {
        let Some(relay) = &self.relay else { return Ok(()) };
        if !read_available(relay, &mut self.relay_bytes)? {
            self.relay = None;
            return Ok(());
        }
        while let Some(line) = take_line(&mut self.relay_bytes) {
            if self.cancelled {
                self.tell(&KernelFrame::Cancelled)?;
                self.refuse()?;
                continue;
            }
            if std::mem::take(&mut self.skip) {
                self.say(markers::COMPLETE)?;
                continue;
            }
            self.last_error.clear();
            self.running = true;
            self.used = true;
            self.failed = false;
            self.changed.clear();
            self.kill_at = None;
            self.watch.begin(&self.cells);
            self.order(&line);
        }
        Ok(())
    }

    /// Writes to the process. A write that fails means that it is gone, of which `poll` will tell.
    fn order(&mut self, line: &[u8]) {
        if let Err(error) = self.streams.control.write_all(line) {
            tracing::debug!("the cell process takes no orders: {error}");
        }
    }

    /// Lines from the process: about its copies, and that a cell has ended.
    fn take_control(&mut self) -> Result<()> {
        read_available(&self.streams.control, &mut self.control_bytes)?;
        while let Some(line) = take_line(&mut self.control_bytes) {
            let line = String::from_utf8_lossy(line.strip_suffix(b"\n").unwrap_or(&line)).into_owned();
            if let Some(rest) = line.strip_prefix(process::SNAPSHOT) {
                self.put_snapshot(rest);
                self.release()?;
            } else if let Some(reason) = line.strip_prefix(process::UNGUARDED) {
                self.snapshots.shelve(self.undo.take());
                self.name_next = None;
                self.tell(&KernelFrame::Unguarded { reason: reason.to_owned() })?;
                self.release()?;
            } else if let Some(names) = line.strip_prefix(process::RESTORED) {
                // It may be awake before the end of the other one is noticed.
                let names = names.split(process::SEPARATOR).filter(|name| !name.is_empty());
                self.woken = Some(names.map(str::to_owned).collect());
            } else if line == process::TRIMMED {
                self.trimmed = true;
            } else if line.starts_with(process::COMPLETE) || line.starts_with(process::REFUSED) {
                self.conclude(&line)?;
            } else {
                tracing::warn!("the process of the cells said {line:?}");
            }
        }
        Ok(())
    }

    fn put_snapshot(&mut self, words: &str) {
        if self.killed_for.is_some() {
            return; // of a state that is given up
        }
        let mut words = words.split(' ');
        let Some(pid) = words.next().and_then(|pid| Pid::from_raw(pid.parse().ok()?)) else {
            return tracing::warn!("a snapshot without a process id");
        };
        let cost = words.next().and_then(|cost| cost.parse().ok()).map_or(Duration::ZERO, Duration::from_micros);
        self.snapshots.put(Snapshot::new(pid, cost), self.undo.take());
        if let Some(name) = self.name_next.take() {
            self.keep(&name);
        }
        self.measure_at = Some(Instant::now() + MEASURE_AFTER);
    }

    /// Tells evcxr of the end of a cell, which what is kept now belongs to.
    fn release(&mut self) -> Result<()> {
        if self.killed_for.is_some() || !std::mem::take(&mut self.held) {
            return Ok(());
        }
        self.running = false;
        self.kill_at = None;
        self.say(markers::COMPLETE)
    }

    /// Gives the state as it is now a name, and has the process make another copy of it.
    fn keep(&mut self, name: &str) -> bool {
        let is_kept = self.snapshots.name(name);
        if is_kept {
            self.order(process::SNAPSHOT_ORDER);
        }
        is_kept
    }

    /// A cell has ended, or could not be run.
    fn conclude(&mut self, line: &str) -> Result<()> {
        if self.killed_for.is_some() {
            return Ok(()); // it is on its way out, and its end is what counts
        }
        self.drain()?;
        self.finish_streams()?;
        self.kill_at = None;
        self.running = false;
        if let Some(reason) = line.strip_prefix(process::REFUSED) {
            self.tell(&KernelFrame::Failed { message: reason.trim().to_owned() })?;
            return self.refuse();
        }
        if !self.changed.is_empty() {
            let names = std::mem::take(&mut self.changed);
            self.tell(&KernelFrame::Changed { names })?;
            // The snapshot has them still.
            self.undo = self.cell.take();
            return self.refuse();
        }
        let missing = line.strip_prefix(process::COMPLETE).and_then(|count| count.parse().ok()).unwrap_or(0);
        if self.failed && missing > 0 && self.snapshots.has(&SnapshotKey::Latest) {
            // What it has moved would be lost; the snapshot has it. The end of the process does the rest.
            self.running = true;
            return self.kill(CellEnding::TakenBack);
        }
        self.undo = self.cell.take();
        // Should the process die before there is a copy, the one before the cell is the state to go back to.
        self.running = true;
        self.held = true;
        Ok(())
    }

    fn accept_sleepers(&mut self) -> Result<()> {
        while let Some(stream) = accept(&self.listeners.snapshots)? {
            self.snapshots.connect(stream)?;
        }
        Ok(())
    }

    fn take_kernel(&mut self) -> Result<()> {
        self.kernel.set_nonblocking(true)?;
        let open = read_available(&self.kernel, &mut self.kernel_bytes);
        self.kernel.set_nonblocking(false)?;
        self.kernel_gone = !open?;
        while let Some(order) = wire::take::<SupervisorOrder>(&mut self.kernel_bytes)? {
            match order {
                SupervisorOrder::Interrupt if self.running => self.interrupt()?,
                // Before the first cell there is nothing of the user's to stop.
                SupervisorOrder::Interrupt => self.cancelled = self.begun,
                SupervisorOrder::Begin { cell } => {
                    self.begun = true;
                    self.cancelled = false;
                    self.skip = false;
                    self.cell = cell;
                }
                SupervisorOrder::Request { number, request } => {
                    let reply = self.comply(request)?;
                    self.tell(&KernelFrame::Reply { number, reply })?;
                }
                SupervisorOrder::Answer { answer } => {
                    if let Some(number) = self.waiting.take() {
                        self.answer(number, &answer)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Asks the running cell to stop; asked twice, it has no more time.
    fn interrupt(&mut self) -> Result<()> {
        let grace = if self.kill_at.is_some() { Duration::ZERO } else { GRACE };
        self.kill_at = Some(Instant::now() + grace);
        // Where it waits for the user's answer, that is what it hears first.
        if let Some(number) = self.waiting.take() {
            self.answer(number, &Answer::Refused { reason: "the cell was interrupted".to_owned() })?;
        }
        self.cells.signal(Signal::INT)
    }

    fn comply(&mut self, request: SupervisorRequest) -> Result<SupervisorReply> {
        let refused = |reason: &str| SupervisorReply::Refused { reason: reason.to_owned() };
        match request {
            SupervisorRequest::Sync => self.drain_whole()?,
            SupervisorRequest::Skip => self.skip = true,
            SupervisorRequest::Keep { name } => {
                self.take_control()?;
                if !self.keep(&name) {
                    return Ok(refused("there is no snapshot of the variables as they are now; free some memory"));
                }
            }
            SupervisorRequest::Return { .. } if self.running => return Ok(refused("a cell is running")),
            SupervisorRequest::Return { to } => {
                if !self.snapshots.has(&to) {
                    return Ok(refused("that state is not kept any more; %checkpoints lists those that are"));
                }
                if !self.go_back(&to)? {
                    return Ok(SupervisorReply::Lost);
                }
            }
            SupervisorRequest::Limit { bytes } => self.watch.limit(bytes),
            SupervisorRequest::Trim { .. } if self.running => return Ok(refused("a cell is running")),
            SupervisorRequest::Trim { forget } => {
                if !self.trim(forget)? {
                    return Ok(refused("the process of the cells does not answer; run it again"));
                }
            }
            SupervisorRequest::Report => {
                let (snapshots, held_bytes) = self.snapshots.report(self.cells.pid);
                let report = MemoryReport {
                    supervisor_pid: std::process::id(),
                    cells_pid: self.cells.number(),
                    held_bytes,
                    limit_bytes: self.watch.limit_bytes(),
                    snapshots,
                };
                return Ok(SupervisorReply::Report { report });
            }
        }
        Ok(SupervisorReply::Done)
    }

    fn tell(&mut self, frame: &KernelFrame) -> Result<()> {
        wire::write(&mut self.kernel, frame).context("the kernel is gone")
    }

    /// Makes evcxr give up on a cell that was not run: a line that is no text is an error to it, after which it keeps
    /// its own picture of the variables as it was.
    fn refuse(&mut self) -> Result<()> {
        self.send(b"\xff\n")
    }

    fn say(&mut self, line: &str) -> Result<()> {
        self.send(format!("{line}\n").as_bytes())
    }

    /// Writes to evcxr, which takes every line at once.
    fn send(&mut self, line: &[u8]) -> Result<()> {
        let Some(relay) = &mut self.relay else { return Ok(()) };
        relay.set_nonblocking(false)?;
        if let Err(error) = relay.write_all(line) {
            tracing::debug!("evcxr has gone: {error}");
        }
        relay.set_nonblocking(true)?;
        Ok(())
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        if let Err(error) = self.cells.kill() {
            tracing::warn!("the process of the cells may still run: {error:#}");
        }
    }
}

/// A connection that waits to be taken, if there is one.
fn accept(listener: &UnixListener) -> Result<Option<UnixStream>> {
    match listener.accept() {
        Ok((stream, _)) => {
            stream.set_nonblocking(true)?;
            Ok(Some(stream))
        }
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error.into()),
    }
}
