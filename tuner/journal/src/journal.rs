//! The study's journal: the facts of its trials, in an append-only file that Optuna's `JournalFileBackend` reads and writes,
//! with a checksum on each line of ours, or in the tables of Optuna's `RDBStorage`. It owns the trials' records, which only
//! facts change. One search at a time writes a file, and any number a database, beside any number of Optuna's processes; a
//! fact is on disk before the call that records it returns.

mod append_lock;
mod content;
mod copy;
mod database;
mod decode;
mod encode;
mod error;
mod fact;
mod format;
mod in_database;
mod in_file;
mod known;
mod line;
mod lock;
mod recording;
mod replay;
mod shared_file;
mod state;

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
use in_database::InDatabase;
use in_file::InFile;
use known::Known;
pub use lock::StudyLock;
use replay::Replay;
use std::borrow::Cow;
use std::fs::DirEntry;
use std::path::Path;

/// Version of our own facts in the journal (Optuna's format has none).
const VERSION: u64 = 2;

/// A study that is open for writing. Its folder is closed to every other search.
#[derive(Debug)]
pub struct Journal {
    spec: StudySpec,
    known: Known,
    store: Store,
    /// Whether its open trials are for others when it is closed.
    leaves_trials: bool,
    /// Held, and given up by the system when it is closed, however this process ends.
    _lock: StudyLock,
}

/// Where the facts are.
#[derive(Debug)]
enum Store {
    /// In the study's folder, which has but one search.
    File(InFile),
    /// In a database, with other searches beside this one.
    Database(Box<InDatabase>),
}

impl Journal {
    /// Opens the study in `folder`, or begins it; with `spec.storage` in that database.
    ///
    /// A torn last line is cut off, and kept in a file beside the journal. With `spec.overwrite` an earlier study is deleted
    /// first. Trials that a dead supervisor left come back without an ending. Fails if the folder cannot be written, if
    /// another search has the study open, if the journal is damaged or of a newer version, if its objective is another one
    /// or has another source, or if a name in the folder leads out of it.
    pub fn open(folder: &Path, spec: &StudySpec) -> Result<Journal, JournalError> {
        Ok(Journal::open_with(folder, spec, || Ok::<_, JournalError>(()))?.0)
    }

    /// The same, with something to `prepare` in the folder when it is locked, before anything is written about this
    /// search. Where that fails, the journal stays as it was; with `spec.overwrite` it is empty.
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
        let store = match &spec.storage {
            Some(storage) => in_database(folder, storage, spec, &mut known)?,
            None => in_file(folder, spec, &mut known)?,
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
            store,
            leaves_trials: spec.supervision.leaves_trials,
            _lock: study_lock,
        };
        let prepared = prepare()?;
        journal.begin()?;
        Ok((journal, prepared))
    }

    /// Reads the study in `folder`, or in the database that the folder names, without a lock, also while a search writes it.
    /// Fails if there is none, if it is damaged or of a newer version, or if a name in the folder leads out of it.
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

    /// The address of the database that the study in `folder` is in, for a search that goes on with it; none where it is in
    /// the folder itself.
    pub fn storage_of(folder: &Path) -> Result<Option<String>, JournalError> {
        database::address(folder)
    }

    /// The search in force: as given to [`Journal::open`], with a seed — the given one, else that of the study so
    /// far, else one drawn now.
    pub fn spec(&self) -> &StudySpec {
        &self.spec
    }

    /// All trials, by number.
    pub fn trials(&self) -> &[TrialRecord] {
        &self.known.replay.study.trials
    }

    /// How many of them have ended.
    pub fn ended(&self) -> u64 {
        self.known.replay.study.ended
    }

    /// Takes in what other programs have written, such as trials that Optuna has begun, ended or enqueued. Says whether
    /// any of it was taken in since the last call.
    pub fn read_on(&mut self) -> Result<bool, JournalError> {
        match &mut self.store {
            Store::File(file) => file.read_others(&mut self.known)?,
            Store::Database(database) => database.read_others(&mut self.known)?,
        }
        Ok(std::mem::take(&mut self.known.has_news))
    }

    /// Writes what a new study begins with, and how this search differs from the last one.
    fn begin(&mut self) -> Result<(), JournalError> {
        let asked = self.spec.clone();
        match &mut self.store {
            Store::File(file) => file.append(&mut self.known, |known| beginning(&asked, known).1)?,
            Store::Database(database) => {
                let (_, facts) = beginning(&asked, &self.known);
                database.begin_study(&mut self.known, facts)?;
            }
        }
        self.spec = seeded(&asked, self.known.replay.study.spec.as_ref());
        Ok(())
    }

    /// Holds back the facts that are recorded from now on, so that those of a short trial cost one write: that of the
    /// next trial's beginning. The records have them at once.
    pub fn hold(&mut self) {
        match &mut self.store {
            Store::File(file) => file.is_holding = true,
            Store::Database(database) => database.hold(),
        }
    }

    /// Puts what was held back on disk, and holds back nothing more.
    pub fn release(&mut self) -> Result<(), JournalError> {
        match &mut self.store {
            Store::File(file) => {
                file.is_holding = false;
                file.sync(&mut self.known)
            }
            Store::Database(database) => database.release(&mut self.known),
        }
    }

    /// Puts all that was recorded on disk.
    pub fn sync(&mut self) -> Result<(), JournalError> {
        match &mut self.store {
            Store::File(file) => file.sync(&mut self.known),
            Store::Database(database) => database.sync(&mut self.known),
        }
    }

    /// Writes these facts, unless they are to be held back, and then changes the records by them.
    fn record(&mut self, facts: Vec<Fact<'_>>) -> Result<(), JournalError> {
        match &mut self.store {
            Store::File(file) => file.record(&mut self.known, facts),
            Store::Database(database) => database.record(&mut self.known, facts),
        }
    }

    /// What goes on, every tenth of a second, while a database does not answer: it ends what cannot wait, and says for how long is
    /// waited if that is shorter than usual.
    pub fn while_waiting(&self, look: Look) {
        if let Store::Database(database) = &self.store {
            database.while_waiting(look);
        }
    }

    /// Gives other searches of the study a sign of life, where it has others: often enough if it is called every second.
    pub fn beat(&mut self) -> Result<(), JournalError> {
        match &mut self.store {
            Store::File(_) => Ok(()),
            Store::Database(database) => database.beat(&mut self.known),
        }
    }

    /// Trials of other searches that have given no sign of life for too long.
    pub fn dead(&mut self) -> Result<Vec<Dead>, JournalError> {
        match &mut self.store {
            Store::File(_) => Ok(Vec::new()),
            Store::Database(database) => database.dead(),
        }
    }

    /// Whether another search runs one of these trials, or has died while it did.
    pub fn any_has_signs(&mut self, numbers: &[u64]) -> Result<bool, JournalError> {
        match &mut self.store {
            Store::File(_) => Ok(false),
            Store::Database(database) => database.any_has_signs(numbers),
        }
    }

    /// Leaves the open trials of this search to others, which go on with them at once.
    pub fn leave_trials(&mut self) -> Result<(), JournalError> {
        match &mut self.store {
            Store::File(_) => Ok(()),
            Store::Database(database) => database.leave(&mut self.known, true),
        }
    }

    /// Makes such a trial this search's own, unless another one has been faster; says whether it did.
    pub fn take_over(&mut self, dead: &Dead) -> Result<bool, JournalError> {
        match &mut self.store {
            Store::File(_) => Ok(false),
            Store::Database(database) => database.take_over(&mut self.known, dead),
        }
    }
}

