//! The cell supervisor: starts the process in which cells run, and stands between it, evcxr and the kernel.
//!
//! evcxr speaks to the supervisor over its standard streams, as to its own runtime. Everything that a cell prints or
//! shows goes through here in the order in which it was made, as frames, to the kernel. One thread and one `poll`:
//! whatever a cell does, the supervisor goes on.

mod markers;
mod process;
mod snapshot;
mod streams;

pub(crate) use process::run as run_cells;

use crate::runtime::OWN_PROGRAM;
use anyhow::{Context, Result};
use ferrotune_display::frame::{self, Answer, Frame, Order, Stream};
use ferrotune_display::link::LINK_VARIABLE;
use markers::{Markers, Piece};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, WaitStatus, waitpid};
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};
use streams::{Utf8, read_available, retry, set_nonblocking, take_line};

/// Environment variable with the path of the kernel's socket.
pub(crate) const KERNEL_VARIABLE: &str = "FERROTUNE_KERNEL";

/// Environment variable with the process id of the supervisor, without which a cell process does not live on.
const SUPERVISOR_VARIABLE: &str = "FERROTUNE_SUPERVISOR";

/// How long a cell may take to stop when it is asked to, before it is ended.
const GRACE: Duration = Duration::from_secs(2);

/// How long a snapshot may take to stand in for its process.
const WAKING: Duration = Duration::from_secs(2);

/// A cell that prints or shows more has to wait, as at a terminal: what front ends cannot take must not fill the memory.
/// One burst of a second's worth passes at once.
const OUTPUT_BYTES_PER_SECOND: f64 = 4e6;

/// How much of the standard error is kept, to name the error at which a cell ended.
const KEPT_ERROR_BYTES: usize = 4096;

/// Supervises one cell process until it, or the kernel, has ended.
pub(crate) fn run(prelude: &Path) -> Result<ExitCode> {
    let kernel_path = std::env::var_os(KERNEL_VARIABLE).context("FERROTUNE_KERNEL is not set")?;
    let mut kernel = UnixStream::connect(&kernel_path).context("cannot reach the kernel")?;
    frame::write(&mut kernel, &Frame::Supervisor).context("cannot reach the kernel")?;
    // A snapshot whose parent has died becomes a child of this process.
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    // Beside the kernel's own socket, in the folder that the kernel deletes.
    let link = Path::new(&kernel_path).with_file_name(format!("cell-{}", std::process::id()));
    let listener = UnixListener::bind(&link)?;
    listener.set_nonblocking(true)?;
    Supervisor::start(prelude, &link, kernel, listener)?.serve()
}

/// A process in which cells run, or could.
struct CellProcess {
    pid: Pid,
    fd: OwnedFd,
}

