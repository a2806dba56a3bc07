//! The folder of a worker, with a lock that the worker holds while it lives. A killed worker leaves its folder, and the next worker
//! of the same user on the same host removes this folder, unless it has checkpoints that other workers go on with. A folder without
//! such a lock is never removed.

use crate::folders::lock::{Found, alone, find_alone};
use anyhow::{Context as _, Result};
use ferrotune_journal::study_folder::{is_study, of_trial};
use ferrotune_journal::{Journal, host};
use ferrotune_space::record::TrialRecord;
use std::fs::{self, DirEntry, File};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

const PREFIX: &str = "ferrotune-worker-";
/// Name of the lock file. It contains the name of the host, since a lock on a shared disk may be known on one host only.
const LOCK: &str = "worker.lock";

/// The folder of a living worker.
pub(super) struct WorkerFolder {
    folder: tempfile::TempDir,
    /// The lock of the folder, which is held until the folder is removed.
    _lock: File,
}

impl WorkerFolder {
    pub(super) fn make(directory: &Path) -> Result<WorkerFolder> {
        let folder = tempfile::Builder::new().prefix(PREFIX).tempdir_in(directory);
        let folder = folder
            .with_context(|| format!("cannot make a folder in {}; choose another --directory", directory.display()))?;
        let path = folder.path().join(LOCK);
        let lock = alone(&path).and_then(|lock| fs::write(&path, host()).map(|()| lock));
        let lock = lock.with_context(|| format!("cannot lock {}", path.display()))?;
        Ok(WorkerFolder { folder, _lock: lock })
    }

    /// The path of the folder without symbolic links.
    pub(super) fn path(&self) -> Result<PathBuf> {
        self.folder.path().canonicalize().context("cannot find the worker's folder")
    }

    /// Removes the folder, unless it has checkpoints that other workers go on with; then a line on standard error says so.
    pub(super) fn leave(self, study: &Path) -> Result<()> {
        match waiting_checkpoints(study)? {
            0 => {
                let path = self.folder.path().to_owned();
                self.folder.close().with_context(|| format!("cannot remove {}", path.display()))
            }
            waiting => {
                eprintln!("{}", kept(&self.folder.keep(), waiting));
                Ok(())
            }
        }
    }
}

fn kept(folder: &Path, waiting: usize) -> String {
    format!("{} stays: it has the checkpoints of {waiting} trials that others go on with", folder.display())
}

/// How many trials without an ending have their checkpoints in this study's folder.
fn waiting_checkpoints(study: &Path) -> Result<usize> {
    let trials = Journal::read(study)?.trials;
    let waits = |trial: &&TrialRecord| {
        let file = trial.checkpoint.as_ref().filter(|_| trial.ending.is_none());
        file.is_some_and(|file| of_trial(study, trial.number).join(file).is_file())
    };
    Ok(trials.iter().filter(waits).count())
}

/// Removes the folders in `directory` of workers that have died on this host; returns a line for each folder that has to stay.
pub(super) fn remove_those_of_the_dead(directory: &Path) -> Vec<String> {
    let unread = |error| format!("cannot look for folders of dead workers in {}: {error}", directory.display());
    let folders = match fs::read_dir(directory) {
        Ok(folders) => folders,
        Err(error) => return vec![unread(error)],
    };
    let is_named = |folder: &DirEntry| folder.file_name().as_encoded_bytes().starts_with(PREFIX.as_bytes());
    let line = |folder: io::Result<DirEntry>| match folder {
        Ok(folder) => is_named(&folder).then(|| remove_if_dead(&folder))?,
        Err(error) => Some(unread(error)),
    };
    folders.filter_map(line).collect()
}

fn remove_if_dead(folder: &DirEntry) -> Option<String> {
    let path = folder.path();
    let removed = || -> Result<Option<String>> {
        let Some(_lock) = lock_of_a_dead_one(folder)? else { return Ok(None) };
        for study in fs::read_dir(&path)? {
            let study = study?.path();
            // A worker without a study has not begun a trial.
            let waiting = if is_study(&study) { waiting_checkpoints(&study)? } else { 0 };
            if waiting > 0 {
                return Ok(Some(kept(&path, waiting)));
            }
        }
        fs::remove_dir_all(&path)?;
        Ok(None)
    };
    removed().unwrap_or_else(|error| Some(format!("{} of a dead worker stays: {error:#}", path.display())))
}

/// The lock of a folder whose worker was this user's, ran on this host, and is dead; none for any other folder.
fn lock_of_a_dead_one(folder: &DirEntry) -> io::Result<Option<File>> {
    let about = folder.metadata()?;
    if !about.is_dir() || about.uid() != rustix::process::geteuid().as_raw() {
        return Ok(None);
    }
    let path = folder.path().join(LOCK);
    let Found::Taken(lock) = find_alone(&path)? else { return Ok(None) };
    Ok((fs::read_to_string(&path)? == host()).then_some(lock))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_folders_that_a_dead_worker_has_made_are_removed() -> Result<()> {
        let directory = tempfile::tempdir()?;
        let folder = |name: &str, host: Option<&str>| -> Result<PathBuf> {
            let path = directory.path().join(name);
            fs::create_dir_all(path.join("digits/trials/0"))?;
            host.map_or(Ok(()), |host| fs::write(path.join(LOCK), host))?;
            Ok(path)
        };
        let here = host();
        let dead = folder("ferrotune-worker-dead", Some(&here))?;
        let stay = [
            folder("ferrotune-worker-elsewhere", Some("another host"))?,
            folder("ferrotune-worker-unlocked", None)?,
            folder("ferrotune-worker-half", Some(""))?,
            folder("somebody's", Some(&here))?,
        ];
        let living = WorkerFolder::make(directory.path())?;
        // A study that cannot be read may need what is there.
        let unread = folder("ferrotune-worker-unread", Some(&here))?;
        fs::write(unread.join("digits/storage.json"), "{}")?;
        std::os::unix::fs::symlink(&stay[3], directory.path().join("ferrotune-worker-link"))?;
        let said = remove_those_of_the_dead(directory.path());
        assert!(!dead.exists() && living.path()?.exists() && unread.exists());
        assert!(stay.iter().all(|path| path.exists()));
        let [line] = said.as_slice() else { panic!("{said:?}") };
        assert!(line.starts_with(&format!("{} of a dead worker stays: ", unread.display())), "{line}");
        Ok(())
    }
}
