//! Restores a study from its mirror if the study's own folder is gone. Writes only while it holds the study's lock, and
//! only into a folder that is empty or holds the remains of an interrupted attempt.

use super::super::SupervisorError;
use super::{FIXED, WHOLE, copy_all, guard, names};
use ferrotune_journal::folder;
use ferrotune_journal::study_folder::{JOURNAL, LIBRARIES, TRIALS, file_error};
use ferrotune_journal::{Journal, JournalError, StudyLock};
use ferrotune_space::checkpoint::{checkpoint_file, checkpoint_generation};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// The name of a marker file that is in the study's folder from the first restored file to the last one. It distinguishes
/// the remains of an interrupted attempt from a user's files.
const UNFINISHED: &str = "restore.unfinished";

/// Restores the study into `study`, if the study is gone and the mirror has it.
///
/// # Errors
/// If another search holds the study's lock, if the folder contains anything else, which stays, or if a file cannot be
/// copied.
pub(in crate::supervisor) fn restore(mirror: &Path, study: &Path) -> Result<(), SupervisorError> {
    let has_study = || has_journal(study).map_err(file_error("read the study", study));
    if has_study()? || !mirror.exists() {
        return Ok(());
    }
    folder::refuse_links(mirror)?;
    let journals = names(mirror, guard::is_journal_copy).map_err(file_error("read the mirror", mirror))?;
    let Some(journal) = longest(journals.iter().map(|name| mirror.join(name)))? else { return Ok(()) };
    folder::create_and_sync(study).map_err(file_error("create", study))?;
    ferrotune_journal::refuse_links(study)?;
    let name = study.file_name().unwrap_or_default().to_string_lossy();
    let _lock = StudyLock::take(study, &name)?;
    // Another search may have restored the study before the lock was taken.
    if has_study()? {
        return Ok(());
    }
    if let Some(found) = foreign(study).map_err(file_error("read", study))? {
        let (study, mirror) = (study.to_path_buf(), mirror.to_path_buf());
        return Err(SupervisorError::NoStudy { study, found, mirror });
    }
    Ok(restore_files(mirror, &journal, study).map_err(file_error("bring the study back from", mirror))?)
}

/// The longest of these copies of a journal, and the last one among equals. A copy that was cut off at the end of a line is
/// a valid journal of some of the trials. Fails if there are copies but none can be read.
fn longest(copies: impl Iterator<Item = PathBuf>) -> Result<Option<PathBuf>, JournalError> {
    let (mut longest, mut unreadable) = (None, None);
    for copy in copies {
        match Journal::length_at(&copy) {
            Ok(Some(length)) => longest = longest.max(Some((length, copy))),
            Ok(None) => {}
            Err(error) => unreadable = Some(error),
        }
    }
    match (longest, unreadable) {
        (None, Some(error)) => Err(error),
        (longest, _) => Ok(longest.map(|(_, copy)| copy)),
    }
}

/// Whether a study is in this folder. The empty journal that a search without space for its files leaves is not a study.
fn has_journal(study: &Path) -> io::Result<bool> {
    match fs::metadata(study.join(JOURNAL)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        found => Ok(found?.len() > 0),
    }
}

/// A file in a folder without a study that no search has left there: neither a search that found no space for its files,
/// nor a search that was restoring the study.
fn foreign(study: &Path) -> io::Result<Option<PathBuf>> {
    if study.join(UNFINISHED).is_file() {
        return Ok(None);
    }
    for entry in fs::read_dir(study)? {
        let (entry, mut is_empty_folder) = (entry?, false);
        let name = entry.file_name();
        if name == LIBRARIES && entry.file_type()?.is_dir() {
            is_empty_folder = fs::read_dir(entry.path())?.next().is_none();
        }
        if name != JOURNAL && !is_empty_folder && !ferrotune_journal::is_lock(&entry) {
            return Ok(Some(entry.path()));
        }
    }
    Ok(None)
}

