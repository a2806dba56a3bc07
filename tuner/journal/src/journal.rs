//! The study's journal: the facts of its trials. They are in an append-only file that Optuna's `JournalFileBackend` reads
//! and writes, with a checksum on each line of ours, or in the tables of Optuna's `RDBStorage`. The journal owns the
//! trials' records, which only facts change. One search at a time writes a file; any number of searches write to a
//! database. Any number of Optuna's processes write to either. A fact is on disk before the call that records it returns.

mod append_lock;
mod content;
mod database;
mod decode;
mod encode;
mod error;
mod fact;
mod format;
mod in_database;
mod in_file;
mod line;
mod lock;
mod recording;
mod replay;
mod shared_file;
mod state;
mod storage;

pub use content::Content;
pub use database::{DatabaseError, Dead, Look, StorageUrl, StorageUrlError};
pub use error::JournalError;
pub use lock::{Holder, holder_of, host};
pub use recording::{End, Usage};
pub use state::{Study, Times};

use crate::folder;
use crate::study_folder::{self, JOURNAL};
use database::Database;
use fact::Fact;
use ferrotune_space::record::TrialRecord;
use ferrotune_space::seed;
use ferrotune_space::spec::StudySpec;
use ferrotune_space::warm_start::WarmStart;
use in_database::InDatabase;
use in_file::InFile;
pub use lock::StudyLock;
use replay::{Known, Replay};
use std::borrow::Cow;
use std::fs::DirEntry;
use std::path::Path;
use storage::Storage;

/// The version of our own facts in the journal (Optuna's format has none).
const VERSION: u64 = 2;

/// A study that is open for writing. No other search can open its folder.
#[derive(Debug)]
pub struct Journal {
    spec: StudySpec,
    known: Known,
    storage: Box<dyn Storage>,
    /// Whether other searches may continue this search's open trials after it is closed.
    leaves_trials: bool,
    /// The lock of the study. The system releases it when its file is closed, however this process ends.
    _lock: StudyLock,
}

impl Journal {
    /// Opens or begins the study in `folder`; with `spec.storage`, the study is in that database.
    ///
    /// A torn last line is cut off, and kept in a file beside the journal. With `spec.overwrite` an earlier study is
    /// deleted first. Trials of a dead supervisor have no ending. Fails if the folder cannot be written, if another search
    /// has the study open, if the journal is damaged or of a newer version, if the study has another objective or another
    /// source of its objective, or if a name in the folder leads out of it.
    pub fn open(folder: &Path, spec: &StudySpec) -> Result<Journal, JournalError> {
        Ok(Journal::open_with(folder, spec, || Ok::<_, JournalError>(()))?.0)
    }

    /// Opens the study as [`Journal::open`] does, and calls `prepare` once the folder is locked, before anything is written
    /// about this search. If `prepare` fails, the journal stays unchanged; with `spec.overwrite` it is empty.
    pub fn open_with<T, E: From<JournalError>>(
        folder: &Path,
        spec: &StudySpec,
        prepare: impl FnOnce() -> Result<T, E>,
    ) -> Result<(Journal, T), E> {
        if spec.overwrite && holds_no_study(folder) {
            return Err(JournalError::NotAStudy { folder: folder.to_owned() }.into());
        }
        refuse_links(folder)?;
        let not_writable = |source| JournalError::NotWritable { folder: folder.to_owned(), source };
        folder::create_and_sync(folder).map_err(not_writable)?;
        let study_lock = StudyLock::take(folder, &spec.project)?;
        let mut known = Known { name: spec.project.clone(), ..Known::default() };
        let storage: Box<dyn Storage> = match &spec.storage {
            Some(address) => Box::new(in_database(folder, address, spec, &mut known)?),
            None => Box::new(in_file(folder, spec, &mut known)?),
        };
        folder::sync(folder).map_err(not_writable)?;
        if let Some(earlier) = known.replay.study.other_objectives(&spec.objectives) {
            let (study, wanted) = (spec.project.clone(), state::objectives_text(&spec.objectives));
            return Err(JournalError::OtherObjective { study, earlier, wanted }.into());
        }
        if let Some(trial) = known.replay.study.last_of_other_source(spec) {
            return Err(JournalError::OtherSource { study: spec.project.clone(), trial }.into());
        }
        let mut journal = Journal {
            spec: spec.clone(),
            known,
            storage,
            leaves_trials: spec.supervision.leaves_trials,
            _lock: study_lock,
        };
        let prepared = prepare()?;
        journal.begin()?;
        Ok((journal, prepared))
    }

