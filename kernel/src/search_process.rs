//! The kernel's side of the process that supervises a search: starts the process, follows the search's events, and stops the search
//! when no cell follows it any more.

mod event_files;
pub(crate) mod progress;
mod stop_button;

pub(crate) use event_files::{EventFiles, write_event_files};

use crate::cell_supervisor::settings::Settings;
use crate::execution::{LiveDisplay, Output, Stream};
use crate::failure::{ErrorName, Failure};
use anyhow::{Context, Result, bail};
use ferrotune_display::Bundle;
use ferrotune_machine::own;
use ferrotune_space::event::{Event, Finish, Progress};
use ferrotune_space::spec::StudySpec;
use ferrotune_space::wire::PROGRAM_VARIABLE;
use ferrotune_tuner::supervisor::{Origin, Trust};
use rustix::process::{Pid, Signal};
use std::io::{BufRead, BufReader, Lines};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use stop_button::StopButton;
use tokio::sync::mpsc::UnboundedSender;

/// The code that this user trusts: code that they have trusted before, and code of this origin.
pub(crate) fn trust(origin: Origin) -> Trust {
    Trust { known: dirs::data_dir().map(|data| data.join("ferrotune/trusted")), code: origin, mirror: origin }
}

/// A running search, and the process of its supervisor.
#[derive(Debug)]
pub(crate) struct SearchProcess {
    /// The supervisor's process; none once the search runs in the background.
    child: Option<Child>,
    events: Lines<BufReader<ChildStdout>>,
    spec: StudySpec,
    folder: PathBuf,
    earlier_trials: u64,
    /// The button that stops the search, which is removed when the search has ended.
    stop_button: Option<StopButton>,
}

impl SearchProcess {
    /// Starts the supervisor and waits until it has copied everything that it needs from the cell. It runs code from the
    /// study's folder only if `trust` covers it.
    pub(crate) fn start(spec: StudySpec, trust: &Trust, runtime: &Path) -> Result<Self> {
        Self::run(spec, trust, runtime, |command| command.env_remove(PROGRAM_VARIABLE))
    }

    /// Starts a search whose trial runs up to its first compiled step, and writes the program of this step to a file.
    pub(crate) fn start_for_program(spec: StudySpec, program: &Path, runtime: &Path) -> Result<Self> {
        Self::run(spec, &trust(Origin::Study), runtime, |command| command.env(PROGRAM_VARIABLE, program))
    }

    fn run(
        spec: StudySpec,
        trust: &Trust,
        runtime: &Path,
        set: impl FnOnce(&mut Command) -> &mut Command,
    ) -> Result<Self> {
        EventFiles::check(&spec)?;
        let path = runtime.join("study.json");
        std::fs::write(&path, serde_json::to_vec(&spec)?)?;
        let mut command = Command::new(own::PROGRAM);
        command.arg("supervise").arg(&path).stdin(Stdio::null()).stdout(Stdio::piped());
        command.envs(Settings::read(runtime)?.variables);
        set(&mut command);
        if trust.code == Origin::User {
            command.arg("--trust");
        }
        if trust.mirror == Origin::User {
            command.arg("--trust-mirror");
        }
        if spec.supervision.background {
            // The search starts a session of its own, and outlives the terminal of this kernel.
            command.stderr(Stdio::null());
        } else {
            // Ctrl-C in a terminal goes to the kernel alone, which passes it on.
            command.process_group(0);
        }
        let mut child = command.spawn().context("cannot start the search's supervisor")?;
        let mut events = BufReader::new(child.stdout.take().context("stdout is piped")?).lines();
        match next_event(&mut events)? {
            Some(Event::Opened { folder, earlier_trials }) => {
                Ok(Self { child: Some(child), events, spec, folder, earlier_trials, stop_button: None })
            }
            Some(Event::Error { message }) => {
                child.wait()?;
                bail!("{message}")
            }
            other => {
                child.kill()?;
                let status = child.wait()?;
                bail!("the search's supervisor ended before it began ({status}), after {other:?}")
            }
        }
    }

    pub(crate) fn is_in_background(&self) -> bool {
        self.spec.supervision.background
    }

    /// Leaves the search running in the background, and prints how to see and stop it. A thread updates the search's display until the
    /// search ends.
    pub(crate) fn detach(
        mut self,
        emit: &dyn Fn(Output),
        mut display: LiveDisplay,
        emit_later: impl Fn(Output) + Send + 'static,
    ) -> Result<(), Failure> {
        let Some(mut child) = self.child.take() else { return Ok(()) };
        let text = format!(
            "{} runs in the background as process {}; %tune status shows it, %tune wait follows it, %tune stop stops it\n",
            self.spec.project,
            child.id()
        );
        emit(Output::Stream(Stream::Stdout, text));
        let follow = move || {
            match self.listen(&mut |bundle| emit_later(display.show(bundle))) {
                Ok(end) => emit_later(display.end(end.with_error(&self.spec))),
                Err(error) => tracing::warn!("the search goes on unseen: {error:#}"),
            }
            // Without a thread that waits for it, the process would stay a zombie until this kernel ends.
            if let Err(error) = child.wait() {
                tracing::warn!("the end of a search in the background is unknown: {error}");
            }
        };
        match std::thread::Builder::new().name("background-search".into()).spawn(follow) {
            Ok(_) => Ok(()),
            Err(error) => Err(Failure::new(ErrorName::TuneError, format!("cannot start a thread: {error}"))),
        }
    }

