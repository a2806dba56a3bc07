//! What the watcher of a search hears: one JSON line for each event. A watcher that has left stops the search; it
//! never makes it fail.

use super::Search;
use crate::process::own_resident_bytes;
use crate::record::{State, study_best};
use crate::wire::{Event, Progress, Running};
use std::io::{self, Write};
use std::time::{Duration, Instant};

/// The least time between two reports of progress while a trial runs.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(200);

/// The receiving end of a search's events.
pub(super) struct Watcher<'a> {
    events: &'a mut dyn Write,
    gone: bool,
    last_progress: Option<Instant>,
}

impl<'a> Watcher<'a> {
    pub(super) fn new(events: &'a mut dyn Write) -> Watcher<'a> {
        Watcher { events, gone: false, last_progress: None }
    }

    /// Whether nobody reads the events any more.
    pub(super) fn is_gone(&self) -> bool {
        self.gone
    }

    pub(super) fn send(&mut self, event: &Event) {
        if self.gone {
            return;
        }
        if let Err(error) = self.write(event) {
            tracing::warn!(%error, "nobody listens to the search");
            self.gone = true;
        }
    }

    fn write(&mut self, event: &Event) -> io::Result<()> {
        let mut line = serde_json::to_vec(event)?;
        line.push(b'\n');
        self.events.write_all(&line)?;
        self.events.flush()
    }

    fn wants_progress(&self) -> bool {
        !self.gone && self.last_progress.is_none_or(|last| last.elapsed() >= PROGRESS_INTERVAL)
    }
}

/// The trial that runs, its worker's age and its memory in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Current {
    pub(super) trial: u64,
    pub(super) elapsed: Duration,
    pub(super) memory_bytes: u64,
}

impl Search<'_> {
    /// Tells where the search stands, if that was not told just now.
    pub(super) fn tick_progress(&mut self, current: Current) {
        if self.watcher.wants_progress() {
            self.send_progress(Some(current));
        }
    }

    /// Tells where the search stands.
    pub(super) fn send_progress(&mut self, current: Option<Current>) {
        let progress = self.progress(current);
        self.watcher.send(&Event::Progress(progress));
        self.watcher.last_progress = Some(Instant::now());
    }

    fn progress(&self, current: Option<Current>) -> Progress {
        let count = |wanted: State| self.trials.iter().filter(|trial| trial.state() == wanted).count() as u64;
        let (finished, pruned, failed) = (count(State::Finished), count(State::Pruned), count(State::Failed));
        let done = finished + pruned + failed;
        let ended = self.trials.iter().filter(|trial| trial.ending.is_some());
        let seconds: f64 = ended.map(|trial| trial.seconds).sum();
        let spent = current.map_or(0.0, |current| current.elapsed.as_secs_f64());
        let eta_s = (done > 0).then(|| {
            let to_go = self.spec.max_trials.saturating_sub(done) as f64;
            (seconds / done as f64 * to_go - spent).max(0.0)
        });
        Progress {
            done,
            failed,
            pruned,
            max_trials: self.spec.max_trials,
            best: study_best(&self.trials, self.spec.objective.direction).cloned(),
            running: current.map(|current| self.running(current)),
            elapsed_s: self.started.elapsed().as_secs_f64(),
            eta_s,
            supervisor_bytes: own_resident_bytes(),
        }
    }

    fn running(&self, current: Current) -> Running {
        let record = self.record(current.trial);
        let parameters = record.parameters.iter().map(|(name, parameter)| (name.clone(), parameter.value.clone()));
        Running {
            trial: current.trial,
            parameters: parameters.collect(),
            step: record.last_step(),
            epochs: record.epochs,
            memory_bytes: current.memory_bytes,
        }
    }
}