impl CellProcess {
    fn of(pid: Pid) -> Result<Self> {
        Ok(Self { pid, fd: rustix::process::pidfd_open(pid, PidfdFlags::empty())? })
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        match rustix::process::pidfd_send_signal(&self.fd, signal) {
            Ok(()) | Err(Errno::SRCH) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Ends the process and what it has started in its group.
    fn kill(&self) -> Result<()> {
        match rustix::process::kill_process_group(self.pid, Signal::KILL) {
            Ok(()) | Err(Errno::SRCH | Errno::PERM) => self.signal(Signal::KILL),
            Err(error) => Err(error.into()),
        }
    }

    /// Waits for its end.
    fn reap(&self) -> Result<WaitStatus> {
        let ended = retry(|| waitpid(Some(self.pid), WaitOptions::empty()))?;
        ended.map(|(_, status)| status).context("the system knows nothing of the cell process")
    }
}

struct Supervisor {
    /// The process that has the variables.
    cells: CellProcess,
    /// Its sleeping copy, while a cell runs.
    snapshot: Option<Pid>,
    /// The copy has said that it is awake.
    woken: bool,
    control: UnixStream,
    control_bytes: Vec<u8>,
    stdout: Option<OwnedFd>,
    stderr: Option<OwnedFd>,
    markers: Markers,
    stdout_text: Utf8,
    stderr_text: Utf8,
    last_error: String,
    kernel: UnixStream,
    kernel_bytes: Vec<u8>,
    listener: UnixListener,
    links: Vec<Link>,
    /// The link whose frame the kernel has yet to answer.
    waiting: Option<usize>,
    next_link: usize,
    evcxr_bytes: Vec<u8>,
    /// How many bytes may be passed on now; below 0, what the cell gives is left alone until it has grown again.
    allowance: f64,
    allowed_at: Instant,
    running: bool,
    /// The user's first cell has come.
    begun: bool,
    /// The user has stopped the cell that is still being compiled.
    cancelled: bool,
    kill_at: Option<Instant>,
    evcxr_gone: bool,
}

/// A connection of the cell process, with what has arrived of the next frame.
struct Link {
    number: usize,
    stream: UnixStream,
    bytes: Vec<u8>,
}

/// What `poll` found ready.
enum Ready {
    Evcxr,
    Control,
    Stdout,
    Stderr,
    Kernel,
    Listener,
    Link(usize),
    Child,
}

impl Supervisor {
    fn start(prelude: &Path, link: &Path, kernel: UnixStream, listener: UnixListener) -> Result<Self> {
        let (control, end) = UnixStream::pair()?;
        let mut command = Command::new(OWN_PROGRAM);
        command
            .arg("cell-process")
            .arg(prelude)
            .env(LINK_VARIABLE, link)
            .env_remove(KERNEL_VARIABLE)
            .env_remove("EVCXR_IS_RUNTIME")
            .env("RUST_BACKTRACE", "0")
            .env(SUPERVISOR_VARIABLE, std::process::id().to_string())
            // What the cell has started ends with it.
            .process_group(0)
            // candle's own pools would not survive a fork; its matrix products use rayon's, which does.
            .env("CANDLE_NUM_THREADS", "1")
            .stdin(OwnedFd::from(end))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        if let Some(path) = std::env::var_os(crate::compile::PATH_VARIABLE) {
            command.env("PATH", path);
        }
        let mut child = command.spawn().context("cannot start the cell process")?;
        let cells = CellProcess::of(Pid::from_child(&child))?;
        let stdout = child.stdout.take().map(OwnedFd::from);
        let stderr = child.stderr.take().map(OwnedFd::from);
        for fd in stdout.iter().chain(&stderr) {
            set_nonblocking(fd)?;
        }
        control.set_nonblocking(true)?;
        Ok(Self {
            cells,
            snapshot: None,
            woken: false,
            control,
            control_bytes: Vec::new(),
            stdout,
            stderr,
            markers: Markers::default(),
            stdout_text: Utf8::default(),
            stderr_text: Utf8::default(),
            last_error: String::new(),
            kernel,
            kernel_bytes: Vec::new(),
            listener,
            links: Vec::new(),
            waiting: None,
            next_link: 0,
            evcxr_bytes: Vec::new(),
            allowance: OUTPUT_BYTES_PER_SECOND,
            allowed_at: Instant::now(),
            running: false,
            begun: false,
            cancelled: false,
            kill_at: None,
            evcxr_gone: false,
        })
    }

    fn serve(&mut self) -> Result<ExitCode> {
        loop {
            for ready in self.wait()? {
                match ready {
                    Ready::Evcxr => self.take_order()?,
                    Ready::Control => self.take_control()?,
                    Ready::Stdout | Ready::Stderr => self.drain()?,
                    Ready::Kernel => self.take_kernel()?,
                    Ready::Listener => self.accept()?,
                    Ready::Link(number) => self.take_link(number)?,
                    Ready::Child => {
                        if let Some(code) = self.end()? {
                            return Ok(code);
                        }
                        break; // the other sources were the dead process'
                    }
                }
            }
            if self.evcxr_gone || self.kill_at.is_some_and(|at| at <= Instant::now()) {
                self.kill_at = None;
                self.cells.kill()?;
            }
        }
    }

    fn wait(&mut self) -> Result<Vec<Ready>> {
        let now = Instant::now();
        let earned = OUTPUT_BYTES_PER_SECOND * now.duration_since(self.allowed_at).as_secs_f64();
        // One large picture costs a second at most.
        self.allowance = (self.allowance.max(-OUTPUT_BYTES_PER_SECOND) + earned).min(OUTPUT_BYTES_PER_SECOND);
        self.allowed_at = now;
        let may_print = self.allowance >= 0.0;
        let stdin = rustix::stdio::stdin();
        let mut sources = vec![(Ready::Child, self.cells.fd.as_fd())];
        if !self.evcxr_gone {
            sources.push((Ready::Evcxr, stdin));
            sources.push((Ready::Kernel, self.kernel.as_fd()));
        }
        sources.push((Ready::Control, self.control.as_fd()));
        sources.push((Ready::Listener, self.listener.as_fd()));
        let pipes = [(Ready::Stdout, &self.stdout), (Ready::Stderr, &self.stderr)];
        let pipes = pipes.into_iter().filter(|_| may_print);
        sources.extend(pipes.filter_map(|(ready, fd)| Some((ready, fd.as_ref()?.as_fd()))));
        let links = self.links.iter().filter(|_| may_print);
        sources.extend(links.map(|link| (Ready::Link(link.number), link.stream.as_fd())));
        let mut fds: Vec<_> = sources.iter().map(|(_, fd)| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
        let timeout = self.kill_at.map(|at| at.saturating_duration_since(now));
        let refill = (!may_print).then(|| Duration::from_secs_f64(-self.allowance / OUTPUT_BYTES_PER_SECOND));
        let timeout = timeout.into_iter().chain(refill).min();
        let timeout = timeout.map(Timespec::try_from).transpose().context("a deadline beyond all time")?;
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let found: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        let mut ready: Vec<Ready> =
            sources.into_iter().zip(found).filter(|(_, found)| *found).map(|((ready, _), _)| ready).collect();
        // The end of the process comes last: what it printed and told before is still in the pipes.
        let child_ended = matches!(ready.first(), Some(Ready::Child));
        ready.rotate_left(usize::from(child_ended));
        Ok(ready)
    }

    /// A line from evcxr: the next cell to run.
    fn take_order(&mut self) -> Result<()> {
        let mut bytes = [0; 4096];
        let count = retry(|| rustix::io::read(rustix::stdio::stdin(), &mut bytes))?;
        if count == 0 {
            self.evcxr_gone = true;
            return Ok(());
        }
        self.evcxr_bytes.extend_from_slice(&bytes[..count]);
        while let Some(line) = take_line(&mut self.evcxr_bytes) {
            if self.cancelled {
                self.tell(&Frame::Cancelled)?;
                refuse()?;
                continue;
            }
            self.last_error.clear();
            self.running = true;
            self.kill_at = None;
            // A write that fails means that the process is gone, of which `poll` will tell.
            if let Err(error) = self.control.write_all(&line) {
                tracing::debug!("the cell process takes no orders: {error}");
            }
        }
        Ok(())
    }

    /// The cell process says that a cell has ended.
    fn take_control(&mut self) -> Result<()> {
        if !read_available(&self.control, &mut self.control_bytes)? {
            // A process that takes no more orders cannot run cells; mostly it has ended already.
            return self.cells.kill();
        }
        while let Some(line) = take_line(&mut self.control_bytes) {
            let line = String::from_utf8_lossy(line.trim_ascii()).into_owned();
            if let Some(pid) = line.strip_prefix(process::SNAPSHOT) {
                self.snapshot = pid.parse().ok().and_then(Pid::from_raw);
                continue;
            }
            if line == process::RESTORED {
                // It may be awake before the end of the other one is noticed.
                self.woken = true;
                continue;
            }
            if line == process::UNGUARDED {
                self.tell(&Frame::Unguarded)?;
                continue;
            }
            self.snapshot = None;
            self.running = false;
            self.kill_at = None;
            self.drain()?;
            self.finish_streams()?;
            match line.strip_prefix(process::REFUSED) {
                Some(reason) => {
                    self.tell(&Frame::Failed { message: reason.trim().to_owned() })?;
                    refuse()?;
                }
                None => say(markers::COMPLETE)?,
            }
        }
        Ok(())
    }

    /// Passes on all that has been printed so far.
    fn drain(&mut self) -> Result<()> {
        let mut bytes = Vec::new();
        if let Some(fd) = &self.stdout
            && !read_available(fd, &mut bytes)?
        {
            self.stdout = None;
        }
        let pieces = self.markers.push(&bytes);
        self.allowance -= bytes.len() as f64;
        bytes.clear();
        if let Some(fd) = &self.stderr
            && !read_available(fd, &mut bytes)?
        {
            self.stderr = None;
        }
        self.allowance -= bytes.len() as f64;
        let text = self.stderr_text.push(&bytes);
        // Known before the marker of an error that it explains.
        self.remember_error(&text);
        self.pass_on(pieces)?;
        self.print(Stream::Stderr, text)
    }

    /// Passes on also what might have become a marker: the cell has written all that it meant to by now.
    fn drain_whole(&mut self) -> Result<()> {
        self.drain()?;
        let pieces = self.markers.release();
        self.pass_on(pieces)
    }

    fn remember_error(&mut self, text: &str) {
        self.last_error.push_str(text);
        if self.last_error.len() > KEPT_ERROR_BYTES {
            let excess = self.last_error.len() - KEPT_ERROR_BYTES;
            let cut = self.last_error.ceil_char_boundary(excess);
            self.last_error.drain(..cut);
        }
    }

    fn pass_on(&mut self, pieces: Vec<Piece>) -> Result<()> {
        for piece in pieces {
            if let Some(line) = markers::line_for_evcxr(&piece) {
                say(line)?;
            }
            match piece {
                Piece::Text(bytes) => {
                    let text = self.stdout_text.push(&bytes);
                    self.print(Stream::Stdout, text)?;
                }
                Piece::Failed => {
                    let message = self.last_error.trim().lines().next_back().unwrap_or("an error").to_owned();
                    self.tell(&Frame::Failed { message })?;
                }
                Piece::Panicked => self.tell(&Frame::Panicked)?,
                Piece::Line(_) => {}
            }
        }
        Ok(())
    }

    fn finish_streams(&mut self) -> Result<()> {
        let pieces = self.markers.finish();
        self.pass_on(pieces)?;
        let rest = self.stdout_text.finish();
        self.print(Stream::Stdout, rest)?;
        let rest = self.stderr_text.finish();
        self.print(Stream::Stderr, rest)
    }

    fn print(&mut self, stream: Stream, text: String) -> Result<()> {
        if text.is_empty() {
            return Ok(());
        }
        self.tell(&Frame::Stream { stream, text })
    }

    fn tell(&mut self, frame: &Frame) -> Result<()> {
        frame::write(&mut self.kernel, frame).context("the kernel is gone")
    }

    fn accept(&mut self) -> Result<()> {
        let (stream, _) = match self.listener.accept() {
            Ok(accepted) => accepted,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        stream.set_nonblocking(true)?;
        self.next_link += 1;
        self.links.push(Link { number: self.next_link, stream, bytes: Vec::new() });
        Ok(())
    }

    fn take_link(&mut self, number: usize) -> Result<()> {
        let Some(position) = self.links.iter().position(|link| link.number == number) else { return Ok(()) };
        let link = &mut self.links[position];
        let before = link.bytes.len();
        let open = read_available(&link.stream, &mut link.bytes)?;
        self.allowance -= (link.bytes.len() - before) as f64;
        let frame = frame::take::<Frame>(&mut link.bytes);
        match frame {
            Ok(Some(frame)) => {
                self.drain_whole()?;
                self.tell(&frame)?;
                if matches!(frame, Frame::Input { .. } | Frame::Tune { .. }) {
                    self.waiting = Some(number);
                } else {
                    self.answer(number, &Answer::Done)?;
                }
            }
            Ok(None) if open => {}
            Ok(None) | Err(_) => {
                self.links.remove(position);
            }
        }
        Ok(())
    }

    fn answer(&mut self, number: usize, answer: &Answer) -> Result<()> {
        let Some(link) = self.links.iter_mut().find(|link| link.number == number) else { return Ok(()) };
        link.stream.set_nonblocking(false)?;
        if let Err(error) = frame::write(&mut link.stream, answer) {
            tracing::debug!("the cell does not wait for its answer: {error}");
        }
        link.stream.set_nonblocking(true)?;
        Ok(())
    }

    fn take_kernel(&mut self) -> Result<()> {
        self.kernel.set_nonblocking(true)?;
        let open = read_available(&self.kernel, &mut self.kernel_bytes);
        self.kernel.set_nonblocking(false)?;
        if !open? {
            self.evcxr_gone = true;
        }
        while let Some(order) = frame::take::<Order>(&mut self.kernel_bytes)? {
            match order {
                Order::Interrupt if self.running => {
                    // Asked twice, it has no more time.
                    let grace = if self.kill_at.is_some() { Duration::ZERO } else { GRACE };
                    self.cells.signal(Signal::INT)?;
                    self.kill_at = Some(Instant::now() + grace);
                }
                // Before the first cell there is nothing of the user's to stop.
                Order::Interrupt => self.cancelled = self.begun,
                Order::Begin => {
                    self.begun = true;
                    self.cancelled = false;
                }
                Order::Sync { number } => {
                    self.drain_whole()?;
                    self.tell(&Frame::Synced { number })?;
                }
                Order::Answer { answer } => {
                    if let Some(number) = self.waiting.take() {
                        self.answer(number, &answer)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// The process has ended; unless its snapshot takes over, so does this one, with an exit code.
    fn end(&mut self) -> Result<Option<ExitCode>> {
        self.cells.kill()?; // its group may still have members
        let status = self.cells.reap()?;
        if self.evcxr_gone {
            return Ok(Some(ExitCode::SUCCESS));
        }
        self.drain()?;
        self.finish_streams()?;
        let (exit_code, signal) = (status.exit_status(), status.terminating_signal());
        self.running = false;
        self.kill_at = None;
        if self.restore()? {
            self.tell(&Frame::Restored { exit_code, signal })?;
            refuse()?;
            return Ok(None);
        }
        self.tell(&Frame::Died { exit_code, signal })?;
        Ok(Some(ExitCode::FAILURE))
    }

    /// Puts the snapshot in the place of the process, if there is one and it answers in time.
    fn restore(&mut self) -> Result<bool> {
        let Some(pid) = self.snapshot.take() else { return Ok(false) };
        let snapshot = match CellProcess::of(pid) {
            Ok(snapshot) => snapshot,
            Err(error) => {
                tracing::warn!("the snapshot is gone: {error:#}");
                return Ok(false);
            }
        };
        let deadline = Instant::now() + WAKING;
        loop {
            if std::mem::take(&mut self.woken) {
                self.cells = snapshot;
                return Ok(true);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let mut fds = [PollFd::new(&self.control, PollFlags::IN), PollFd::new(&snapshot.fd, PollFlags::IN)];
            match poll(&mut fds, Some(&Timespec::try_from(left)?)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            let ended = !fds[1].revents().is_empty();
            read_available(&self.control, &mut self.control_bytes)?;
            while let Some(line) = take_line(&mut self.control_bytes) {
                self.woken |= line.trim_ascii() == process::RESTORED.as_bytes();
            }
            if ended {
                break;
            }
        }
        // Whatever it waits for will not come: a lock of a thread that did not come along, for example.
        snapshot.kill()?;
        snapshot.reap()?;
        Ok(false)
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        let sleeper = self.snapshot.take().and_then(|pid| CellProcess::of(pid).ok());
        for process in sleeper.iter().chain([&self.cells]) {
            if let Err(error) = process.kill() {
                tracing::warn!("a process of the cells may still run: {error:#}");
            }
        }
    }
}

/// Makes evcxr give up on a cell that was not run: a line that is no text is an error to it, after which it keeps its
/// own picture of the variables as it was.
fn refuse() -> Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(b"\xff\n")?;
    stdout.flush()?;
    Ok(())
}

fn say(line: &str) -> Result<()> {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{line}")?;
    stdout.flush()?;
    Ok(())
}
