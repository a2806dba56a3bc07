//! TensorBoard's files of a search, which grow while it runs.

use crate::engine::write_event_files;
use anyhow::{Context, Result};
use ferrotune_journal::Journal;
use ferrotune_journal::study_folder::is_study;
use ferrotune_results::tensorboard;
use ferrotune_space::event::Event;
use ferrotune_space::spec::StudySpec;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The shortest time between two writes.
const INTERVAL: Duration = Duration::from_secs(2);

/// The part of the time that writes may take is one divided by this number.
const SHARE: u32 = 20;

/// The writer of a search's TensorBoard files, if the search asks for them.
pub(crate) struct EventFiles {
    target: Option<PathBuf>,
    study: PathBuf,
    /// When to write the files next.
    due: Instant,
}

impl EventFiles {
    pub(crate) fn of(spec: &StudySpec) -> EventFiles {
        let target = spec.supervision.tensorboard.clone();
        EventFiles { target, study: spec.directory.join(&spec.project), due: Instant::now() }
    }

    /// The writer for the search that a file describes. For a file that cannot be read it writes nothing; the search reports the error.
    pub(crate) fn of_file(path: &Path) -> EventFiles {
        let spec = fs::read(path).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
        EventFiles::of(&spec.unwrap_or_default())
    }

    /// Fails if the folder cannot be made, or has the events of another search.
    pub(crate) fn check(spec: &StudySpec) -> Result<()> {
        let Some(target) = &spec.supervision.tensorboard else { return Ok(()) };
        fs::create_dir_all(target).with_context(|| format!("cannot create {}", target.display()))?;
        let study = spec.directory.join(&spec.project);
        let goes_on = !spec.overwrite && is_study(&study);
        let files = if goes_on { tensorboard::files(&Journal::read(&study)?) } else { Vec::new() };
        write_event_files(target, &files)
    }

    /// Writes the files, if the next write is due or the search is over.
    pub(crate) fn take(&mut self, event: &Event) {
        let Some(target) = &self.target else { return };
        let is_end = matches!(event, Event::Finished { .. } | Event::Error { .. });
        let is_open = !matches!(event, Event::Opened { .. }) && is_study(&self.study);
        if !is_open || !is_end && Instant::now() < self.due {
            return;
        }
        let begin = Instant::now();
        let written = Journal::read(&self.study).map_err(Into::into);
        let written = written.and_then(|study| write_event_files(target, &tensorboard::files(&study)));
        if let Err(error) = written {
            // The search itself is not harmed, and the next time writes what is missing.
            tracing::warn!("TensorBoard's files are behind the search: {error:#}");
        }
        self.due = Instant::now() + INTERVAL.max(begin.elapsed() * SHARE);
    }
}
