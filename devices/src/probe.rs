//! Tries plugins in a child process with a deadline: a plugin that hangs, aborts or is killed is an error, and never harms
//! the notebook.
//!
//! The child runs this crate's [`child::main`], which the program `ferrotune probe` calls.

mod answers;
pub mod child;

pub use crate::opened::{Identity, OpenDevice, Opened};

use crate::check::Check;
pub use answers::Module;
use answers::{Answer, Request, Task};
use ferrotune_machine::child::{self as machine_child, wait_for_exit};
use rustix::process::{Pid, Signal};
use serde::de::DeserializeOwned;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// The interval at which the caller is asked whether to stop.
const TICK: Duration = Duration::from_millis(50);
/// The time that a child has to end. A process that holds a TPU may release it on SIGTERM, and may fail to release it on SIGKILL.
/// An interrupted cell has the same time before it is killed.
const GRACE: Duration = Duration::from_millis(1500);
/// The number of characters that are kept from the end of a child's standard error.
const LAST_WORDS_CHARS: usize = 400;

/// The settings with which plugins are tried.
#[derive(Clone, Copy)]
pub struct Probe<'a> {
    /// The program whose subcommand `probe` is [`child::main`].
    pub program: &'a Path,
    /// The longest time for an answer.
    pub deadline: Duration,
    /// A function that is called about every 50 ms; if it returns `true`, the child is ended.
    pub stop: &'a dyn Fn() -> bool,
}

/// The reason why a trial of a plugin gave no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProbeError {
    /// The child could not be started.
    #[error("cannot start {program} to try the plugin: {source}")]
    Start {
        /// The program.
        program: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The child gave no answer in time, and was ended.
    #[error(
        "{plugin} did not answer within {seconds} s and was ended; is the device in use by another process?{words}"
    )]
    Hung {
        /// The plugin.
        plugin: PathBuf,
        /// The time that the child had, in seconds.
        seconds: u64,
        /// The end of the child's standard error, after a colon.
        words: String,
    },
    /// The child ended without an answer.
    #[error("{plugin} ended its process ({how}){words}")]
    Died {
        /// The plugin.
        plugin: PathBuf,
        /// The signal that ended the child, or its exit status.
        how: String,
        /// The end of the child's standard error, after a colon.
        words: String,
    },
    /// The plugin has refused the operation.
    #[error("{plugin}: {reason}")]
    Refused {
        /// The plugin.
        plugin: PathBuf,
        /// The plugin's reason.
        reason: String,
    },
    /// The caller interrupted the trial.
    #[error("{plugin} was still being tried when it was interrupted")]
    Interrupted {
        /// The plugin.
        plugin: PathBuf,
    },
    /// The answer cannot be read: the program is not built with this crate.
    #[error("{program} gave an answer that cannot be read: {reason}")]
    Garbled {
        /// The program.
        program: PathBuf,
        /// The reason why the answer cannot be read.
        reason: String,
    },
}

