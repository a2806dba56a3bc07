//! The study's folder beside its journal: all that its trials need, so that it goes on after the session that began it,
//! in another place, or on another machine. Removes the checkpoints that nobody will ask for.

use super::code::CHUNK_BYTES;
use super::error::file_error;
use super::{Search, SupervisorError};
use crate::analysis::ranking;
use crate::checkpoint::step_of;
use crate::checkpoint::{checkpoint_generation, is_partial_checkpoint};
use crate::folder::{self, FolderError};
use crate::journal::Journal;
use crate::record::TrialRecord;
use crate::spec::{StudySpec, Supervision};
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Seek as _};
use std::path::{Path, PathBuf};

/// The objective.
const LIBRARY: &str = "objective.so";
/// The variables that it captured.
const SHARED: &str = "shared.safetensors";
/// What it was linked with.
const LIBRARIES: &str = "libraries";

/// The spec as the study keeps it: its files by their names in the study's folder.
pub(super) fn stored(spec: &StudySpec) -> StudySpec {
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

/// The spec of the study in a folder, to go on with it wherever that folder is now. Fails where there is none, where it
/// cannot be read, and where something in it leads out of the folder, which may come from anyone.
pub fn spec_of(study: &Path) -> Result<StudySpec, SupervisorError> {
    let study = &fs::canonicalize(study).map_err(file_error("find the study", study))?;
    let spec = Journal::read(study)?.spec;
    if spec.library.as_os_str().is_empty() {
        return Err(SupervisorError::OwnProgram { study: study.clone() });
    }
    folder::refuse_links(&study.join(LIBRARIES))?;
    let mut libraries = Vec::new();
    for library in spec.supervision.libraries {
        if library.file_name() != Some(library.as_os_str()) {
            return Err(SupervisorError::StrayLibrary { study: study.clone(), library });
        }
        libraries.push(study.join(LIBRARIES).join(library));
    }
    Ok(StudySpec {
        directory: study.parent().unwrap_or(study).to_path_buf(),
        project: study.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        library: study.join(LIBRARY),
        shared: spec.shared.map(|_| study.join(SHARED)),
        supervision: Supervision { libraries, ..spec.supervision },
        ..spec
    }
    .without_call())
}

/// What a trial of the study in a folder has printed last; empty if nothing is kept.
pub fn output_of(study: &Path, number: u64) -> Result<Vec<u8>, SupervisorError> {
    let folder = study.join("trials").join(number.to_string());
    refuse_links_of_trial(&folder)?;
    let path = folder.join("output.log");
    match fs::read(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        output => output.map_err(file_error("read", &path)),
    }
}

/// The data of a study that its workers are given.
#[derive(Debug)]
pub(super) struct Files {
    pub(super) shared: Option<File>,
}

impl Files {
    /// Puts what `spec` names into the study's folder, where it is not there already. All of it is copied before any of it
    /// gets its name. Its code is kept there for another time; workers load it from memory.
    ///
    /// # Errors
    /// Where a file cannot be read or copied; what the study had before is all there then. And where a copy cannot get its
    /// name, as on a disk that fails: some of the study's files are the new ones then, and the next start replaces the rest.
    pub(super) fn install(spec: &StudySpec, study: &Path) -> Result<Files, SupervisorError> {
        let (shared, libraries) = (study.join(SHARED), study.join(LIBRARIES));
        let mut wanted = Vec::new();
        // A program that has its objective in it needs no library.
        if !spec.library.as_os_str().is_empty() {
            wanted.push((spec.library.as_path(), study.join(LIBRARY), By::Copy));
        }
        wanted.extend(spec.shared.as_deref().map(|source| (source, shared.clone(), By::Copy)));
        folder::refuse_links(&libraries)?;
        for source in &spec.supervision.libraries {
            wanted.push((source, libraries.join(source.file_name().unwrap_or_default()), By::LinkOrCopy));
        }
        if !spec.supervision.libraries.is_empty() {
            folder::create_and_sync(&libraries).map_err(copy_error(&libraries, study))?;
        }
        let mut copies = Copies::default();
        wanted.iter().try_for_each(|(source, target, by)| copies.add(source, target, *by, study))?;
        copies.put_in_place(study)?;
        let open = |path: &Path| File::open(path).map_err(file_error("open the shared data", path));
        Ok(Files { shared: spec.shared.as_ref().map(|_| open(&shared)).transpose()? })
    }
}

/// How a file comes into the study's folder.
#[derive(Clone, Copy)]
enum By {
    Copy,
    /// A library is never changed where it is, so a second name is as good as a copy and costs nothing.
    LinkOrCopy,
}

/// Copies that have not the names yet under which the study has them. Removed when this is dropped before they have.
#[derive(Default)]
struct Copies {
    /// Each with its name now, and the one that it is to have.
    partial: Vec<(PathBuf, PathBuf)>,
}

impl Copies {
    /// Copies a file to be put at `target`, unless it is there.
    fn add(&mut self, source: &Path, target: &Path, by: By, study: &Path) -> Result<(), SupervisorError> {
        if is_same_file(source, target) {
            return Ok(());
        }
        let name = target.file_name().unwrap_or_default();
        let mut from = File::open(source).map_err(read_error("read", source, study))?;
        // A study on another disk than the prelude has had a copy since it began.
        if has_same_bytes(&mut from, target).map_err(copy_error(target, study))? {
            return Ok(());
        }
        let partial = target.with_file_name(format!("{}.partial", name.display()));
        self.partial.push((partial.clone(), target.to_path_buf()));
        let copied = remove_file(&partial).and_then(|()| match by {
            By::LinkOrCopy if fs::canonicalize(source).and_then(|file| fs::hard_link(file, &partial)).is_ok() => Ok(()),
            // So, too, where the library is on another file system, or on one without links.
            By::Copy | By::LinkOrCopy => {
                let mut to = File::create(&partial)?;
                io::copy(&mut from, &mut to)?;
                to.sync_all()
            }
        });
        copied.map_err(copy_error(target, study))
    }

    /// Gives the copies their names, one after the other. A machine that dies meanwhile leaves some files of the earlier
    /// search and some of this one, each of them whole; the next start replaces the rest.
    fn put_in_place(mut self, study: &Path) -> Result<(), SupervisorError> {
        while let Some((partial, target)) = self.partial.last() {
            let parent = target.parent().unwrap_or(study);
            let put = fs::rename(partial, target).and_then(|()| folder::sync(parent));
            put.map_err(copy_error(target, study))?;
            self.partial.pop();
        }
        Ok(())
    }
}

impl Drop for Copies {
    fn drop(&mut self) {
        for (partial, _) in &self.partial {
            if let Err(error) = remove_file(partial) {
                tracing::warn!(%error, path = %partial.display(), "a copy that was cut off stays until the next one");
            }
        }
    }
}

/// Whether `target` is there and holds what `from` does. `from` is at its beginning before and after.
fn has_same_bytes(from: &mut File, target: &Path) -> io::Result<bool> {
    let to = match File::open(target) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        opened => opened?,
    };
    if from.metadata()?.len() != to.metadata()?.len() {
        return Ok(false);
    }
    let same = is_equal(BufReader::with_capacity(CHUNK_BYTES, &*from), BufReader::with_capacity(CHUNK_BYTES, to))?;
    from.rewind()?;
    Ok(same)
}