    /// Reads the study in `folder`, or in the database that the folder names. Takes no lock, and works while a search
    /// writes the study. Fails if there is no study, if it is damaged or of a newer version, or if a name in the folder
    /// leads out of it.
    pub fn read(folder: &Path) -> Result<Study, JournalError> {
        refuse_links(folder)?;
        if let Some(study) = in_database::read(folder)? {
            return Ok(study);
        }
        let missing = || JournalError::Missing { folder: folder.to_owned() };
        let path = folder.join(JOURNAL);
        if !path.is_file() {
            return Err(missing());
        }
        let name = folder.file_name().unwrap_or(folder.as_os_str()).to_string_lossy();
        let study = Replay::of(&path, &name)?.study;
        let spec = study.spec.ok_or_else(missing)?;
        Ok(Study { spec, trials: study.trials, times: study.times, defaults: study.defaults })
    }

    /// Reads the study `name` in the database at an address, which `folder` need not name; none if there is no such database. Fails like
    /// [`Journal::read`].
    pub fn read_in(storage: &str, name: &str, folder: &Path) -> Result<Option<Study>, JournalError> {
        let database = database::named(storage, name, folder)?;
        database.map(|database| in_database::study(database, folder)).transpose()
    }

    /// The spec of the study in the journal file at `path`, such as a copy. Fails if the journal is damaged or describes no
    /// study.
    pub fn spec_at(path: &Path) -> Result<StudySpec, JournalError> {
        let folder = path.parent().unwrap_or(path);
        let study = Replay::of(path, &folder.to_string_lossy())?.study;
        study.spec.ok_or_else(|| JournalError::Missing { folder: folder.to_owned() })
    }

    /// The number of bytes of complete lines in the journal at `path`; none if it describes no study yet.
    pub fn length_at(path: &Path) -> Result<Option<u64>, JournalError> {
        let replay = Replay::of(path, &path.to_string_lossy())?;
        Ok(replay.study.spec.is_some().then_some(replay.length))
    }

    /// The address of the database with the study in `folder`, for a search that continues the study; none if the study is
    /// in the folder itself.
    pub fn storage_of(folder: &Path) -> Result<Option<String>, JournalError> {
        database::address(folder)
    }

    /// The spec in force: the spec given to [`Journal::open`], with a seed. The seed is the given one, or else that of the
    /// study so far, or else a new random one.
    pub fn spec(&self) -> &StudySpec {
        &self.spec
    }

    /// All trials, by number.
    pub fn trials(&self) -> &[TrialRecord] {
        &self.known.replay.study.trials
    }

    /// The number of trials that have ended.
    pub fn ended(&self) -> u64 {
        self.known.replay.study.ended
    }

    /// Reads the facts that other programs have written, for example trials that Optuna has begun, ended or enqueued.
    /// Returns whether any such fact was applied since the last call.
    pub fn read_on(&mut self) -> Result<bool, JournalError> {
        self.storage.read_others(&mut self.known)?;
        Ok(std::mem::take(&mut self.known.has_news))
    }

