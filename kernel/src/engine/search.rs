//! A search beside the notebook: starts its supervisor, follows what it tells, and shows where it stands.

use crate::engine::link::TuneRequest;
use crate::engine::report;
use crate::engine::studies;
use crate::execution::{Failure, Output};
use crate::runtime::OWN_PROGRAM;
use anyhow::{Context, Result, bail};
use ferrotune_display::{Bundle, escape};
use ferrotune_magics::{Direction, Tune};
use ferrotune_tuner::record::TrialRecord;
use ferrotune_tuner::wire::{self, Event, Finish, Progress, StudySpec};
use rustix::process::{Pid, Signal};
use std::io::{BufRead, BufReader, Lines};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

/// A search that runs.
#[derive(Debug)]
pub(super) struct Search {
    child: Child,
    events: Lines<BufReader<ChildStdout>>,
    spec: StudySpec,
    folder: PathBuf,
    earlier: u64,
}

impl Search {
    /// Starts the supervisor and waits until it holds all that it needs from the cell.
    pub(super) fn start(spec: StudySpec, runtime: &Path) -> Result<Self> {
        let path = runtime.join("study.json");
        std::fs::write(&path, serde_json::to_vec(&spec)?)?;
        let mut child = Command::new(OWN_PROGRAM)
            .arg("supervise")
            .arg(&path)
            // Ctrl-C in a terminal is the kernel's, which passes it on in its own way.
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the search's supervisor")?;
        let mut events = BufReader::new(child.stdout.take().context("stdout is piped")?).lines();
        match next_event(&mut events)? {
            Some(Event::Opened { folder, earlier_trials }) => {
                Ok(Self { child, events, spec, folder, earlier: earlier_trials })
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

    /// Process id of the supervisor, which SIGINT stops.
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Shows the search until it is over.
    pub(super) fn follow(mut self, display_id: &str, emit: &dyn Fn(Output)) -> Result<(), Failure> {
        let failure = |error: anyhow::Error| report::failure("TuneError", format!("{error:#}"));
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
                Event::Opened { .. } | Event::TrialStarted { .. } | Event::TrialEnded { .. } => {}
            }
        }
        let status = self.child.wait().map_err(|error| failure(error.into()))?;
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
                let text = format!("the search's supervisor ended with {status}; run the cell again to go on with it");
                Err(report::failure("TuneError", text))
            }
        }
    }
}

impl Drop for Search {
    /// A search that no one follows any more is stopped, in good order; its cell can be run again to go on with it.
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(Some(_))) {
            return;
        }
        let stopped = rustix::process::kill_process(Pid::from_child(&self.child), Signal::TERM);
        if let Err(error) = stopped.map_err(Into::into).and_then(|()| self.child.wait()) {
            tracing::warn!("the search's supervisor may still run: {error}");
        }
    }
}

fn next_event(events: &mut Lines<BufReader<ChildStdout>>) -> Result<Option<Event>> {
    let Some(line) = events.next() else { return Ok(None) };
    let line = line.context("cannot read from the search's supervisor")?;
    Ok(Some(serde_json::from_str(&line).with_context(|| format!("the search's supervisor said {line:?}"))?))
}

/// The search that a `%%tune` cell describes, once the cell has handed over its objective.
pub(super) fn spec(tune: &Tune, request: TuneRequest) -> Result<StudySpec> {
    let direction = match tune.direction {
        Direction::Min => wire::Direction::Min,
        Direction::Max => wire::Direction::Max,
    };
    Ok(StudySpec {
        project: tune.project.clone(),
        directory: std::path::absolute(&tune.directory)?,
        objective: wire::Objective { metric: tune.objective.clone(), direction },
        also: Vec::new(),
        constraints: Vec::new(),
        pruner: None,
        terminator: None,
        oracle: tune.oracle.clone(),
        max_trials: tune.max_trials,
        seed: tune.seed,
        timeout_s: tune.timeout_s,
        trial_timeout_s: tune.trial_timeout_s,
        memory_budget_bytes: tune.memory_bytes,
        overwrite: tune.overwrite,
        library: PathBuf::from(request.library),
        symbol: request.symbol,
        shared: request.shared_fd.map(|fd| PathBuf::from(format!("/proc/{}/fd/{fd}", request.pid))),
        device: request.device,
    })
}

fn display(bundle: Bundle, display_id: &str, update: bool) -> Output {
    Output::Display { data: bundle.data, metadata: bundle.metadata, display_id: Some(display_id.to_owned()), update }
}

/// Where the search stands, as text and as HTML.
fn picture(progress: &Progress, spec: &StudySpec, finish: Option<&Finish>) -> Bundle {
    let mut lines = vec![headline(progress, spec, finish)];
    if let Some(best) = &progress.best {
        lines.push(format!("best: {}", trial_line(best, spec)));
    }
    if finish.is_none() {
        lines.extend(progress.running.as_ref().map(running_line));
    }
    let text = lines.join("\n");
    let bar = format!("<progress value=\"{}\" max=\"{}\"></progress>", progress.done, progress.max_trials);
    let html: String = lines.iter().map(|line| format!("<div>{}</div>", escape::html(line))).collect();
    Bundle::text(text).with("text/html", format!("<div>{bar}</div>{html}"))
}

fn headline(progress: &Progress, spec: &StudySpec, finish: Option<&Finish>) -> String {
    let mut line = format!("{}: {}/{} trials", spec.project, progress.done, progress.max_trials);
    if progress.pruned > 0 {
        line.push_str(&format!(", {} pruned", progress.pruned));
    }
    if progress.failed > 0 {
        line.push_str(&format!(", {} failed", progress.failed));
    }
    line.push_str(&format!(", {}", duration(progress.elapsed_s)));
    match (finish, progress.eta_s) {
        (Some(Finish::MaxTrials), _) => line.push_str(", done"),
        (Some(Finish::Exhausted), _) => line.push_str(", done: nothing is left to try"),
        (Some(Finish::Timeout), _) => line.push_str(", stopped: the time is over"),
        (Some(Finish::Interrupted), _) => line.push_str(", stopped"),
        (None, Some(eta)) => line.push_str(&format!(", about {} to go", duration(eta))),
        (None, None) => {}
    }
    line
}

fn trial_line(trial: &TrialRecord, spec: &StudySpec) -> String {
    let value = trial.value.map_or_else(|| "none".to_owned(), studies::number);
    let parameters = trial.parameters.iter().map(|(name, parameter)| format!("{name}={}", parameter.value));
    let parameters: Vec<_> = parameters.collect();
    format!("{} = {value} in trial {} ({})", spec.objective.metric, trial.number, parameters.join(", "))
}

fn running_line(running: &wire::Running) -> String {
    let parameters: Vec<_> = running.parameters.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let step = match (running.step, running.epochs) {
        (Some(step), Some(epochs)) => format!(", epoch {}/{epochs}", step + 1),
        (Some(step), None) => format!(", step {}", step + 1),
        (None, _) => String::new(),
    };
    let memory = escape::bytes(running.memory_bytes);
    format!("trial {}{step}, {memory} ({})", running.trial, parameters.join(", "))
}

/// Seconds for people: `8.4 s`, `3 min 20 s`, `2 h 5 min`.
fn duration(seconds: f64) -> String {
    let whole = seconds.round().max(0.0) as u64;
    match whole {
        0..60 => format!("{seconds:.1} s"),
        60..3600 => format!("{} min {} s", whole / 60, whole % 60),
        _ => format!("{} h {} min", whole / 3600, whole % 3600 / 60),
    }
}