fn is_equal(mut one: impl BufRead, mut other: impl BufRead) -> io::Result<bool> {
    loop {
        let (left, right) = (one.fill_buf()?, other.fill_buf()?);
        let length = left.len().min(right.len());
        if left[..length] != right[..length] {
            return Ok(false);
        }
        if length == 0 {
            return Ok(left.len() == right.len());
        }
        one.consume(length);
        other.consume(length);
    }
}

/// Why a file that the study needs cannot be read: one that should be in the study's own folder may be gone.
pub(super) fn read_error(
    action: &'static str,
    source: &Path,
    study: &Path,
) -> impl FnOnce(io::Error) -> SupervisorError {
    let (source, study) = (source.to_path_buf(), study.to_path_buf());
    move |error| match error.kind() {
        io::ErrorKind::NotFound if source.starts_with(&study) => {
            let file = source.file_name().unwrap_or_default().to_string_lossy().into_owned();
            SupervisorError::Lacking { file, study }
        }
        _ => file_error(action, &source)(error),
    }
}

fn copy_error(target: &Path, study: &Path) -> impl FnOnce(io::Error) -> SupervisorError {
    let file = target.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let study = study.to_path_buf();
    move |source| SupervisorError::Copy { file, study, source }
}

fn remove_file(path: &Path) -> io::Result<()> {
    folder::removed(fs::remove_file(path))
}

/// A checkpoint is never changed where it is, so a second name is as good as a copy and costs nothing.
pub(super) fn link(source: &Path, target: &Path) -> io::Result<()> {
    // One name of a file put over another one of it does nothing, and would leave both.
    if is_same_file(source, target) {
        return Ok(());
    }
    let partial = target.with_extension("link");
    remove_file(&partial)?;
    match fs::hard_link(source, &partial) {
        Ok(()) => fs::rename(&partial, target),
        // Another file system, or one without links.
        Err(_) => folder::install(source, target),
    }
}

fn is_same_file(source: &Path, target: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    let facts = |path: &Path| fs::metadata(path).map(|file| (file.len(), file.ino(), file.dev()));
    fs::canonicalize(source).is_ok_and(|source| source == target)
        || matches!((facts(source), facts(target)), (Ok(source), Ok(target)) if source == target)
}

