//! TensorBoard's files of a search, which grow while it runs.

use crate::disk::write_whole;
use anyhow::{Context, Result, bail};
use ferrotune_journal::Journal;
use ferrotune_journal::study_folder::is_study;
use ferrotune_results::tensorboard::{self, EventFile};
use ferrotune_space::event::Event;
use ferrotune_space::spec::StudySpec;
use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
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

/// Writes TensorBoard's files. Appends to a file that has grown, so that a running TensorBoard goes on reading it.
///
/// Fails if the folder has the events of another search: TensorBoard would mix up the parameters of the two.
pub(crate) fn write_event_files(target: &Path, files: &[EventFile]) -> Result<()> {
    refuse_others(target, files)?;
    for EventFile { path, bytes } in files {
        let path = target.join(path);
        let folder = path.parent().unwrap_or(target);
        fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
        let earlier = match fs::read(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            read => Some(read.with_context(|| format!("cannot read {}", path.display()))?),
        };
        match earlier.and_then(|earlier| bytes.strip_prefix(earlier.as_slice())) {
            Some([]) => {}
            Some(rest) => append(&path, rest).with_context(|| format!("cannot write {}", path.display()))?,
            None => write_whole(&path, bytes).with_context(|| format!("cannot write {}", path.display()))?,
        }
    }
    Ok(())
}

fn refuse_others(target: &Path, files: &[EventFile]) -> Result<()> {
    let entries = match fs::read_dir(target) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        entries => entries.with_context(|| format!("cannot read {}", target.display()))?,
    };
    for entry in entries {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name.starts_with("events.out.tfevents.") && files.iter().all(|file| file.path != name) {
            bail!("{} has the events of another search; name another folder, or remove it", target.display());
        }
    }
    Ok(())
}

fn append(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().append(true).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}
