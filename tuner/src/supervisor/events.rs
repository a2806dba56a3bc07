//! Sends the events of a search to its watcher: one JSON line each, whose length does not grow with a trial's reports. A
//! watcher that has left stops the search, but never makes the search fail.

use super::Supervisor;
use super::remaining::{self, Course};
use super::session::Session;
use super::study_progress::{self, study_progress};
use ferrotune_journal::study_folder::STATUS;
use ferrotune_machine::memory::own_resident_bytes;
use ferrotune_space::event::{Event, Progress, Running, Status};
use ferrotune_space::record::TrialRecord;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The shortest time between two progress events while a trial runs.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(200);

/// The shortest time between two writes of progress into the status file.
const STATUS_INTERVAL: Duration = Duration::from_millis(500);

/// The status of the last search of the study in `folder`; none if no search has written a status.
pub fn last_status(folder: &Path) -> io::Result<Option<Status>> {
    match fs::read(folder.join(STATUS)) {
        Ok(text) => Ok(serde_json::from_slice(&text)?),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// The trials of the study when the search began.
pub(super) struct Earlier {
    /// The number of trials that had ended.
    done: u64,
    /// The seconds that the study's trials had taken.
    seconds: f64,
}

impl Earlier {
    pub(super) fn of(trials: &[TrialRecord]) -> Earlier {
        let done = trials.iter().filter(|trial| trial.ending.is_some()).count() as u64;
        Earlier { done, seconds: study_progress::seconds(trials) }
    }
}

/// The receiving end of a search's events.
pub(super) struct Watcher<'a> {
    events: &'a mut dyn Write,
    listener: &'a mut dyn FnMut(&Event),
    /// The path of the status file, for programs that read the status later.
    status_path: Option<PathBuf>,
    status: Status,
    /// The time of the last write of the status.
    noted: Option<Instant>,
    gone: bool,
    last_progress: Option<Instant>,
}

impl<'a> Watcher<'a> {
    pub(super) fn new(events: &'a mut dyn Write, listener: &'a mut dyn FnMut(&Event)) -> Watcher<'a> {
        let (status_path, status) = (None, Status::default());
        Watcher { events, listener, status_path, status, noted: None, gone: false, last_progress: None }
    }

    /// Adds to this watcher the status file of the study in `folder`.
    pub(super) fn of_study(self, folder: &Path) -> Watcher<'a> {
        Watcher { status_path: Some(folder.join(STATUS)), ..self }
    }

    /// Whether nobody reads the events any more.
    pub(super) fn is_gone(&self) -> bool {
        self.gone
    }

    /// Writes an event that changes the search's status into the status file, for watchers that come later.
    pub(super) fn note(&mut self, event: &Event) {
        (self.listener)(event);
        match event {
            Event::Progress(progress) => {
                self.status.progress = progress.clone();
                // The next progress event, or the end of the search, writes it.
                if self.noted.is_some_and(|noted| noted.elapsed() < STATUS_INTERVAL) {
                    return;
                }
            }
            Event::Finished { reason } => self.status.finish = Some(reason.clone()),
            Event::Error { message } => self.status.error = Some(message.clone()),
            Event::Opened { .. }
            | Event::TrialStarted { .. }
            | Event::Executed { .. }
            | Event::Reported { .. }
            | Event::TrialEnded { .. } => return,
        }
        let Some(path) = &self.status_path else { return };
        self.noted = Some(Instant::now());
        let partial = path.with_extension("partial");
        let text = serde_json::to_vec(&self.status).map_err(io::Error::from);
        // The file is not synced: after a crash the journal has all facts of the study.
        let noted = text.and_then(|text| fs::write(&partial, text)).and_then(|()| fs::rename(&partial, path));
        if let Err(error) = noted {
            tracing::warn!(path = %path.display(), %error, "the status of the search cannot be written");
        }
    }

    pub(super) fn send(&mut self, event: &Event) {
        self.note(event);
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
        self.last_progress.is_none_or(|last| last.elapsed() >= PROGRESS_INTERVAL)
    }
}