/// Refuses a trial's folder that leads elsewhere, and names of ours in it that do. What the objective itself has put there
/// is its own affair.
pub fn refuse_links_of_trial(folder: &Path) -> Result<(), FolderError> {
    folder::refuse_link(folder)?;
    folder::refuse_links_of(folder, |name| {
        let name = name.to_string_lossy();
        name == "output.log" || name == "tmp" || name.starts_with("checkpoint-")
    })
}

impl Search<'_> {
    /// Removes the checkpoints of trials that have ended and are not among the best.
    pub(super) fn remove_losers(&mut self) -> Result<(), SupervisorError> {
        for number in losers(&self.trials, &self.spec) {
            let folder = self.folder.join("trials").join(number.to_string());
            remove_checkpoints(&folder).map_err(file_error("remove checkpoints in", &folder))?;
            self.journal.checkpoint_removed(number)?;
            if let Some(mirror) = &self.mirror {
                mirror.forget(number);
            }
            self.record_mut(number).checkpoint = None;
        }
        Ok(())
    }
}

/// The trials whose checkpoints are of no use: they have ended, and are not among the best that are kept.
fn losers(trials: &[TrialRecord], spec: &StudySpec) -> Vec<u64> {
    let ended = trials.iter().filter(|trial| trial.ending.is_some() && trial.checkpoint.is_some());
    let ended: Vec<u64> = ended.map(|trial| trial.number).collect();
    if ended.is_empty() {
        return ended;
    }
    let keep = usize::try_from(spec.supervision.keep_best).unwrap_or(usize::MAX);
    let kept: Vec<u64> = ranking::ranked(trials, spec, keep).into_iter().map(|trial| trial.number).collect();
    ended.into_iter().filter(|number| !kept.contains(number)).collect()
}

fn remove_checkpoints(folder: &Path) -> io::Result<()> {
    let files = files_in(folder)?.into_iter();
    let ours = |name: &String| checkpoint_generation(name).is_some() || is_partial_checkpoint(name);
    files.filter(ours).try_for_each(|name| fs::remove_file(folder.join(name)))
}

/// Removes what workers that were killed while they wrote a checkpoint have left in the trials' folders.
pub(super) fn remove_all_leftovers(study: &Path, trials: &[TrialRecord]) -> Result<(), SupervisorError> {
    for trial in trials {
        let folder = study.join("trials").join(trial.number.to_string());
        remove_leftovers(&folder, trial.checkpoint.as_deref())
            .map_err(file_error("remove unfinished checkpoints in", &folder))?;
    }
    Ok(())
}

/// Removes the checkpoints in a trial's folder that are not whole, and those after `last`, which is the last one that
/// the journal knows. A file of such a name that is no checkpoint stays.
pub(super) fn remove_leftovers(folder: &Path, last: Option<&str>) -> io::Result<()> {
    let last = last.and_then(checkpoint_generation);
    for name in files_in(folder)? {
        let path = folder.join(&name);
        let is_untold = checkpoint_generation(&name).is_some_and(|generation| Some(generation) > last);
        if is_partial_checkpoint(&name) || is_untold && step_of(&path)?.is_some() {
            fs::remove_file(&path)?;
        } else if is_untold {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Ending;
    use crate::spec::{Direction, Objective, Supervision};

    #[test]
    fn only_the_best_and_those_that_may_go_on_keep_their_checkpoints() {
        let trial = |number: u64, ending: Option<Ending>, value: Option<f64>| {
            let checkpoint = Some("checkpoint-000000.safetensors".to_owned());
            TrialRecord { ending, values: value.into_iter().collect(), checkpoint, ..TrialRecord::new(number) }
        };
        let losers = |trials: &[TrialRecord], direction, keep_best| {
            let supervision = Supervision { keep_best, ..Supervision::default() };
            let objectives = vec![Objective::new("accuracy", direction)];
            losers(trials, &StudySpec { supervision, ..StudySpec::new("digits", objectives) })
        };
        let finished = |number, value| trial(number, Some(Ending::Finished), Some(value));
        let mut trials = vec![
            finished(0, 0.3),
            finished(1, 0.5),
            trial(2, None, None),
            finished(3, 0.1),
            trial(4, Some(Ending::Pruned), Some(0.9)),
            finished(5, 0.5),
        ];
        assert_eq!(losers(&trials, Direction::Max, 2), [0, 3, 4]);
        assert_eq!(losers(&trials, Direction::Min, 1), [0, 1, 4, 5]);
        trials[0].checkpoint = None;
        assert_eq!(losers(&trials, Direction::Max, 2), [3, 4]);
    }
}