impl Drop for Journal {
    /// Its open trials wait for this search, which leaves in good order, or are for others, as its spec says. A file has what
    /// was held back where its owner wanted that.
    fn drop(&mut self) {
        if let Store::Database(database) = &mut self.store
            && let Err(error) = database.leave(&mut self.known, self.leaves_trials)
        {
            tracing::warn!(%error, "other searches will take this one for dead");
        }
    }
}

/// The study in a file of the folder, which with `overwrite` is deleted first.
fn in_file(folder: &Path, spec: &StudySpec, known: &mut Known) -> Result<Store, JournalError> {
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
    Ok(Store::File(file))
}

/// The study in a database, which with `overwrite` is deleted first.
fn in_database(folder: &Path, storage: &str, spec: &StudySpec, known: &mut Known) -> Result<Store, JournalError> {
    if spec.supervision.mirror.is_some() {
        return Err(JournalError::Mirrored);
    }
    if spec.overwrite {
        // Before anything is gone.
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
    Ok(Store::Database(Box::new(database)))
}

/// The search in force, and the facts with which the search that is asked for begins or goes on.
fn beginning<'a>(asked: &StudySpec, known: &Known) -> (StudySpec, Vec<Fact<'a>>) {
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
    // A study that an earlier version began holds facts of this one from now on.
    if study.version != Some(VERSION) {
        facts.push(Fact::Version(VERSION));
    }
    if study.spec.as_ref() != Some(&spec) {
        facts.push(Fact::Spec(Box::new(spec.clone())));
    }
    (spec, facts)
}

/// The spec with the seed that the search uses, and with what the study has taken from another one before.
fn seeded(spec: &StudySpec, earlier: Option<&StudySpec>) -> StudySpec {
    let seed = spec.seed.or_else(|| earlier.and_then(|earlier| earlier.seed)).unwrap_or_else(seed::draw);
    let kept = earlier.and_then(|earlier| earlier.warm_start.as_ref());
    let warm_start = spec.warm_start.as_ref();
    let warm_start = warm_start.map(|new| kept.filter(|kept| kept.study == new.study).unwrap_or(new).clone());
    StudySpec { seed: Some(seed), warm_start, ..spec.clone().without_call() }
}

/// Refuses a study's folder in which a name leads elsewhere, but for the links by which Optuna's writers lock the journal.
pub fn refuse_links(folder: &Path) -> Result<(), JournalError> {
    Ok(folder::refuse_links_of(folder, |name| !append_lock::is_lock(name))?)
}

/// Whether the folder has something in it that is not a study.
fn holds_no_study(folder: &Path) -> bool {
    let files =
        std::fs::read_dir(folder).map_or(0, |entries| entries.flatten().filter(|entry| !is_lock(entry)).count());
    files > 0 && !study_folder::is_study(folder)
}

/// Whether this is one of the locks of a study.
pub fn is_lock(entry: &DirEntry) -> bool {
    lock::is_lock(&entry.file_name()) || append_lock::is_lock(&entry.file_name())
}

/// Deletes everything but the locks, which are held, and the journal: until that is emptied the folder still is a study.
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
