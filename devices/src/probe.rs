//! Plugins are tried in a child process with a deadline: one that hangs, aborts or is killed costs an error, never the
//! notebook.
//!
//! The child is this crate's [`child::main`], reached through a program that was built with it: `ferrotune probe`.

mod answers;
pub mod child;

pub use answers::{Identity, OpenDevice, Opened};

use crate::check::Check;
use crate::selftest::SelfTest;
use answers::{Request, Task};
use rustix::process::{Pid, Signal};
use serde::de::DeserializeOwned;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often the caller's wish to stop is looked at.
const TICK: Duration = Duration::from_millis(50);
/// A process that holds a TPU may let go of it when it is asked to end, and may not when it is killed.
/// Shorter than the 2 s after which an interrupted cell is ended.
const GRACE: Duration = Duration::from_millis(1500);
/// What is kept of a child's last words.
const LAST_WORDS_CHARS: usize = 400;

/// How plugins are tried.
#[derive(Clone, Copy)]
pub struct Probe<'a> {
    /// The program whose subcommand `probe` is [`child::main`].
    pub program: &'a Path,
    /// How long an answer may take.
    pub deadline: Duration,
    /// Asked now and then; `true` ends the child.
    pub stop: &'a dyn Fn() -> bool,
}

/// Why a plugin gave no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProbeError {
    /// The child could not be started.
    #[error("cannot start {program} to try the plugin: {source}")]
    Start {
        /// The program.
        program: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// There was no answer in time, and the child was ended.
    #[error(
        "{plugin} did not answer within {seconds} s and was ended; is the device in use by another process?{words}"
    )]
    Hung {
        /// The plugin.
        plugin: PathBuf,
        /// The time that it had.
        seconds: u64,
        /// Its last words, behind a colon.
        words: String,
    },
    /// The child ended without an answer.
    #[error("{plugin} ended its process ({how}){words}")]
    Died {
        /// The plugin.
        plugin: PathBuf,
        /// By which signal, or with which status.
        how: String,
        /// Its last words, behind a colon.
        words: String,
    },
    /// The plugin answered that it cannot.
    #[error("{plugin}: {reason}")]
    Refused {
        /// The plugin.
        plugin: PathBuf,
        /// Its reason.
        reason: String,
    },
    /// The caller wanted it to stop.
    #[error("{plugin} was still being tried when it was interrupted")]
    Interrupted {
        /// The plugin.
        plugin: PathBuf,
    },
    /// What came is no answer: the program is not built with this crate.
    #[error("{program} gave no answer that is understood: {reason}")]
    Garbled {
        /// The program.
        program: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
}

impl Probe<'_> {
    /// Loads a plugin and asks for its versions. No device is opened.
    ///
    /// # Errors
    /// Those of [`ProbeError`].
    pub fn identify(&self, plugin: &Path) -> Result<Identity, ProbeError> {
        self.ask(&Request { plugin: plugin.to_owned(), task: Task::Identify })
    }

    /// Opens the devices of a plugin, and closes them.
    ///
    /// # Errors
    /// Those of [`ProbeError`].
    pub fn open(&self, plugin: &Path) -> Result<Opened, ProbeError> {
        self.ask(&Request { plugin: plugin.to_owned(), task: Task::Open })
    }

    /// Compiles a StableHLO module, in a file, for devices by name that need not be here.
    ///
    /// # Errors
    /// Those of [`ProbeError`]. That the program does not fit the memory is no error.
    pub fn check(&self, plugin: &Path, topology: &str, module: &Path) -> Result<Check, ProbeError> {
        let task = Task::Check { topology: topology.to_owned(), module: module.to_owned() };
        self.ask(&Request { plugin: plugin.to_owned(), task })
    }

    /// Computes on the first device of a plugin and compares with plain arithmetic.
    ///
    /// # Errors
    /// Those of [`ProbeError`]. Wrong results are no error.
    pub fn self_test(&self, plugin: &Path) -> Result<SelfTest, ProbeError> {
        self.ask(&Request { plugin: plugin.to_owned(), task: Task::SelfTest })
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
                    let status = running.wait().map_err(start_error)?;
                    return Err(ProbeError::Died { plugin: plugin(), how: ended(status), words: running.last_words() });
                }
                Err(RecvTimeoutError::Timeout) if (self.stop)() => {
                    running.end();
                    return Err(ProbeError::Interrupted { plugin: plugin() });
                }
                Err(RecvTimeoutError::Timeout) if started.elapsed() >= self.deadline => {
                    running.end();
                    let (seconds, words) = (self.deadline.as_secs(), running.last_words());
                    return Err(ProbeError::Hung { plugin: plugin(), seconds, words });
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    fn read<T: DeserializeOwned>(&self, plugin: &Path, line: &str) -> Result<T, ProbeError> {
        let answer: Result<Result<T, String>, _> = serde_json::from_str(line);
        match answer {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(reason)) => Err(ProbeError::Refused { plugin: plugin.to_owned(), reason }),
            Err(error) => Err(ProbeError::Garbled { program: self.program.to_owned(), reason: error.to_string() }),
        }
    }
}