fn restore_files(mirror: &Path, journal: &Path, study: &Path) -> io::Result<()> {
    let unfinished = study.join(UNFINISHED);
    File::create(&unfinished)?.sync_all()?;
    folder::sync(study)?;
    let starts = names(mirror, guard::is_start)?;
    if let Some(start) = starts.iter().rev().map(|name| mirror.join(name)).find(|start| start.join(WHOLE).exists()) {
        for name in FIXED {
            remove_earlier(&study.join(name))?;
            copy_all(&start.join(name), &study.join(name))?;
        }
    }
    let trials = mirror.join(TRIALS);
    for trial in if trials.exists() { names(&trials, |name| name.parse::<u64>().is_ok())? } else { Vec::new() } {
        restore_checkpoints(&trials.join(&trial), &study.join(TRIALS).join(&trial))?;
    }
    // The journal comes last, because the study exists once its journal does.
    folder::install(journal, &study.join(JOURNAL))?;
    fs::remove_file(&unfinished)
}

/// Removes the remains of an earlier attempt to restore the study.
fn remove_earlier(path: &Path) -> io::Result<()> {
    folder::removed(if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) })
}

/// Restores the largest copy of each checkpoint generation, because a smaller copy was cut off. Among equals the last copy
/// is restored: a trial that is executed again writes a checkpoint again.
fn restore_checkpoints(from: &Path, to: &Path) -> io::Result<()> {
    for folder in [from, to] {
        folder::refuse_link(folder)?;
        folder::refuse_links(folder)?;
    }
    let mut copies: BTreeMap<u64, (u64, PathBuf)> = BTreeMap::new();
    for name in names(from, guard::is_checkpoint_copy)? {
        let Some(generation) = name.rsplit_once('.').and_then(|(file, _)| checkpoint_generation(file)) else {
            continue;
        };
        let path = from.join(&name);
        let copy = (fs::metadata(&path)?.len(), path);
        let largest = copies.entry(generation).or_insert_with(|| copy.clone());
        if copy.0 >= largest.0 {
            *largest = copy;
        }
    }
    folder::create_and_sync(to)?;
    copies.iter().try_for_each(|(number, (_, path))| folder::install(path, &to.join(checkpoint_file(*number))))
}

#[cfg(test)]
mod tests {
    use super::super::tests::mirrored;
    use super::*;

    type TestResult = Result<(), Box<dyn std::error::Error + Send + Sync>>;

    #[test]
    fn a_users_folder_of_that_name_is_left_alone() -> TestResult {
        let root = tempfile::tempdir()?;
        let (study, mirror) = (root.path().join("it"), root.path().join("drive/it"));
        mirrored(root.path(), &root.path().join("drive"))?;
        fs::remove_dir_all(&study)?;
        fs::create_dir_all(study.join("libraries"))?;
        fs::write(study.join("libraries/libstd.so"), "the user's")?;
        let message = restore(&mirror, &study).err().ok_or("it came back")?.to_string();
        assert!(message.contains("it/libraries, but no study"), "{message}");
        assert_eq!(fs::read_to_string(study.join("libraries/libstd.so"))?, "the user's");
        assert!(!study.join(JOURNAL).exists());

        // The remains of an interrupted attempt are replaced.
        fs::write(study.join(UNFINISHED), "")?;
        restore(&mirror, &study)?;
        assert_eq!(fs::read_to_string(study.join("libraries/libstd.so"))?, "code");
        assert!(has_journal(&study)? && !study.join(UNFINISHED).exists());
        Ok(())
    }

    #[test]
    fn study_is_brought_back_by_one_search_at_a_time() -> TestResult {
        let root = tempfile::tempdir()?;
        let (study, mirror) = (root.path().join("it"), root.path().join("drive/it"));
        mirrored(root.path(), &root.path().join("drive"))?;
        fs::remove_dir_all(&study)?;
        fs::create_dir(&study)?;
        let lock = StudyLock::take(&study, "it")?;
        let message = restore(&mirror, &study).err().ok_or("it came back")?.to_string();
        assert!(message.contains(&format!("process {}", std::process::id())), "{message}");
        assert!(!study.join(JOURNAL).exists() && !study.join("libraries").exists());
        drop(lock);
        restore(&mirror, &study)?;
        assert!(has_journal(&study)?);
        Ok(())
    }
}
