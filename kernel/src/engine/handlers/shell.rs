//! `!command` and `%%bash`, which run a shell beside the cell process, in the same folder and environment, and show its output
//! at once. A program that the shell leaves in the background continues, and prints under the last cell.

use crate::bound;
use crate::cell_supervisor::streams::{Utf8, read_available, retry, set_nonblocking};
use crate::engine::Engine;
use crate::engine::evaluate::link::CellLink;
use crate::execution::Stream;
use crate::failure::{ErrorName, Failure};
use anyhow::{Context, Result};
use ferrotune_machine::handle::Handle;
use ferrotune_magics::Shell;
use ferrotune_space::record::signal_name;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process_group};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// How long the shell may take to end after an interrupt. A cell has the same time.
const GRACE: Duration = Duration::from_millis(1500);

/// The time between two checks whether the user has interrupted the cell.
const INTERVAL: Duration = Duration::from_millis(20);

impl Engine {
    /// Carries out `!command`, `%bash` and `%%bash`.
    pub(in crate::engine) fn run_shell(&self, shell: &Shell) -> Result<(), Failure> {
        let _running = self.interrupts.begin_shell();
        let status = self.follow_shell(shell).map_err(|error| Failure::from_error(ErrorName::ShellError, &error))?;
        if self.link.is_interrupted() {
            return Err(Failure::new(ErrorName::Interrupted, format!("{} was interrupted", shell.name)));
        }
        let how = match (status.code(), status.signal()) {
            (Some(0), _) => return Ok(()),
            (Some(code), _) => format!("ended with exit status {code}"),
            (None, signal) => format!("was ended by {}", signal_name(signal.unwrap_or(0))),
        };
        Err(Failure::new(ErrorName::ShellError, format!("{} {how}", shell.name)))
    }

    fn follow_shell(&self, shell: &Shell) -> Result<ExitStatus> {
        let mut child = self.command(shell).spawn().with_context(|| format!("{} cannot be started", shell.program))?;
        let mut writings = Writings::of(&mut child)?;
        let status = writings.follow(&mut child, &self.link)?;
        if !writings.open.is_empty() {
            let link = self.link.clone();
            thread::Builder::new().name("shell".into()).spawn(move || writings.follow_to_end(&link))?;
        }
        Ok(status)
    }

    fn command(&self, shell: &Shell) -> Command {
        let mut command = bound::command(shell.program);
        crate::environment::restore_path(&mut command);
        let surroundings = self.link.surroundings();
        for (name, value) in &surroundings.changed {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        if let Some(folder) = surroundings.folder {
            command.current_dir(folder);
        }
        command.arg("-c").arg(&shell.script).process_group(0);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }
}

/// The open output streams of a shell and of the programs that it has started.
struct Writings {
    open: Vec<Writing>,
}

/// One open output stream, stdout or stderr.
struct Writing {
    stream: Stream,
    pipe: OwnedFd,
    text: Utf8,
}

impl Writings {
    fn of(child: &mut Child) -> Result<Self> {
        let stdout = child.stdout.take().map(|pipe| (Stream::Stdout, pipe.into()));
        let stderr = child.stderr.take().map(|pipe| (Stream::Stderr, pipe.into()));
        let open = stdout.into_iter().chain(stderr);
        let open: Vec<_> = open.map(|(stream, pipe)| Writing { stream, pipe, text: Utf8::default() }).collect();
        for writing in &open {
            set_nonblocking(&writing.pipe)?;
        }
        Ok(Self { open })
    }

    /// Passes on the output until the shell has ended. An interrupt makes the shell end.
    fn follow(&mut self, child: &mut Child, link: &CellLink) -> Result<ExitStatus> {
        let group = Pid::from_child(child);
        let end = Handle::of_child(group)?;
        let mut asked_at: Option<Instant> = None;
        loop {
            self.wait(Some(end.as_fd()), Some(&Timespec::try_from(INTERVAL)?))?;
            // If the shell has ended, all its output is now in the pipes.
            let ended = child.try_wait()?;
            self.pass_on(link)?;
            if let Some(status) = ended {
                return Ok(status);
            }
            match asked_at {
                _ if !link.is_interrupted() => {}
                None => {
                    signal(group, Signal::INT)?;
                    asked_at = Some(Instant::now());
                }
                Some(at) if at.elapsed() >= GRACE => signal(group, Signal::KILL)?,
                Some(_) => {}
            }
        }
    }

    /// Passes on the output of programs in the background, until they have closed both streams.
    fn follow_to_end(mut self, link: &CellLink) {
        while !self.open.is_empty() {
            if let Err(error) = self.wait(None, None).and_then(|()| self.pass_on(link)) {
                return tracing::warn!("what programs in the background write is no longer shown: {error:#}");
            }
        }
    }

    /// Waits until there is output, a stream is closed, `end` is ready, or the timeout has passed.
    fn wait(&self, end: Option<BorrowedFd<'_>>, timeout: Option<&Timespec>) -> Result<()> {
        let fds = self.open.iter().map(|writing| writing.pipe.as_fd()).chain(end);
        let mut fds: Vec<_> = fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        retry(|| poll(&mut fds, timeout))?;
        Ok(())
    }

    fn pass_on(&mut self, link: &CellLink) -> Result<()> {
        let mut open = Vec::new();
        for mut writing in self.open.drain(..) {
            let mut bytes = Vec::new();
            let is_open = read_available(&writing.pipe, &mut bytes)?;
            link.print(writing.stream, writing.text.push(bytes));
            if is_open {
                open.push(writing);
            } else {
                link.print(writing.stream, writing.text.finish());
            }
        }
        self.open = open;
        Ok(())
    }
}

/// Sends a signal to the process group of the shell, which has all programs that the shell has started.
fn signal(group: Pid, signal: Signal) -> Result<()> {
    match kill_process_group(group, signal) {
        Ok(()) | Err(Errno::SRCH | Errno::PERM) => Ok(()),
        Err(error) => Err(error).context("the command cannot be interrupted"),
    }
}