impl Supervisor<'_> {
    /// Sends the search's progress, unless it was sent just now.
    pub(super) fn tick_progress(&mut self, sessions: &[Session]) {
        if self.watcher.wants_progress() {
            self.send_progress(sessions);
        }
    }

    /// Sends the state of the study before this search has done anything.
    pub(super) fn send_first_progress(&mut self) {
        let progress = self.progress(&[]);
        self.watcher.send(&Event::Progress(progress));
    }

    /// Sends the progress of the search.
    pub(super) fn send_progress(&mut self, sessions: &[Session]) {
        let progress = self.progress(sessions);
        self.watcher.send(&Event::Progress(progress));
        self.watcher.last_progress = Some(Instant::now());
    }

    fn progress(&self, sessions: &[Session]) -> Progress {
        let (trials, spec) = (self.search.trials(), &self.search.spec);
        let here = sessions.iter().map(|session| (session.trial.number, session.worker.elapsed().as_secs_f64()));
        let there = self.elsewhere.iter().flat_map(|elsewhere| &elsewhere.seen);
        let running: Vec<(u64, f64)> =
            here.chain(there.map(|(number, since)| (*number, since.elapsed().as_secs_f64()))).collect();
        let elapsed_s = self.started.elapsed().as_secs_f64();
        let planned_epochs = self.search.planned_epochs();
        let course = Course { elapsed_s, earlier_s: self.earlier.seconds, running: &running, planned_epochs };
        Progress {
            earlier: self.earlier.done,
            running: match &self.elsewhere {
                Some(elsewhere) => self.running_elsewhere(elsewhere),
                None => sessions.iter().map(|session| self.running(session)).collect(),
            },
            workers: self.elsewhere.as_ref().map(|elsewhere| elsewhere.text.clone()),
            stopping: self.phase.is_stopping(),
            elapsed_s,
            eta_s: remaining::seconds(trials, spec, &course),
            supervisor_bytes: own_resident_bytes(),
            ..study_progress(trials, spec)
        }
    }

    fn running(&self, session: &Session) -> Running {
        self.running_trial(session.trial.number, Some(session.held.memory_bytes))
    }

    pub(super) fn running_trial(&self, number: u64, memory_bytes: Option<u64>) -> Running {
        let record = self.search.record(number);
        let parameters = record.parameters.iter().map(|(name, parameter)| (name.clone(), parameter.value.clone()));
        Running {
            trial: number,
            parameters: parameters.collect(),
            step: record.last_step(),
            value: self.last_value(record),
            epochs: record.epochs,
            execution: record.executions.len() as u64,
            memory_bytes,
        }
    }

    /// The trial's last reported value of the first objective.
    fn last_value(&self, record: &TrialRecord) -> Option<f64> {
        let metric = &self.search.spec.objective().metric;
        record.metrics.values().rev().find_map(|metrics| metrics.get(metric).copied().flatten())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress(done: u64) -> Event {
        Event::Progress(Progress { done, ..Progress::default() })
    }

    #[test]
    fn status_is_written_at_a_bounded_rate_and_at_the_end() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        let mut events = Vec::new();
        let mut listener = |_: &Event| {};
        let mut watcher = Watcher::new(&mut events, &mut listener).of_study(folder.path());
        let done = || last_status(folder.path()).map(|status| status.map(|status| status.progress.done));
        watcher.send(&progress(1));
        assert_eq!(done()?, Some(1));
        let since = watcher.noted;
        for more in 2..50 {
            watcher.send(&progress(more));
        }
        assert!(watcher.noted == since || since.is_some_and(|since| since.elapsed() >= STATUS_INTERVAL));
        watcher.send(&Event::Finished { reason: ferrotune_space::event::Finish::MaxTrials });
        assert_eq!(done()?, Some(49));
        assert_eq!(events.iter().filter(|byte| **byte == b'\n').count(), 50);
        Ok(())
    }
}
