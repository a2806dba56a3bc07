//! The cell supervisor: starts the process in which cells run, and passes messages between this process, evcxr and the kernel.
//!
//! evcxr is connected through a relay, and takes the supervisor for its own runtime. The supervisor passes everything that a
//! cell prints or shows to the kernel, as frames, in the order in which the cell made it. There is one thread and one `poll`,
//! so no cell can stop the supervisor. `phase.rs` decides what follows from an event; this file carries the decision out.

mod arrivals;
mod cells;
mod connections;
mod dead_ends;
mod descriptors;
mod evcxr;
mod kernel;
mod markers;
mod memory;
mod output;
mod phase;
mod process;
mod relay;
mod requests;
pub(crate) mod settings;
mod snapshot;
mod snapshots;
mod standard_input;
pub(crate) mod streams;
mod succession;

pub(crate) use process::run as run_cells;
pub(crate) use relay::run as run_relay;

use anyhow::{Context, Result};
use cells::{CellProcess, Streams};
use connections::Connections;
use evcxr::Evcxr;
use ferrotune_link::{Answer, CellEnding, CellOrder, CellReport, KernelFrame, SnapshotKey};
use ferrotune_machine::own;
use kernel::Kernel;
use memory::Watch;
use output::Output;
use phase::{Effect, Event, MadeSnapshot, Phase, Protocol};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, Signal};
use snapshots::{Snapshot, Snapshots};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Environment variable with the path of the kernel's socket.
pub(crate) const KERNEL_VARIABLE: &str = "FERROTUNE_KERNEL";

/// Environment variable with the process id of the supervisor. A cell process ends with its supervisor.
const SUPERVISOR_VARIABLE: &str = "FERROTUNE_SUPERVISOR";

/// Environment variable with the path of the socket at which snapshots connect.
const SNAPSHOTS_VARIABLE: &str = "FERROTUNE_SNAPSHOTS";

/// Name of the socket for evcxr, in the folder of the kernel's socket.
const RELAY_SOCKET: &str = "evcxr";

/// How long after a cell the memory of the snapshots is measured: quick cells must not wait for the measurement.
const MEASURE_AFTER: Duration = Duration::from_millis(500);

/// Supervises the processes of the cells until the kernel has ended.
pub(crate) fn run(libraries: [PathBuf; 2]) -> Result<ExitCode> {
    let kernel_path = std::env::var_os(KERNEL_VARIABLE).with_context(|| format!("{KERNEL_VARIABLE} is not set"))?;
    let kernel = Kernel::connect(Path::new(&kernel_path))?;
    // A snapshot whose parent has died becomes a child of this process.
    own::adopt_orphans()?;
    // The sockets are in the folder of the kernel's own socket, which the kernel deletes.
    let place = |name: &str| Path::new(&kernel_path).with_file_name(name);
    let own = std::process::id();
    let places =
        Places { libraries, link: place(&format!("cell-{own}")), snapshots: place(&format!("snapshots-{own}")) };
    let relay = place(RELAY_SOCKET);
    // If an earlier supervisor was killed, its socket is still there.
    if relay.exists() {
        std::fs::remove_file(&relay)?;
    }
    Supervisor::start(places, kernel, listen(&relay)?)?.serve()
}