/// A child at work. Dropped, it is killed with all that it has started.
struct Running {
    child: Child,
    /// One line, or nothing if the child ended without.
    answer: Receiver<String>,
    errors: Option<JoinHandle<String>>,
    status: Option<ExitStatus>,
}

impl Running {
    fn start(program: &Path, request: &Request) -> io::Result<Running> {
        let mut command = Command::new(program);
        command.arg("probe").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        command.env("RUST_BACKTRACE", "0");
        if request.task.leaves_devices_alone() {
            // Without these libtpu waits minutes for a metadata server, and refuses beside a process that has the chip.
            command.env("TPU_SKIP_MDS_QUERY", "1").env("ALLOW_MULTIPLE_LIBTPU_LOAD", "1");
        }
        let mut child = command.spawn()?;
        let stdin = child.stdin.take();
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let (sender, answer) = mpsc::channel();
        std::thread::spawn(move || {
            let mut line = String::new();
            // An answer without its end is none; the caller sees that nothing came.
            if let Some(stdout) = stdout
                && BufReader::new(stdout).read_line(&mut line).is_ok()
                && line.ends_with('\n')
                && sender.send(line).is_err()
            {
                eprintln!("ferrotune: an answer came too late");
            }
        });
        let errors = std::thread::spawn(move || stderr.map(tail).unwrap_or_default());
        let running = Running { child, answer, errors: Some(errors), status: None };
        // A child that is gone already shows it by its silence.
        if let Some(mut stdin) = stdin
            && let Err(error) =
                serde_json::to_vec(request).map_err(io::Error::from).and_then(|json| stdin.write_all(&json))
            && error.kind() != io::ErrorKind::BrokenPipe
        {
            return Err(error);
        }
        Ok(running)
    }

    /// Asks the child to end, and insists.
    fn end(&mut self) {
        self.kill(Signal::TERM);
        let asked = Instant::now();
        while asked.elapsed() < GRACE && !matches!(self.child.try_wait(), Ok(Some(_)) | Err(_)) {
            std::thread::sleep(TICK);
        }
        self.kill(Signal::KILL);
    }

    fn kill(&self, signal: Signal) {
        // Before the child is reaped nobody else can have its number. A group that is gone needs no signal.
        if self.status.is_none()
            && let Err(errno) = rustix::process::kill_process_group(Pid::from_child(&self.child), signal)
            && errno != rustix::io::Errno::SRCH
        {
            eprintln!("ferrotune: cannot end the process that tries a plugin: {errno}");
        }
    }

    fn wait(&mut self) -> io::Result<ExitStatus> {
        let status = self.child.wait()?;
        self.status = Some(status);
        Ok(status)
    }

    /// The end of its standard error, on one line behind a colon; empty if it said nothing.
    fn last_words(&mut self) -> String {
        self.kill(Signal::KILL);
        let text = self.errors.take().and_then(|errors| errors.join().ok()).unwrap_or_default();
        if text.is_empty() { text } else { format!(": {text}") }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill(Signal::KILL);
        if let Err(error) = self.wait() {
            eprintln!("ferrotune: the process that tried a plugin cannot be reaped: {error}");
        }
    }
}

/// The last line with something on it, and what stands before it while there is room.
fn tail(stderr: impl io::Read) -> String {
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