    /// Process id of the supervisor, which SIGINT stops.
    pub(crate) fn pid(&self) -> u32 {
        self.child.as_ref().map_or(0, Child::id)
    }

    /// Shows a button that stops the search, among a cell's outputs.
    pub(crate) fn show_stop_button(&mut self, outputs: UnboundedSender<Output>) {
        self.stop_button = StopButton::show(self.pid(), outputs);
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Shows the search until it is over.
    pub(crate) fn follow(mut self, display: &mut LiveDisplay, emit: &dyn Fn(Output)) -> Result<(), Failure> {
        let failure = |error: anyhow::Error| Failure::from_error(ErrorName::TuneError, &error);
        if self.earlier_trials > 0 {
            let text = format!("continuing {} with {} earlier trials\n", self.folder.display(), self.earlier_trials);
            emit(Output::Stream(Stream::Stdout, text));
        }
        let end = self.listen(&mut |bundle| emit(display.show(bundle))).map_err(failure)?;
        let status = self.child.as_mut().map(Child::wait).transpose().map_err(|error| failure(error.into()))?;
        emit(display.end(end.shown(&self.spec)));
        match (end.error, end.finish) {
            (Some(message), _) => Err(Failure::new(ErrorName::TuneError, message)),
            (None, Some(Finish::Interrupted)) => {
                let text = "the search was stopped; run the cell again to go on with it";
                Err(Failure::new(ErrorName::Interrupted, text))
            }
            (None, Some(_)) => Ok(()),
            (None, None) => {
                let status = status.unwrap_or_default();
                let text = format!("the search's supervisor ended with {status}; run the cell again to go on with it");
                Err(Failure::new(ErrorName::TuneError, text))
            }
        }
    }

    /// Reads the search's events until its supervisor sends no more, and shows the progress of the search.
    fn listen(&mut self, show: &mut dyn FnMut(Bundle)) -> Result<End> {
        let last = Progress { max_trials: self.spec.max_trials, ..Progress::default() };
        let mut end = End { last, finish: None, error: None };
        while let Some(event) = next_event(&mut self.events)? {
            match event {
                Event::Progress(progress) => {
                    end.last = progress;
                    show(progress::shown(&end.last, &self.spec, None));
                }
                Event::Finished { reason } => end.finish = Some(reason),
                Event::Error { message } => end.error = Some(message),
                Event::Opened { .. }
                | Event::TrialStarted { .. }
                | Event::Executed { .. }
                | Event::Reported { .. }
                | Event::TrialEnded { .. } => {}
            }
        }
        self.stop_button = None;
        Ok(end)
    }
}

/// The last progress and the ending of a search whose supervisor sends no more events.
struct End {
    last: Progress,
    finish: Option<Finish>,
    error: Option<String>,
}

impl End {
    fn shown(&self, spec: &StudySpec) -> Bundle {
        progress::shown(&self.at_rest(), spec, self.finish.as_ref())
    }

    /// The last display with the search's error, for a search that no cell waits for.
    fn with_error(&self, spec: &StudySpec) -> Bundle {
        let progress = self.at_rest();
        let mut lines = progress::lines(&progress, spec, self.finish.as_ref());
        lines.extend(self.error.as_ref().map(|error| format!("ended with an error: {error}")));
        progress::bundle(&progress, &lines)
    }

    fn at_rest(&self) -> Progress {
        Progress { running: Vec::new(), stopping: false, eta_s: None, ..self.last.clone() }
    }
}

impl Drop for SearchProcess {
    /// Stops a search that no cell follows any more, at once. A new run of its cell resumes the search.
    fn drop(&mut self) {
        let Some(child) = &mut self.child else { return };
        if matches!(child.try_wait(), Ok(Some(_))) {
            return;
        }
        // The second request stops the search at once. It is another signal, since two equal pending signals arrive as one.
        let pid = Pid::from_child(child);
        let ask = |signal| rustix::process::kill_process(pid, signal);
        let stopped = ask(Signal::TERM).and_then(|()| ask(Signal::INT)).map_err(std::io::Error::from);
        if let Err(error) = stopped.and_then(|()| child.wait()) {
            tracing::warn!("the search's supervisor may still run: {error}");
        }
    }
}

fn next_event(events: &mut Lines<BufReader<ChildStdout>>) -> Result<Option<Event>> {
    let Some(line) = events.next() else { return Ok(None) };
    let line = line.context("cannot read from the search's supervisor")?;
    Ok(Some(serde_json::from_str(&line).with_context(|| format!("the search's supervisor said {line:?}"))?))
}
