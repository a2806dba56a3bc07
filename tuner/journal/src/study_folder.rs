//! What lies in a study's folder: the names of its files, and the folders of its trials with their checkpoints.

use crate::folder::{self, FolderError};
use ferrotune_space::checkpoint::{checkpoint_generation, is_partial_checkpoint, step_of};
use ferrotune_space::record::TrialRecord;
use ferrotune_space::spec::StudySpec;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The journal.
pub const JOURNAL: &str = "journal.log";
/// In place of a journal: where the study is, if that is a database.
pub(crate) const STORAGE: &str = "storage.json";
/// Lines that were cut off from the journal's end.
pub(crate) const TORN_LINES: &str = "journal.torn";
/// Optuna's lock of the journal.
pub(crate) const APPEND_LOCK: &str = "journal.log.lock";
/// The lock of the study. It stays there: deleting it would let two processes lock two files.
pub(crate) const LOCK: &str = "lock";
/// The [`Status`](ferrotune_space::event::Status) of the last search.
pub const STATUS: &str = "status.json";
/// The objective.
pub const LIBRARY: &str = "objective.so";
/// The variables that it captured.
pub const SHARED: &str = "shared.safetensors";
/// What it was linked with.
pub const LIBRARIES: &str = "libraries";
/// The folders of the trials.
pub const TRIALS: &str = "trials";
/// The folder for the files and logs of workers that an engine runs.
pub const WORKERS: &str = "workers";
/// In a trial's folder: what it has printed.
pub const OUTPUT: &str = "output.log";
/// In a trial's folder: its temporary files.
pub(crate) const SCRATCH: &str = "tmp";

/// A file of a study could not be written or read.
#[derive(Debug, thiserror::Error)]
#[error("cannot {what} {path}: {source}")]
pub struct FileError {
    /// What was tried.
    what: &'static str,
    /// The file.
    path: PathBuf,
    /// The system's reason.
    source: io::Error,
}

/// For `map_err`: names what was tried.
pub fn file_error(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> FileError {
    move |source| FileError { what, path: path.to_path_buf(), source }
}

/// Whether a folder has a study, which is in its journal or in a database that the folder names.
pub fn is_study(folder: &Path) -> bool {
    [JOURNAL, STORAGE].iter().any(|name| folder.join(name).is_file())
}

/// When the study in a folder, or a search of it from there, changed something last; `None` if the folder has no study.
pub fn last_change(folder: &Path) -> Option<SystemTime> {
    let changed = |name: &&str| fs::metadata(folder.join(name)).and_then(|file| file.modified()).ok();
    is_study(folder).then(|| [JOURNAL, STORAGE, STATUS].iter().filter_map(changed).max())?
}

/// The folder of a trial.
pub fn of_trial(study: &Path, number: u64) -> PathBuf {
    study.join(TRIALS).join(number.to_string())
}

/// The spec as the study keeps it: its files by their names in the study's folder.
pub fn stored(spec: &StudySpec) -> StudySpec {
    let mut stored = spec.clone();
    if !spec.library.as_os_str().is_empty() {
        stored.library = PathBuf::from(LIBRARY);
    }
    stored.shared = spec.shared.as_ref().map(|_| PathBuf::from(SHARED));
    for library in &mut stored.supervision.libraries {
        *library = library.file_name().map(PathBuf::from).unwrap_or_default();
    }
    stored
}

/// Refuses a trial's folder that leads elsewhere, and names of ours in it that do. What the objective itself has put there
/// is its own affair.
pub fn refuse_links_of_trial(folder: &Path) -> Result<(), FolderError> {
    folder::refuse_link(folder)?;
    folder::refuse_links_of(folder, |name| {
        let name = name.to_string_lossy();
        name == OUTPUT || name == SCRATCH || name.starts_with("checkpoint-")
    })
}

/// Removes all checkpoints of a trial.
pub fn remove_checkpoints(folder: &Path) -> io::Result<()> {
    let files = files_in(folder)?.into_iter();
    let ours = |name: &String| checkpoint_generation(name).is_some() || is_partial_checkpoint(name);
    files.filter(ours).try_for_each(|name| fs::remove_file(folder.join(name)))
}

/// Removes what workers that were killed while they wrote a checkpoint have left in the trials' folders.
pub fn remove_all_leftovers(study: &Path, trials: &[TrialRecord]) -> Result<(), FileError> {
    for trial in trials {
        let folder = of_trial(study, trial.number);
        remove_leftovers(&folder, trial.checkpoint.as_deref())
            .map_err(file_error("remove unfinished checkpoints in", &folder))?;
    }
    Ok(())
}

/// Removes the checkpoints in a trial's folder that are not whole, and those after `last`, which is the last one that
/// the journal knows. A file of such a name that is no checkpoint stays.
pub fn remove_leftovers(folder: &Path, last: Option<&str>) -> io::Result<()> {
    let last = last.and_then(checkpoint_generation);
    for name in files_in(folder)? {
        let path = folder.join(&name);
        let is_unrecorded = checkpoint_generation(&name).is_some_and(|generation| Some(generation) > last);
        if is_partial_checkpoint(&name) || is_unrecorded && step_of(&path)?.is_some() {
            fs::remove_file(&path)?;
        } else if is_unrecorded {
            tracing::warn!(path = %path.display(), "this file is no checkpoint of the search and stays");
        }
    }
    Ok(())
}

/// The names of the files in a trial's folder, which must not lead elsewhere; none where there is no folder, as in a study
/// that came back from its mirror.
fn files_in(folder: &Path) -> io::Result<Vec<String>> {
    folder::refuse_link(folder)?;
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            names.extend(entry.file_name().into_string());
        }
    }
    Ok(names)
}

/// A checkpoint is never changed where it is, so a second name is as good as a copy and costs nothing.
pub fn link(source: &Path, target: &Path) -> io::Result<()> {
    // One name of a file put over another one of it does nothing, and would leave both.
    if is_same_file(source, target) {
        return Ok(());
    }
    let partial = target.with_extension("link");
    folder::removed(fs::remove_file(&partial))?;
    match fs::hard_link(source, &partial) {
        Ok(()) => fs::rename(&partial, target),
        // Another file system, or one without links.
        Err(_) => folder::install(source, target),
    }
}

/// Whether two paths lead to one file.
pub fn is_same_file(source: &Path, target: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    let facts = |path: &Path| fs::metadata(path).map(|file| (file.len(), file.ino(), file.dev()));
    fs::canonicalize(source).is_ok_and(|source| source == target)
        || matches!((facts(source), facts(target)), (Ok(source), Ok(target)) if source == target)
}