    /// Writes the first facts of a new study, and the differences between this search and the last one.
    fn begin(&mut self) -> Result<(), JournalError> {
        let asked = self.spec.clone();
        self.storage.begin_study(&mut self.known, &|known| beginning(&asked, known))?;
        self.spec = seeded(&asked, self.known.replay.study.spec.as_ref());
        Ok(())
    }

    /// Holds back the facts that are recorded from now on, so that all facts of a short trial need one write: that of the
    /// next trial's beginning. The records contain the facts at once.
    pub fn hold(&mut self) {
        self.storage.hold();
    }

    /// Writes the facts that were held back to disk, and stops holding back.
    pub fn release(&mut self) -> Result<(), JournalError> {
        self.storage.release(&mut self.known)
    }

    /// Writes all recorded facts to disk.
    pub fn sync(&mut self) -> Result<(), JournalError> {
        self.storage.sync(&mut self.known)
    }

    /// Writes these facts, unless facts are held back, and then applies them to the records.
    fn record(&mut self, facts: Vec<Fact<'_>>) -> Result<(), JournalError> {
        self.storage.record(&mut self.known, facts)
    }

    /// Sets a callback that runs every tenth of a second while a database does not answer. It ends trials that exceed a
    /// limit, and may return a shorter limit for the wait.
    pub fn while_waiting(&self, look: Look) {
        self.storage.while_waiting(look);
    }

    /// Writes this search's heartbeat, if the study may have other searches. One call per second is often enough.
    pub fn beat(&mut self) -> Result<(), JournalError> {
        self.storage.beat(&mut self.known)
    }

    /// The trials of other searches whose heartbeats have stopped for too long, or which have released their trials.
    pub fn dead(&mut self) -> Result<Vec<Dead>, JournalError> {
        self.storage.dead()
    }

    /// Whether another search runs one of these trials, or has died while it ran the trial.
    pub fn any_has_signs(&mut self, numbers: &[u64]) -> Result<bool, JournalError> {
        self.storage.any_has_signs(numbers)
    }

    /// Releases the open trials of this search, so that other searches can continue them at once.
    pub fn leave_trials(&mut self) -> Result<(), JournalError> {
        self.storage.leave(&mut self.known, true)
    }

    /// Makes a trial from [`Journal::dead`] this search's own, unless another search has been faster. Returns whether the
    /// trial is now this search's own.
    pub fn take_over(&mut self, dead: &Dead) -> Result<bool, JournalError> {
        self.storage.take_over(&mut self.known, dead)
    }
}

impl Drop for Journal {
    /// Closes the journal in an orderly way: this search's open trials wait for its next start, or are released to others,
    /// as its spec says. Facts that a file holds back are not written here; their owner writes them if needed.
    fn drop(&mut self) {
        if let Err(error) = self.storage.leave(&mut self.known, self.leaves_trials) {
            tracing::warn!(%error, "other searches will take this one for dead");
        }
    }
}

/// Opens the study in a file of the folder, after deleting it if `overwrite` is set.
fn in_file(folder: &Path, spec: &StudySpec, known: &mut Known) -> Result<InFile, JournalError> {
    if !spec.overwrite
        && let Some(found) = database::address_shown(folder)?
    {
        return Err(JournalError::OtherStorage { folder: folder.to_owned(), found });
    }
    let not_writable = |source| JournalError::NotWritable { folder: folder.to_owned(), source };
    let mut file = InFile::open(folder).map_err(not_writable)?;
    folder::sync(folder).map_err(not_writable)?;
    if spec.overwrite {
        delete_study(folder)?;
        file.empty()?;
    }
    file.read_study(known)?;
    Ok(file)
}

