//! The contents of a study's folder: the names of its files, and the folders of its trials with their checkpoints.

use crate::folder::{self, FolderError};
use ferrotune_space::checkpoint::{checkpoint_generation, is_partial_checkpoint, step_of};
use ferrotune_space::record::TrialRecord;
use ferrotune_space::spec::StudySpec;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The name of the journal.
pub const JOURNAL: &str = "journal.log";
/// The name of the file that replaces a journal if the study is in a database: it stores the study's place there.
pub(crate) const STORAGE: &str = "storage.json";
/// The name of the file with lines that were cut off from the journal's end.
pub(crate) const TORN_LINES: &str = "journal.torn";
/// The name of Optuna's lock of the journal.
pub(crate) const APPEND_LOCK: &str = "journal.log.lock";
/// The name of the study's lock. The file is never deleted: otherwise two processes could lock two different files.
pub(crate) const LOCK: &str = "lock";
/// The name of the file with the [`Status`](ferrotune_space::event::Status) of the last search.
pub const STATUS: &str = "status.json";
/// The name of the objective's library.
pub const LIBRARY: &str = "objective.so";
/// The name of the file with the variables that the objective captured.
pub const SHARED: &str = "shared.safetensors";
/// The name of the folder with the libraries that the objective was linked with.
pub const LIBRARIES: &str = "libraries";
/// The name of the folder with the trials' folders.
pub const TRIALS: &str = "trials";
/// The name of the folder for the files and logs of workers that an engine runs.
pub const WORKERS: &str = "workers";
/// The name of the file with a trial's output, in the trial's folder.
pub const OUTPUT: &str = "output.log";
/// The name of the folder for temporary files, in a trial's folder.
pub(crate) const SCRATCH: &str = "tmp";

/// A failed read or write of a study's file.
#[derive(Debug, thiserror::Error)]
#[error("cannot {what} {path}: {source}")]
pub struct FileError {
    /// The operation that failed.
    what: &'static str,
    /// The path of the file.
    path: PathBuf,
    /// The system's reason.
    source: io::Error,
}

/// An error constructor for `map_err`, with a name for the operation that failed.
pub fn file_error(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> FileError {
    move |source| FileError { what, path: path.to_path_buf(), source }
}

/// Whether a folder has a study, either in its journal or in a database that the folder names.
pub fn is_study(folder: &Path) -> bool {
    [JOURNAL, STORAGE].iter().any(|name| folder.join(name).is_file())
}

/// The time of the last change of the study in a folder, or of a search from that folder; `None` if the folder has no
/// study.
pub fn last_change(folder: &Path) -> Option<SystemTime> {
    let changed = |name: &&str| fs::metadata(folder.join(name)).and_then(|file| file.modified()).ok();
    is_study(folder).then(|| [JOURNAL, STORAGE, STATUS].iter().filter_map(changed).max())?
}

/// The folder of a trial.
pub fn of_trial(study: &Path, number: u64) -> PathBuf {
    study.join(TRIALS).join(number.to_string())
}

/// The spec as the study stores it: its files are named relative to the study's folder.
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

/// Refuses a trial's folder that leads elsewhere, or in which a name of ours does. The objective may put any other names
/// there.
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

/// Removes the unfinished checkpoints in the trials' folders, which killed workers have left.
pub fn remove_all_leftovers(study: &Path, trials: &[TrialRecord]) -> Result<(), FileError> {
    for trial in trials {
        let folder = of_trial(study, trial.number);
        remove_leftovers(&folder, trial.checkpoint.as_deref())
            .map_err(file_error("remove unfinished checkpoints in", &folder))?;
    }
    Ok(())
}

/// Removes the incomplete checkpoints in a trial's folder, and those after `last`, which is the last one in the journal. A
/// file that is not a checkpoint stays, even if its name is similar.
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

/// The names of the files in a trial's folder, which must not lead elsewhere; empty if the folder does not exist, as in a
/// study that was restored from its mirror.
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

/// Links a checkpoint to `target`. A checkpoint is never changed in place, so a hard link is as good as a copy and costs
/// nothing.
pub fn link(source: &Path, target: &Path) -> io::Result<()> {
    // Renaming one hard link of a file over another does nothing, and would leave both.
    if is_same_file(source, target) {
        return Ok(());
    }
    let partial = target.with_extension("link");
    folder::removed(fs::remove_file(&partial))?;
    match fs::hard_link(source, &partial) {
        Ok(()) => fs::rename(&partial, target),
        // The target is on another file system, or on one without hard links.
        Err(_) => folder::install(source, target),
    }
}

/// Whether two paths lead to the same file.
pub fn is_same_file(source: &Path, target: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    let facts = |path: &Path| fs::metadata(path).map(|file| (file.len(), file.ino(), file.dev()));
    fs::canonicalize(source).is_ok_and(|source| source == target)
        || matches!((facts(source), facts(target)), (Ok(source), Ok(target)) if source == target)
}