fn listen(path: &Path) -> Result<UnixListener> {
    let listener = UnixListener::bind(path).with_context(|| format!("cannot listen at {}", path.display()))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// The paths that a cell process is started with.
struct Places {
    /// The libraries that the process loads, in this order: Rust's standard library and the prelude.
    libraries: [PathBuf; 2],
    link: PathBuf,
    snapshots: PathBuf,
}

struct Supervisor {
    places: Places,
    protocol: Protocol,
    kernel: Kernel,
    evcxr: Evcxr,
    /// The process that holds the variables.
    cells: CellProcess,
    streams: Streams,
    connections: Connections,
    output: Output,
    snapshots: Snapshots,
    snapshot_listener: UnixListener,
    watch: Watch,
    measure_at: Option<Instant>,
    /// The time between two samples of the profiler, as in [`CellOrder::Run`]; none if cells are not sampled.
    sample_ms: Option<u64>,
}

/// A source that `poll` has found ready.
#[derive(Clone, Copy)]
enum Ready {
    Relay,
    Control,
    Output,
    Kernel,
    RelayListener,
    LinkListener,
    SnapshotListener,
    Connection(usize),
    Child(Pid),
}

impl Supervisor {
    fn start(places: Places, mut kernel: Kernel, relay: UnixListener) -> Result<Self> {
        let connections = Connections::new(listen(&places.link)?);
        let snapshot_listener = listen(&places.snapshots)?;
        let streams = Streams::new()?;
        let cells = CellProcess::start(&places, &streams)?;
        kernel.tell(&KernelFrame::Supervisor)?;
        Ok(Self {
            places,
            protocol: Protocol::new(),
            kernel,
            evcxr: Evcxr::new(relay),
            cells,
            streams,
            connections,
            output: Output::default(),
            snapshots: Snapshots::default(),
            snapshot_listener,
            watch: Watch::new()?,
            measure_at: None,
            sample_ms: None,
        })
    }

    fn serve(&mut self) -> Result<ExitCode> {
        while self.protocol.phase != Phase::Over {
            for ready in self.wait()? {
                self.serve_one(ready)?;
            }
            self.take_kernel_orders()?;
            self.keep_time()?;
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Serves one source. A source may not be ready any more, because of a source that was served before it.
    fn serve_one(&mut self, ready: Ready) -> Result<()> {
        match ready {
            Ready::Relay | Ready::RelayListener | Ready::Kernel if self.protocol.is_busy() => Ok(()),
            Ready::Relay => self.take_lines(),
            Ready::Control => self.take_reports(),
            Ready::Output => self.drain(),
            Ready::Kernel => match self.kernel.read()? {
                true => self.take_kernel_orders(),
                false => self.raise(Event::KernelGone),
            },
            Ready::RelayListener => match self.evcxr.accept()? {
                true => self.raise(Event::RelayConnected),
                false => Ok(()),
            },
            Ready::LinkListener => self.connections.accept(),
            Ready::SnapshotListener => self.accept_snapshots(),
            Ready::Connection(number) => self.take_frame(number),
            Ready::Child(pid) if pid == self.cells.pid => self.process_ended(),
            Ready::Child(_) => Ok(()),
        }
    }

    /// Advances the protocol by an event, and carries out its effects.
    fn raise(&mut self, event: Event) -> Result<()> {
        let mut next = Some(event);
        while let Some(event) = next.take() {
            let protocol = std::mem::replace(&mut self.protocol, Protocol::new());
            let (protocol, effects) = protocol.step(event);
            self.protocol = protocol;
            for effect in effects {
                next = self.perform(effect)?.or(next);
            }
        }
        Ok(())
    }

    /// Carries out an effect, and returns the event to which it leads at once, if any.
    fn perform(&mut self, effect: Effect) -> Result<Option<Event>> {
        match effect {
            Effect::Order(order) => {
                if matches!(order, CellOrder::Run { .. }) {
                    self.watch.begin(&self.cells);
                }
                self.streams.order(&order);
            }
            Effect::Signal => self.cells.signal(Signal::INT)?,
            Effect::RefuseInput => {
                let reason = "the cell was interrupted".to_owned();
                self.connections.end_wait_for_user(&Answer::Refused { reason })?;
            }
            Effect::Kill => self.cells.kill()?,
            Effect::Wake(key) => return self.wake(&key),
            Effect::StartAnew => self.start_anew()?,
            Effect::Keep { snapshot, undo } => self.keep(snapshot, undo),
            Effect::Shelve { undo } => self.snapshots.shelve(undo),
            Effect::Name(name) => drop(self.name_latest(&name)),
            Effect::ForgetUndo => while self.snapshots.drop_oldest() {},
            Effect::Tell(frame) => self.kernel.tell(&frame)?,
            Effect::Complete => self.evcxr.complete()?,
            Effect::Refuse => self.evcxr.refuse()?,
            Effect::HangUp => self.evcxr.hang_up(),
        }
        Ok(None)
    }

    fn keep(&mut self, made: MadeSnapshot, undo: Option<u64>) {
        let Some(pid) = Pid::from_raw(made.pid) else {
            return tracing::warn!("a snapshot has no process id");
        };
        self.snapshots.put(Snapshot::new(pid, Duration::from_micros(made.cost_us)), undo);
        self.measure_at = Some(Instant::now() + MEASURE_AFTER);
    }

    /// Gives the latest snapshot a name, and orders the process to make another one; `false` if there is no latest snapshot.
    fn name_latest(&mut self, name: &str) -> bool {
        let is_named = self.snapshots.name(name);
        if is_named {
            self.streams.order(&CellOrder::Snapshot);
        }
        is_named
    }

    /// Does the work whose time has come: the protocol's deadline, the memory check of a running cell, and the measurement of the
    /// snapshots.
    fn keep_time(&mut self) -> Result<()> {
        let now = Instant::now();
        if self.protocol.deadline().is_some_and(|at| at <= now) {
            self.raise(Event::Due { now })?;
        }
        if self.protocol.is_running() {
            match self.watch.look(&self.cells, now) {
                None => {}
                // The snapshots for %undo are worth less than the cell that runs.
                Some(CellEnding::OutOfMemory { limit_bytes: None, .. }) if self.snapshots.drop_oldest() => {}
                Some(ending) => self.raise(Event::OutOfMemory(ending))?,
            }
        }
        if self.measure_at.is_some_and(|at| at <= now) && !self.protocol.is_running() {
            self.measure_at = None;
            self.snapshots.keep_within(self.watch.undo_budget_bytes(), self.cells.pid);
            self.cells.reap_strays()?;
        }
        Ok(())
    }

    fn wait(&mut self) -> Result<Vec<Ready>> {
        let now = Instant::now();
        let refill = self.output.allowance.wait(now).max(self.output.pace.wait(now));
        let is_running = self.protocol.is_running();
        let mut sources = vec![
            (Ready::Control, self.streams.control.as_fd()),
            (Ready::LinkListener, self.connections.listener.as_fd()),
            (Ready::SnapshotListener, self.snapshot_listener.as_fd()),
        ];
        if !self.protocol.is_busy() {
            sources.push((Ready::Kernel, self.kernel.fd()));
            sources.push((Ready::RelayListener, self.evcxr.listener.as_fd()));
            sources.extend(self.evcxr.fd().map(|fd| (Ready::Relay, fd)));
        }
        if refill.is_none() {
            sources.extend([&self.streams.stdout, &self.streams.stderr].map(|fd| (Ready::Output, fd.as_fd())));
            sources.extend(self.connections.fds().map(|(number, fd)| (Ready::Connection(number), fd)));
        }
        // The end of the process comes last: what it printed and reported before is still in the pipes.
        sources.extend(self.cells.end_fd().map(|fd| (Ready::Child(self.cells.pid), fd)));
        let mut fds: Vec<_> = sources.iter().map(|(_, fd)| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
        let due = [
            self.protocol.deadline(),
            self.measure_at.filter(|_| !is_running),
            self.watch.due().filter(|_| is_running),
        ];
        let timeout = due.into_iter().flatten().map(|at| at.saturating_duration_since(now)).chain(refill).min();
        let timeout = timeout.map(Timespec::try_from).transpose().context("a deadline beyond all time")?;
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let found: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        Ok(sources.iter().zip(found).filter(|(_, found)| *found).map(|((ready, _), _)| *ready).collect())
    }

    /// Reads evcxr's lines, each of which orders a cell to run.
    fn take_lines(&mut self) -> Result<()> {
        for line in self.evcxr.read()? {
            match evcxr::order(&line, self.sample_ms) {
                Some(order) => self.raise(Event::RunOrdered(order))?,
                None => {
                    tracing::warn!("evcxr orders {:?}", String::from_utf8_lossy(&line));
                    self.evcxr.refuse()?;
                }
            }
        }
        Ok(())
    }

    /// Reads the reports of the cell process, for example that it has made a snapshot or that a cell has ended.
    fn take_reports(&mut self) -> Result<()> {
        self.streams.read_reports()?;
        loop {
            let report = match self.streams.take_report() {
                Ok(Some(report)) => report,
                Ok(None) => return Ok(()),
                Err(error) => {
                    // A cell has written to a descriptor that is not its own. The latest snapshot takes the place of the process.
                    tracing::warn!("the process of the cells sent a report that cannot be read: {error}");
                    return self.cells.kill();
                }
            };
            if matches!(report, CellReport::Completed { .. } | CellReport::Refused { .. }) {
                self.drain_to_end()?;
            }
            let event = match report {
                CellReport::Surroundings { surroundings } => {
                    self.kernel.tell(&KernelFrame::Surroundings { surroundings })?;
                    continue;
                }
                CellReport::Sampled { samples } => {
                    self.kernel.tell(&KernelFrame::Sampled { samples })?;
                    continue;
                }
                CellReport::Unsampled { reason } => {
                    self.kernel.tell(&KernelFrame::Unsampled { reason })?;
                    continue;
                }
                CellReport::Completed { missing } => {
                    Event::Completed { missing, guarded: self.snapshots.has(&SnapshotKey::Latest) }
                }
                CellReport::Refused { reason } => Event::LoadFailed { reason },
                CellReport::SnapshotMade { pid, cost_us } => Event::SnapshotMade(MadeSnapshot { pid, cost_us }),
                CellReport::Unguarded { reason } => Event::Unguarded { reason },
                CellReport::Restored { threads } => Event::Woken { threads },
                CellReport::Trimmed => Event::Trimmed,
            };
            self.raise(event)?;
        }
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        if let Err(error) = self.cells.kill() {
            tracing::warn!("the process of the cells may still run: {error:#}");
        }
    }
}

/// A connection that waits to be accepted, if there is one.
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