/// Opens the study in a database, after deleting it if `overwrite` is set.
fn in_database(folder: &Path, storage: &str, spec: &StudySpec, known: &mut Known) -> Result<InDatabase, JournalError> {
    if spec.supervision.mirror.is_some() {
        return Err(JournalError::Mirrored);
    }
    if spec.overwrite {
        // This check happens before anything is deleted.
        database::refuse_others(folder, storage, &spec.project)?;
        delete_study(folder)?;
        folder::removed(std::fs::remove_file(folder.join(JOURNAL)))
            .map_err(|source| JournalError::Io { path: folder.join(JOURNAL), source })?;
    } else if folder.join(JOURNAL).is_file() {
        let (folder, found) = (folder.to_owned(), "its own folder".to_owned());
        return Err(JournalError::OtherStorage { folder, found });
    }
    let heartbeat_s = Some(spec.supervision.heartbeat_s).filter(|seconds| *seconds > 0);
    let mut database = InDatabase::new(Database::open(folder, storage, &spec.project, heartbeat_s)?);
    if spec.overwrite {
        database.delete_study()?;
    }
    database.read_study(known)?;
    Ok(database)
}

/// The facts with which the search of `asked` begins or continues the study.
fn beginning(asked: &StudySpec, known: &Known) -> Vec<Fact<'static>> {
    let study = &known.replay.study;
    let spec = seeded(asked, study.spec.as_ref());
    let mut facts = Vec::new();
    if study.name.is_none() {
        let directions = spec.objectives.iter().map(|objective| objective.direction).collect();
        facts.push(Fact::StudyCreated { name: Cow::Owned(spec.project.clone()), directions });
        if spec.objectives.len() > 1 {
            facts.push(Fact::MetricNames(spec.objectives.iter().map(|objective| objective.metric.clone()).collect()));
        }
    }
    // A study that an earlier version began contains facts of this version from now on.
    if study.version != Some(VERSION) {
        facts.push(Fact::Version(VERSION));
    }
    if study.spec.as_ref() != Some(&spec) {
        facts.push(Fact::Spec(Box::new(spec)));
    }
    facts
}

/// The spec with the seed that the search uses, and with the trials that the study has already taken from other studies.
fn seeded(spec: &StudySpec, earlier: Option<&StudySpec>) -> StudySpec {
    let seed = spec.seed.or_else(|| earlier.and_then(|earlier| earlier.seed)).unwrap_or_else(seed::draw);
    let kept = |new: &WarmStart| earlier?.warm_starts.iter().find(|kept| kept.study == new.study);
    let warm_starts = spec.warm_starts.iter().map(|new| kept(new).unwrap_or(new).clone()).collect();
    StudySpec { seed: Some(seed), warm_starts, ..spec.clone().without_call() }
}

/// Refuses a study's folder in which a name leads elsewhere, except for the links by which Optuna's writers lock the
/// journal.
pub fn refuse_links(folder: &Path) -> Result<(), JournalError> {
    Ok(folder::refuse_links_of(folder, |name| !append_lock::is_lock(name))?)
}

/// Whether the folder has contents but no study.
fn holds_no_study(folder: &Path) -> bool {
    let files =
        std::fs::read_dir(folder).map_or(0, |entries| entries.flatten().filter(|entry| !is_lock(entry)).count());
    files > 0 && !study_folder::is_study(folder)
}

/// Whether this entry is one of the locks of a study.
pub fn is_lock(entry: &DirEntry) -> bool {
    lock::is_lock(&entry.file_name()) || append_lock::is_lock(&entry.file_name())
}

/// Deletes everything except the locks, which are held, and the journal: the folder remains a study until the journal is
/// emptied.
fn delete_study(folder: &Path) -> Result<(), JournalError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| JournalError::Io { path, source }
    };
    for entry in std::fs::read_dir(folder).map_err(failed(folder))? {
        let entry = entry.map_err(failed(folder))?;
        let path = entry.path();
        if entry.file_name() == JOURNAL || is_lock(&entry) {
            continue;
        }
        let is_folder = entry.file_type().map_err(failed(&path))?.is_dir();
        let removed = if is_folder { std::fs::remove_dir_all(&path) } else { std::fs::remove_file(&path) };
        removed.map_err(failed(&path))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
