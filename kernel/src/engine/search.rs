//! A search beside the notebook: starts its supervisor, follows what it tells, and shows where it stands.

mod spec;

pub(super) use spec::{resumed, spec};

use crate::engine::report;
use crate::execution::{Failure, Output};
use crate::runtime::OWN_PROGRAM;
use anyhow::{Context, Result, bail};
use ferrotune_display::{Bundle, escape};
use ferrotune_machine::format;
use ferrotune_results::number;
use ferrotune_tuner::event::{Event, Finish, Front, Progress, Running};
use ferrotune_tuner::record::TrialRecord;
use ferrotune_tuner::spec::StudySpec;
use ferrotune_tuner::supervisor::{Origin, Trust};
use rustix::process::{Pid, Signal};
use std::io::{BufRead, BufReader, Lines};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

/// A search that runs.
#[derive(Debug)]
pub(crate) struct Search {
    /// Taken from a search that goes on by itself.
    child: Option<Child>,
    events: Lines<BufReader<ChildStdout>>,
    spec: StudySpec,
    folder: PathBuf,
    earlier: u64,
}

impl Search {
    /// Starts the supervisor and waits until it holds all that it needs from the cell. What comes from the study's folder
    /// runs only as far as `trust` goes.
    pub(crate) fn start(spec: StudySpec, trust: &Trust, runtime: &Path) -> Result<Self> {
        let path = runtime.join("study.json");
        std::fs::write(&path, serde_json::to_vec(&spec)?)?;
        let mut command = Command::new(OWN_PROGRAM);
        command.arg("supervise").arg(&path).stdin(Stdio::null()).stdout(Stdio::piped());
        if trust.code == Origin::User {
            command.arg("--trust");
        }
        if trust.mirror == Origin::User {
            command.arg("--trust-mirror");
        }
        if spec.supervision.background {
            // It makes a session of its own, and outlives whoever reads this kernel's words.
            command.stderr(Stdio::null());
        } else {
            // Ctrl-C in a terminal is the kernel's, which passes it on in its own way.
            command.process_group(0);
        }
        let mut child = command.spawn().context("cannot start the search's supervisor")?;
        let mut events = BufReader::new(child.stdout.take().context("stdout is piped")?).lines();
        match next_event(&mut events)? {
            Some(Event::Opened { folder, earlier_trials }) => {
                Ok(Self { child: Some(child), events, spec, folder, earlier: earlier_trials })
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

    pub(super) fn is_in_background(&self) -> bool {
        self.spec.supervision.background
    }

    /// Lets the search go on by itself, and says so.
    pub(crate) fn detach(mut self, emit: &dyn Fn(Output)) -> Result<(), Failure> {
        let Some(mut child) = self.child.take() else { return Ok(()) };
        let text = format!(
            "{} runs in the background as process {}; %tune status shows it, %tune wait follows it, %tune stop stops it\n",
            self.spec.project,
            child.id()
        );
        emit(Output::Stream(crate::execution::Stream::Stdout, text));
        // Somebody has to take its exit status, or it stays as a zombie until this kernel ends.
        let reaper = std::thread::Builder::new().name("background-search".into()).spawn(move || child.wait());
        match reaper {
            Ok(_) => Ok(()),
            Err(error) => Err(report::failure("TuneError", format!("cannot start a thread: {error}"))),
        }
    }

    /// Process id of the supervisor, which SIGINT stops.
    pub(crate) fn pid(&self) -> u32 {
        self.child.as_ref().map_or(0, Child::id)
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Shows the search until it is over.
    pub(super) fn follow(mut self, display_id: &str, emit: &dyn Fn(Output)) -> Result<(), Failure> {
        let failure = |error: anyhow::Error| report::failure("TuneError", crate::chain::in_one_line(&error));
        if self.earlier > 0 {
            let text = format!("continuing {} with {} earlier trials\n", self.folder.display(), self.earlier);
            emit(Output::Stream(crate::execution::Stream::Stdout, text));
        }
        let mut shown = false;
        let mut last = Progress { max_trials: self.spec.max_trials, ..Progress::default() };
        let mut trouble = None;
        let mut finish = None;
        while let Some(event) = next_event(&mut self.events).map_err(failure)? {
            match event {
                Event::Progress(progress) => {
                    last = progress;
                    emit(display(picture(&last, &self.spec, None), display_id, shown));
                    shown = true;
                }
                Event::Finished { reason } => finish = Some(reason),
                Event::Error { message } => trouble = Some(message),
                Event::Opened { .. }
                | Event::TrialStarted { .. }
                | Event::Executed { .. }
                | Event::Reported { .. }
                | Event::TrialEnded { .. } => {}
            }
        }
        let status = self.child.as_mut().map(Child::wait).transpose().map_err(|error| failure(error.into()))?;
        if shown || finish.is_some() {
            emit(display(picture(&last, &self.spec, finish.as_ref()), display_id, shown));
        }
        match (trouble, finish) {
            (Some(message), _) => Err(report::failure("TuneError", message)),
            (None, Some(Finish::Interrupted)) => {
                Err(report::failure("Interrupted", "the search was stopped; run the cell again to go on with it"))
            }
            (None, Some(_)) => Ok(()),
            (None, None) => {
                let status = status.unwrap_or_default();
                let text = format!("the search's supervisor ended with {status}; run the cell again to go on with it");
                Err(report::failure("TuneError", text))
            }
        }
    }
}

impl Drop for Search {
    /// A search that no one follows any more is stopped at once; its cell can be run again to go on with it.
    fn drop(&mut self) {
        let Some(child) = &mut self.child else { return };
        if matches!(child.try_wait(), Ok(Some(_))) {
            return;
        }
        // Two requests of different kinds: two of one kind could arrive as one.
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

pub(super) fn display(bundle: Bundle, display_id: &str, update: bool) -> Output {
    Output::Display { data: bundle.data, metadata: bundle.metadata, display_id: Some(display_id.to_owned()), update }
}

/// A search that nobody runs.
pub(super) fn at_rest(progress: Progress) -> Progress {
    Progress { running: Vec::new(), stopping: false, eta_s: None, ..progress }
}

/// Where the search stands, as text and as HTML.
fn picture(progress: &Progress, spec: &StudySpec, finish: Option<&Finish>) -> Bundle {
    bundle(progress, &lines(progress, spec, finish))
}

/// Where the search stands, in lines.
pub(super) fn lines(progress: &Progress, spec: &StudySpec, finish: Option<&Finish>) -> Vec<String> {
    let mut lines = vec![headline(progress, spec, finish)];
    if let Some(best) = &progress.best {
        lines.push(format!("best: {}", trial_line(best, spec)));
    }
    lines.extend(progress.front.as_ref().filter(|front| front.trials > 0).map(|front| front_line(front, spec)));
    if !progress.unasked.is_empty() {
        lines.push(format!(
            "no trial has asked for {} so far, which --fix, --tune-only or --enqueue names",
            progress.unasked.join(", ")
        ));
    }
    if finish.is_none() {
        lines.extend(progress.running.iter().map(|running| running_line(running, spec)));
    }
    lines
}

/// Lines about a search as text, and as HTML with a bar of its progress.
pub(super) fn bundle(progress: &Progress, lines: &[String]) -> Bundle {
    let bar = format!("<progress value=\"{}\" max=\"{}\"></progress>", progress.done, progress.max_trials);
    let html: String = lines.iter().map(|line| format!("<div>{}</div>", escape::html(line))).collect();
    Bundle::text(lines.join("\n")).with("text/html", format!("<div>{bar}</div>{html}"))
}

fn headline(progress: &Progress, spec: &StudySpec, finish: Option<&Finish>) -> String {
    let mut line = format!("{}: {}/{} trials", spec.project, progress.done, progress.max_trials);
    if progress.pruned > 0 {
        line.push_str(&format!(", {} pruned", progress.pruned));
    }
    if progress.failed > 0 {
        line.push_str(&format!(", {} failed", progress.failed));
    }
    if progress.infeasible > 0 {
        line.push_str(&format!(", {} that break a constraint", progress.infeasible));
    }
    line.push_str(&format!(", {}", format::long_duration(progress.elapsed_s)));
    match (finish, progress.eta_s) {
        (Some(Finish::MaxTrials), _) => line.push_str(", done"),
        (Some(Finish::Exhausted), _) => line.push_str(", done: nothing is left to try"),
        (Some(Finish::Timeout), _) => line.push_str(", stopped: the time is over"),
        (Some(Finish::Interrupted), _) => line.push_str(", stopped"),
        (None, _) if progress.stopping => {
            line.push_str(", stopping after the current step; interrupt again to stop at once");
        }
        (None, Some(eta)) => line.push_str(&format!(", about {} to go", format::long_duration(eta))),
        (None, None) => {}
    }
    line
}

fn trial_line(trial: &TrialRecord, spec: &StudySpec) -> String {
    let mut value = trial.value().map_or_else(|| "none".to_owned(), number);
    value.extend(trial.spreads().first().map(|spread| format!(" ± {}", number(*spread))));
    let parameters = trial.parameters.iter().map(|(name, parameter)| format!("{name}={}", parameter.value));
    let parameters: Vec<_> = parameters.collect();
    format!("{} = {value} in trial {} ({})", spec.objective().metric, trial.number, parameters.join(", "))
}

/// The trade-offs so far: how many, and from the best to the worst value of each objective among them.
fn front_line(front: &Front, spec: &StudySpec) -> String {
    let ranges = spec
        .objectives
        .iter()
        .zip(&front.ranges)
        .map(|(objective, (best, worst))| format!("{} {} to {}", objective.metric, number(*best), number(*worst)));
    let trials = if front.trials == 1 { "trial" } else { "trials" };
    format!("best trade-offs: {} {trials}, {}", front.trials, ranges.collect::<Vec<_>>().join(", "))
}

fn running_line(running: &Running, spec: &StudySpec) -> String {
    let parameters: Vec<_> = running.parameters.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let step = match (running.step, running.epochs) {
        (Some(step), Some(epochs)) => format!(", epoch {}/{epochs}", step + 1),
        (Some(step), None) => format!(", step {}", step + 1),
        (None, _) => String::new(),
    };
    let execution = match spec.executions {
        1 => String::new(),
        executions => format!(", execution {}/{executions}", running.execution + 1),
    };
    let memory = format::bytes(running.memory_bytes);
    format!("trial {}{execution}{step}, {memory} ({})", running.trial, parameters.join(", "))
}