impl Probe<'_> {
    /// Loads a plugin and reads its versions. No device is opened.
    ///
    /// # Errors
    /// A [`ProbeError`].
    pub fn identify(&self, plugin: &Path) -> Result<Identity, ProbeError> {
        self.ask(&Request { plugin: plugin.to_owned(), task: Task::Identify })
    }

    /// Opens the devices of a plugin, and closes them.
    ///
    /// # Errors
    /// A [`ProbeError`].
    pub fn open(&self, plugin: &Path) -> Result<Opened, ProbeError> {
        self.ask(&Request { plugin: plugin.to_owned(), task: Task::Open })
    }

    /// Compiles a StableHLO module for the devices that `topology` names. This machine need not have such devices.
    ///
    /// # Errors
    /// A [`ProbeError`]. A program that does not fit the memory is no error.
    pub fn check(&self, plugin: &Path, topology: &str, module: Module) -> Result<Check, ProbeError> {
        let task = Task::Check { topology: topology.to_owned(), module };
        self.ask(&Request { plugin: plugin.to_owned(), task })
    }

    fn ask<T: DeserializeOwned>(&self, request: &Request) -> Result<T, ProbeError> {
        let start_error = |source| ProbeError::Start { program: self.program.to_owned(), source };
        let mut running = Running::start(self.program, request).map_err(start_error)?;
        let plugin = || request.plugin.clone();
        let started = Instant::now();
        loop {
            match running.answer.recv_timeout(TICK) {
                Ok(line) => {
                    running.kill(Signal::KILL);
                    return self.read(&request.plugin, &line);
                }
                Err(RecvTimeoutError::Disconnected) => {
                    if let Some(status) = running.wait(TICK).map_err(start_error)? {
                        let words = running.last_words();
                        return Err(ProbeError::Died { plugin: plugin(), how: ended(status), words });
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
            if (self.stop)() {
                running.end();
                return Err(ProbeError::Interrupted { plugin: plugin() });
            }
            if started.elapsed() >= self.deadline {
                running.end();
                let (seconds, words) = (self.deadline.as_secs(), running.last_words());
                return Err(ProbeError::Hung { plugin: plugin(), seconds, words });
            }
        }
    }

    fn read<T: DeserializeOwned>(&self, plugin: &Path, line: &str) -> Result<T, ProbeError> {
        match serde_json::from_str(line) {
            Ok(Answer::Done(answer)) => Ok(answer),
            Ok(Answer::Refused { reason }) => Err(ProbeError::Refused { plugin: plugin.to_owned(), reason }),
            Err(error) => Err(ProbeError::Garbled { program: self.program.to_owned(), reason: error.to_string() }),
        }
    }
}

/// A running child process, which is killed on drop together with all processes that it has started.
struct Running {
    child: Child,
    /// A channel that receives the answer line, or disconnects if the child closes its output without an answer.
    answer: Receiver<String>,
    /// A channel that receives the end of the child's standard error, once the child has closed it.
    errors: Receiver<String>,
    status: Option<ExitStatus>,
}

impl Running {
    fn start(program: &Path, request: &Request) -> io::Result<Running> {
        let mut command = Command::new(program);
        command.arg("probe").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        command.env("RUST_BACKTRACE", "0");
        machine_child::loud_drivers(&mut command);
        if request.task.leaves_devices_alone() {
            // Without these variables libtpu waits minutes for a metadata server, and refuses to run beside a process that has the chip.
            command.env("TPU_SKIP_MDS_QUERY", "1").env("ALLOW_MULTIPLE_LIBTPU_LOAD", "1");
        }
        let mut child = command.spawn()?;
        let stdin = child.stdin.take();
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let (sender, answer) = mpsc::channel();
        std::thread::spawn(move || {
            let mut line = String::new();
            // A line without a line end is not an answer; the caller then finds a disconnected channel.
            if let Some(stdout) = stdout
                && BufReader::new(stdout).read_line(&mut line).is_ok()
                && line.ends_with('\n')
                && sender.send(line).is_err()
            {
                eprintln!("ferrotune: an answer came too late");
            }
        });
        let (errors_sender, errors) = mpsc::channel();
        // The send fails if the caller already has the answer and does not need the text.
        std::thread::spawn(move || errors_sender.send(stderr.map(tail).unwrap_or_default()).is_ok());
        let running = Running { child, answer, errors, status: None };
        // A child that has already ended is noticed later, when no answer comes.
        if let Some(mut stdin) = stdin
            && let Err(error) =
                serde_json::to_vec(request).map_err(io::Error::from).and_then(|json| stdin.write_all(&json))
            && error.kind() != io::ErrorKind::BrokenPipe
        {
            return Err(error);
        }
        Ok(running)
    }

    /// Asks the child to end, and kills it if it does not.
    fn end(&mut self) {
        self.kill(Signal::TERM);
        if let Err(error) = wait_for_exit(Pid::from_child(&self.child), GRACE) {
            eprintln!("ferrotune: cannot wait for the process that tries a plugin: {error}");
        }
        self.kill(Signal::KILL);
    }

    fn kill(&self, signal: Signal) {
        // Until the child is reaped, no other process can have its number. A group that has ended needs no signal.
        if self.status.is_none()
            && let Err(errno) = rustix::process::kill_process_group(Pid::from_child(&self.child), signal)
            && errno != rustix::io::Errno::SRCH
        {
            eprintln!("ferrotune: cannot end the process that tries a plugin: {errno}");
        }
    }

    /// Waits until the child has ended, and reaps it; returns none if it still runs after `limit`.
    fn wait(&mut self, limit: Duration) -> io::Result<Option<ExitStatus>> {
        if self.status.is_none() {
            self.status = machine_child::wait(&mut self.child, limit)?;
        }
        Ok(self.status)
    }

    /// Kills the child, and returns the end of its standard error, on one line after a colon; empty if the child has written nothing.
    fn last_words(&mut self) -> String {
        self.kill(Signal::KILL);
        // A process that its driver blocks keeps its standard error open.
        let text = self.errors.recv_timeout(GRACE).unwrap_or_default();
        if text.is_empty() { text } else { format!(": {text}") }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill(Signal::KILL);
        match self.wait(GRACE) {
            Ok(Some(_)) => {}
            // The device's driver blocks the child; a wait for it would block this process, too.
            Ok(None) => eprintln!("ferrotune: process {} that tried a plugin does not end", self.child.id()),
            Err(error) => eprintln!("ferrotune: the process that tried a plugin cannot be reaped: {error}"),
        }
    }
}

/// The end of a child's standard error, on one line.
pub(crate) fn tail(stderr: impl io::Read) -> String {
    let mut kept = Vec::new();
    let mut stderr = BufReader::new(stderr);
    let mut chunk = [0; 4096];
    while let Ok(count @ 1..) = stderr.read(&mut chunk) {
        kept.extend_from_slice(&chunk[..count]);
        let excess = kept.len().saturating_sub(4 * LAST_WORDS_CHARS);
        kept.drain(..excess);
    }
    let text = String::from_utf8_lossy(&kept);
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let skipped = line.chars().count().saturating_sub(LAST_WORDS_CHARS);
    let end: String = line.chars().skip(skipped).collect();
    if skipped > 0 { format!("…{end}") } else { end }
}

fn ended(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(6)) => "SIGABRT".into(),
        (None, Some(9)) => "SIGKILL".into(),
        (None, Some(11)) => "SIGSEGV".into(),
        (None, signal) => format!("signal {}", signal.unwrap_or_default()),
    }
}
