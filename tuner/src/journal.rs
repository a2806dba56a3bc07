//! The study's journal: an append-only file that Optuna's `JournalFileBackend` reads and writes, with a checksum on each
//! line of ours. It owns the trials' records, which only its lines change. One search at a time writes it, beside any
//! number of Optuna's processes; a fact is on disk before the call that records it returns. Never rewrites a line.

mod append_lock;
mod decode;
mod encode;
mod error;
mod fact;
mod format;
mod line;
mod lock;
mod recording;
mod replay;
mod shared_file;
mod state;

pub use error::JournalError;
pub use lock::{Holder, holder_of};
pub use recording::{End, Usage};
pub use state::{Study, Times};

use crate::folder;
use crate::record::{Runner, TrialRecord};
use crate::seed;
use crate::spec::StudySpec;
use crate::study_folder::JOURNAL;
use fact::Fact;
pub(crate) use lock::StudyLock;
use replay::Replay;
use shared_file::{SharedFile, Survives};
use std::borrow::Cow;
use std::fs::DirEntry;
use std::path::Path;

/// Version of our own facts in the journal (Optuna's format has none).
const VERSION: u64 = 2;

/// A study that is open for writing, and closed to every other search.
#[derive(Debug)]
pub struct Journal {
    spec: StudySpec,
    file: SharedFile,
    /// The study, with all facts that were read or recorded.
    replay: Replay,
    /// Whether lines of other programs have been applied since the search asked.
    has_news: bool,
    worker_id: String,
    /// Whole lines that are not in the file yet.
    held: String,
    is_holding: bool,
    /// Held, and given up by the system when it is closed, however this process ends.
    _lock: StudyLock,
}

impl Journal {
    /// Opens the study in `folder`, or begins it.
    ///
    /// A torn last line is cut off, and kept in a file beside the journal. With `spec.overwrite` an earlier study is deleted
    /// first. Trials that a dead supervisor left come back without an ending. Fails if the folder cannot be written, if
    /// another search has the study open, if the journal is damaged or of a newer version, if its objective is another one,
    /// or if a name in the folder leads out of it.
    pub fn open(folder: &Path, spec: &StudySpec) -> Result<Journal, JournalError> {
        Ok(Journal::open_with(folder, spec, || Ok::<_, JournalError>(()))?.0)
    }

    /// The same, with something to `prepare` in the folder when it is locked, before anything is written about this
    /// search. Where that fails, the journal stays as it was; with `spec.overwrite` it is empty.
    pub(crate) fn open_with<T, E: From<JournalError>>(
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
        let file = SharedFile::open(folder).map_err(not_writable)?;
        folder::sync(folder).map_err(not_writable)?;
        let mut journal = Journal {
            spec: spec.clone(),
            file,
            replay: Replay::default(),
            has_news: false,
            worker_id: worker_id(),
            held: String::new(),
            is_holding: false,
            _lock: study_lock,
        };
        journal.locked(|journal| journal.read_study(folder))?;
        let prepared = prepare()?;
        journal.locked(Journal::begin)?;
        Ok((journal, prepared))
    }

    /// Reads the study in `folder` without a lock, also while a search writes it. Fails if there is none, if it is
    /// damaged or of a newer version, or if a name in the folder leads out of it.
    pub fn read(folder: &Path) -> Result<Study, JournalError> {
        refuse_links(folder)?;
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

    /// The search of the journal in the file at `path`, such as a copy of one. Fails with what is wrong with it.
    pub(crate) fn spec_at(path: &Path) -> Result<StudySpec, JournalError> {
        let folder = path.parent().unwrap_or(path);
        let study = Replay::of(path, &folder.to_string_lossy())?.study;
        study.spec.ok_or_else(|| JournalError::Missing { folder: folder.to_owned() })
    }

    /// The search in force: as given to [`Journal::open`], with a seed — the given one, else that of the study so
    /// far, else one drawn now.
    pub fn spec(&self) -> &StudySpec {
        &self.spec
    }

    /// All trials, by number.
    pub fn trials(&self) -> &[TrialRecord] {
        &self.replay.study.trials
    }

    /// How many of them have ended.
    pub fn ended(&self) -> u64 {
        self.replay.study.ended
    }

    /// Takes in what other programs have appended, such as trials that Optuna has begun, ended or enqueued. Says whether
    /// any of it was taken in since the last call.
    pub fn read_on(&mut self) -> Result<bool, JournalError> {
        self.file.read_others()?;
        self.apply_others()?;
        Ok(std::mem::take(&mut self.has_news))
    }

    /// Reads the study, which with `overwrite` is deleted first. The lock is held.
    fn read_study(&mut self, folder: &Path) -> Result<(), JournalError> {
        if self.spec.overwrite {
            delete_study(folder)?;
            self.file.empty()?;
        }
        self.replay = Replay::of(self.file.path(), &self.spec.project)?;
        if let Some(earlier) = self.replay.study.other_objectives(&self.spec.objectives) {
            let (study, wanted) = (self.spec.project.clone(), state::objectives_text(&self.spec.objectives));
            return Err(JournalError::OtherObjective { study, earlier, wanted });
        }
        if !self.file.go_on_behind(self.replay.length)? {
            let path = self.file.path().to_owned();
            return Err(Replay::damage(&path, &self.spec.project).unwrap_or(JournalError::Behind { path }));
        }
        Ok(())
    }

    /// Writes what a new study begins with, and how this search differs from the last one. The lock is held.
    fn begin(&mut self) -> Result<(), JournalError> {
        self.catch_up()?;
        let study = &self.replay.study;
        let spec = seeded(&self.spec, study.spec.as_ref());
        let mut facts = Vec::new();
        if study.name.is_none() {
            let directions = spec.objectives.iter().map(|objective| objective.direction).collect();
            facts.push(Fact::StudyCreated { name: Cow::Owned(spec.project.clone()), directions });
            if spec.objectives.len() > 1 {
                facts.push(Fact::MetricNames(
                    spec.objectives.iter().map(|objective| objective.metric.clone()).collect(),
                ));
            }
        }
        // A study that an earlier version began holds facts of this one from now on.
        if study.version != Some(VERSION) {
            facts.push(Fact::Version(VERSION));
        }
        if study.spec.as_ref() != Some(&spec) {
            facts.push(Fact::Spec(Box::new(spec.clone())));
        }
        self.spec = spec;
        if facts.is_empty() { Ok(()) } else { self.write(facts) }
    }

    /// Holds back the lines that are recorded from now on, so that the facts of a short trial cost one write: that of the
    /// next trial's beginning. The records have them at once.
    pub(crate) fn hold(&mut self) {
        self.is_holding = true;
    }

    /// Puts what was held back on disk, and holds back nothing more.
    pub(crate) fn release(&mut self) -> Result<(), JournalError> {
        self.is_holding = false;
        self.sync()
    }

    /// Puts all that was recorded on disk.
    pub(crate) fn sync(&mut self) -> Result<(), JournalError> {
        self.file.check_is_whole()?;
        if !self.held.is_empty() {
            self.append(Vec::new())?;
        }
        self.file.sync()
    }

    /// Writes these facts, unless they are to be held back, and then changes the records by them.
    fn record(&mut self, facts: Vec<Fact<'_>>) -> Result<(), JournalError> {
        if !self.is_holding {
            return self.append(facts);
        }
        self.file.check_is_whole()?;
        self.held.extend(facts.iter().map(|fact| encode::encode(fact, &self.worker_id)));
        self.apply(facts);
        Ok(())
    }

    /// Appends these facts behind what other programs have written.
    fn append(&mut self, facts: Vec<Fact<'_>>) -> Result<(), JournalError> {
        self.locked(|journal| {
            journal.catch_up()?;
            journal.write(facts)
        })
    }

    /// Does something while no other program appends.
    fn locked<T>(&mut self, action: impl FnOnce(&mut Journal) -> Result<T, JournalError>) -> Result<T, JournalError> {
        self.file.check_is_whole()?;
        self.file.take_lock()?;
        let done = action(self);
        self.file.give_lock_back();
        done
    }

    /// Takes in what other programs have written. The lock is held.
    fn catch_up(&mut self) -> Result<(), JournalError> {
        self.file.catch_up()?;
        self.apply_others()
    }

    /// Appends what was held back, and these facts, by which the records change then. The lock is held, and what others
    /// have written has been applied.
    fn write(&mut self, facts: Vec<Fact<'_>>) -> Result<(), JournalError> {
        let mut text = std::mem::take(&mut self.held);
        let is_acknowledged = !text.is_empty();
        text.extend(facts.iter().map(|fact| encode::encode(fact, &self.worker_id)));
        let survives = if self.is_holding { Survives::Process } else { Survives::Machine };
        let written = self.file.write(&text, survives);
        // The caller learns that these facts are lost; the callers of what was held back cannot any more.
        self.file.is_behind |= written.is_err() && is_acknowledged;
        written?;
        self.apply(facts);
        Ok(())
    }

    fn apply(&mut self, facts: Vec<Fact<'_>>) {
        for fact in facts {
            let applied = fact.apply(Runner::Search, &mut self.replay.study);
            applied.expect("a search records facts of trials that exist, in its own version");
        }
    }

    /// Applies the lines of other programs that have been read, as when the study is opened.
    fn apply_others(&mut self) -> Result<(), JournalError> {
        let lines = self.file.take_others();
        if lines.is_empty() {
            return Ok(());
        }
        self.has_news = true;
        let (path, study) = (self.file.path().to_owned(), self.spec.project.as_str());
        self.replay.go_on(&lines, &path, study).map_err(|error| {
            // From here on the records and the file differ. The whole file tells the number of the line.
            self.file.is_behind = true;
            Replay::damage(&path, study).unwrap_or(error)
        })
    }
}

/// The spec with the seed that the search uses.
fn seeded(spec: &StudySpec, earlier: Option<&StudySpec>) -> StudySpec {
    let seed = spec.seed.or_else(|| earlier.and_then(|earlier| earlier.seed)).unwrap_or_else(seed::draw);
    StudySpec { seed: Some(seed), ..spec.clone().without_call() }
}

/// Optuna tells the writers of a journal apart by this; a line that begins so must have a checksum.
fn worker_id() -> String {
    format!("{}{}-{:x}", line::WORKER_PREFIX, std::process::id(), seed::draw())
}

/// Refuses a study's folder in which a name leads elsewhere, but for the links by which Optuna's writers lock the journal.
pub(crate) fn refuse_links(folder: &Path) -> Result<(), JournalError> {
    Ok(folder::refuse_links_of(folder, |name| !append_lock::is_lock(name))?)
}

/// Whether the folder has something in it that is not a study.
fn holds_no_study(folder: &Path) -> bool {
    let files =
        std::fs::read_dir(folder).map_or(0, |entries| entries.flatten().filter(|entry| !is_lock(entry)).count());
    files > 0 && !folder.join(JOURNAL).is_file()
}

/// Whether this is one of the locks of a study.
pub(crate) fn is_lock(entry: &DirEntry) -> bool {
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
